// When a failed call is repeated.

import { setTimeout as sleep } from "node:timers/promises";

import type { CallError } from "./errors.js";

/**
 * When a failed call is repeated. Only `Unavailable`, `Aborted`, lost connections, and limits that pass within a minute are.
 *
 * The pause doubles with each failure, up to `backoffMaxMs`; up to half of it is random. If the server asks for a longer pause
 * (`google.rpc.RetryInfo`), the client waits that long. A call whose deadline would pass meanwhile fails at once.
 */
export interface RetryPolicy {
  /** Maximum number of attempts of one call, the first included. Default: 5. */
  readonly attemptsMax: number;
  /** The pause after the first failure. Default: 100. */
  readonly backoffInitialMs: number;
  /** The longest pause. Default: 5000. */
  readonly backoffMaxMs: number;
  /** How long a watch tries to resume after the last message that it received. Default: 300000. */
  readonly resumeWithinMs: number;
}

export const RETRY: RetryPolicy = {
  attemptsMax: 5,
  backoffInitialMs: 100,
  backoffMaxMs: 5_000,
  resumeWithinMs: 300_000,
};

/** The pause after so many failures in a row, from 1. */
export function pauseMs(policy: RetryPolicy, failures: number, error: CallError): number {
  const longest = Math.min(policy.backoffInitialMs * 2 ** Math.min(failures - 1, 31), policy.backoffMaxMs);
  return Math.max(longest * (0.5 + Math.random() / 2), error.retryDelayMs ?? 0);
}

/** Waits, unless the signal aborts. */
export async function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, signal && { signal });
}
