// The parts of an answer.

import type { AnyUpdate } from "./place.js";
import { RunState, type Run, type ToolCall } from "./generated/podium/v1/run_pb.js";

/** A part of an answer. */
export type AnswerPart =
  /** The next text of the answer. */
  | { readonly type: "text"; readonly text: string }
  /** The text so far is not the answer: discard it. The answer begins again. */
  | { readonly type: "restarted" }
  /** The run waits for the results of these calls: pass them to `submitToolResults`, and read on. */
  | { readonly type: "toolCalls"; readonly runId: string; readonly calls: readonly ToolCall[] }
  /**
   * The run has ended; this is the last part. If it succeeded, all text since the last restart is its answer. The answer may have
   * tool calls too, whose results begin a new run.
   */
  | { readonly type: "ended"; readonly run: Run };

/** Turns the updates of a run into the parts of its answer. */
export class Progress {
  #output: string | undefined;
  #text = Buffer.alloc(0);

  /** Whether the update says that the run waits for the results of tool calls. */
  isSuspended(update: AnyUpdate): boolean {
    const isSuspended = update.case === "event" && update.value.kind.case === "suspended";
    if (isSuspended) this.#output = undefined;
    return isSuspended;
  }

  /** Adds live text. Text after a gap is left out: the end of the run has it. */
  *write(update: AnyUpdate): Generator<AnswerPart> {
    if (update.case !== "stepText" || !update.value.isAnswer) return;
    const text = update.value;
    const output = `${text.round}/${text.step}/${text.attempt}`;
    if (output !== this.#output) {
      if (text.offset > 0n) return;
      yield* this.#restart();
      this.#output = output;
    }
    const seen = this.#text.length - Number(text.offset);
    if (seen >= 0) yield* this.#add(Buffer.from(text.text).subarray(seen));
  }

  /** Adds the rest of the answer, and the end. */
  *end(run: Run): Generator<AnswerPart> {
    if (run.state === RunState.SUCCEEDED) {
      const answer = Buffer.from(run.answer ?? "");
      if (!answer.subarray(0, this.#text.length).equals(this.#text)) yield* this.#restart();
      yield* this.#add(answer.subarray(this.#text.length));
    }
    yield { type: "ended", run };
  }

  *#add(bytes: Buffer): Generator<AnswerPart> {
    if (bytes.length === 0) return;
    this.#text = Buffer.concat([this.#text, bytes]);
    yield { type: "text", text: bytes.toString() };
  }

  *#restart(): Generator<AnswerPart> {
    if (this.#text.length === 0) return;
    this.#text = Buffer.alloc(0);
    yield { type: "restarted" };
  }
}
