/** The messages, enums and services of `podium.v1`, generated from `proto/`. */
export * from "./generated/podium/v1/event_pb.js";
export * from "./generated/podium/v1/podium_pb.js";
export * from "./generated/podium/v1/run_pb.js";
