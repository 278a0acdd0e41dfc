// A Restate service with one handler of three no-op steps. Listens on loopback, on the port that is given; prints a line when
// it does.

import { createServer } from "node:http2";

// The SDK wants Node 22; this is all that an older one lacks.
Promise.withResolvers ??= function withResolvers() {
  let resolve, reject;
  const promise = new Promise((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
};
const restate = await import("@restatedev/restate-sdk");

const bench = restate.service({
  name: "bench",
  handlers: {
    threeSteps: async (context, number) => {
      for (const step of ["first", "second", "third"]) {
        const before = number;
        number = await context.run(step, () => before + 1);
      }
      return number;
    },
  },
});

// Not `serve` or `listen` of the SDK, which open the port to every network.
const handler = restate.createEndpointHandler({ services: [bench] });
const server = createServer(handler).listen(Number(process.argv[2]), "127.0.0.1", () => {
  console.log(`listening on ${server.address().port}`);
});
