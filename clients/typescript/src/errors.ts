// Errors of the client.

import { Code, ConnectError } from "@connectrpc/connect";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./generated/google/rpc/error_details_pb.js";

const LOST = [Code.Unknown, Code.Internal, Code.Canceled, Code.DataLoss];

/** Longest time that a limit may ask a client to wait before the call is repeated. */
const LIMIT_DELAY_MS_MAX = 60_000;

/** A field of a request is invalid. */
export interface FieldViolation {
  /** Its path, such as `policy.steps_max`. */
  readonly field: string;
  /** The problem, for people. */
  readonly description: string;
}

/** A call failed. `cause` is the error of the transport. */
export class CallError extends Error {
  override readonly name = "CallError";
  /** The name of the call, such as `CreateRun`. */
  readonly method: string;
  /** The status code. It is `Unavailable` if the connection was lost before the server answered. */
  readonly code: Code;
  /** The server's stable reason, such as `IDEMPOTENCY_MISMATCH`. Undefined: the error is of the connection or of a proxy. */
  readonly reason: string | undefined;
  /** The invalid fields of the request, the first dozen at most. */
  readonly fields: readonly FieldViolation[];
  /** The time in milliseconds that the server asks the client to wait before it repeats the call. */
  readonly retryDelayMs: number | undefined;

  constructor(method: string, cause: unknown) {
    const error = ConnectError.from(cause);
    const reason = error.findDetails(ErrorInfoSchema)[0]?.reason;
    // Podium's own errors always have details.
    const isLost = LOST.includes(error.code) && error.details.length === 0;
    const code = isLost ? Code.Unavailable : error.code;
    const shown = reason === undefined ? Code[code] : `${Code[code]} (${reason})`;
    super(`${method} failed with ${shown}: ${error.rawMessage}`, { cause });
    this.method = method;
    this.code = code;
    this.reason = reason;
    const violations = error.findDetails(BadRequestSchema).flatMap((bad) => bad.fieldViolations);
    this.fields = violations.map(({ field, description }) => ({ field, description }));
    const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
    this.retryDelayMs = delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6;
  }

  /** Whether the same call may succeed later. Calls are repeated for this reason only. */
  get isTransient(): boolean {
    // A limit that the server expects to have room again soon. A budget's next period may be weeks away.
    if (this.code === Code.ResourceExhausted) return (this.retryDelayMs ?? Infinity) <= LIMIT_DELAY_MS_MAX;
    return this.code === Code.Unavailable || this.code === Code.Aborted;
  }
}
