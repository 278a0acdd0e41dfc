// The state of a watch: its place, and the live text that the caller has.

import type { CallError } from "./errors.js";
import type { RunEvent, StepReasoning, StepText, StepToolCall } from "./generated/podium/v1/event_pb.js";
import type { WatchRunResponse } from "./generated/podium/v1/podium_pb.js";
import { RunState, type Run } from "./generated/podium/v1/run_pb.js";
import { pauseMs, type RetryPolicy } from "./retry.js";

export type AnyUpdate = WatchRunResponse["update"];

const ENDED = [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED];
const FINAL = ["succeeded", "failed", "cancelled"];

function step(round: number, index: number): string {
  return `${round}/${index}/`;
}

/** The events and text that the caller of a watch has, so that a resumed watch has no gap and no repetition. */
export class Place {
  sequence: bigint;
  /** Whether the caller has the run's final event. */
  isFinal = false;
  readonly #retry: RetryPolicy;
  #failures = 0;
  #heardAt = performance.now();
  /** Bytes of each output. */
  readonly #written = new Map<string, bigint>();
  /** Bytes of the reasoning before each output. */
  readonly #reasoned = new Map<string, bigint>();
  #planning: number | undefined;
  #planningCut: number | undefined;
  readonly #calls = new Set<string>();
  readonly #callsCut = new Set<string>();

  constructor(after: bigint, retry: RetryPolicy) {
    this.sequence = after;
    this.#retry = retry;
  }

  /** Whether no event is missing before the update. */
  follows(update: AnyUpdate): boolean {
    return update.case !== "event" || update.value.sequence <= this.sequence + 1n;
  }

  /** The part of the next update that the caller does not have. */
  unseen(update: AnyUpdate): AnyUpdate | undefined {
    this.#failures = 0;
    this.#heardAt = performance.now();
    switch (update.case) {
      case "event":
        return this.#event(update.value) ? update : undefined;
      case "planningText":
        this.#planning = update.value.round;
        return this.#planning === this.#planningCut ? undefined : update;
      case "stepText":
        return this.#cut(update.value, this.#written) ? update : undefined;
      case "stepReasoning":
        return this.#cut(update.value, this.#reasoned) ? update : undefined;
      case "stepToolCall":
        return this.#call(update.value) ? update : undefined;
      case "stepRestarted":
        this.#forget(step(update.value.round, update.value.step));
        return update;
      default:
        return undefined;
    }
  }

  /** Whether a watch that ended without an error was complete. */
  isOver(run: Run): boolean {
    return ENDED.includes(run.state) && run.sequence <= this.sequence;
  }

  /** The connection was lost: how long to wait. Throws the error if no retry can help, or if it would come too late. */
  resumePauseMs(error: CallError): number {
    this.#planningCut = this.#planning ?? this.#planningCut;
    for (const call of this.#calls) this.#callsCut.add(call);
    this.#calls.clear();
    this.#failures += 1;
    const pause = pauseMs(this.#retry, this.#failures, error);
    const isLate = performance.now() - this.#heardAt + pause > this.#retry.resumeWithinMs;
    if (!error.isTransient || isLate) throw error;
    return pause;
  }

  #event(event: RunEvent): boolean {
    if (event.sequence <= this.sequence) return false;
    this.sequence = event.sequence;
    this.isFinal ||= FINAL.includes(event.kind.case ?? "");
    // The next turn of the step begins a new output.
    if (event.kind.case === "stepCalled") this.#forget(step(event.kind.value.round, event.kind.value.step));
    return true;
  }

  #forget(prefix: string): void {
    for (const known of [this.#written, this.#reasoned, this.#calls, this.#callsCut]) {
      for (const key of [...known.keys()]) if (key.startsWith(prefix)) known.delete(key);
    }
  }

  /** Cuts the beginning that the caller has. Returns whether something is left. */
  #cut(text: StepText | StepReasoning, known: Map<string, bigint>): boolean {
    const key = `${step(text.round, text.step)}${text.attempt}`;
    const written = known.get(key) ?? 0n;
    const bytes = Buffer.from(text.text);
    const end = text.offset + BigInt(bytes.length);
    if (end <= written) return false;
    known.set(key, end);
    const seen = Number(written - text.offset);
    if (seen > 0) {
      text.text = bytes.subarray(seen).toString();
      text.offset = written;
    }
    return true;
  }

  #call(piece: StepToolCall): boolean {
    const key = `${step(piece.round, piece.step)}${piece.attempt}/${piece.index}`;
    if (this.#callsCut.has(key) || !(piece.id || this.#calls.has(key))) return false;
    this.#calls.add(key);
    return true;
  }
}
