// The client.

import { randomUUID } from "node:crypto";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { Progress, type AnswerPart } from "./answer.js";
import { CallError } from "./errors.js";
import {
  CreateRunRequestSchema,
  PodiumService,
  type CreateRunResponse,
  type EstimateRunResponse,
} from "./generated/podium/v1/podium_pb.js";
import { RunState, ToolResultSchema, type Run, type RunSummary } from "./generated/podium/v1/run_pb.js";
import { Place, type AnyUpdate } from "./place.js";
import { pauseMs, RETRY, wait, type RetryPolicy } from "./retry.js";

/** The server's limit of a response. */
const RESPONSE_BYTES_MAX = 16 << 20;
const DEADLINE_MS = 30_000;
/** Three missing heartbeats: the connection is lost. */
const SILENCE_MS_MAX = 45_000;

/** Certificates, as PEM. Without `ca`, the client trusts the authorities that Node ships. */
export interface TlsOptions {
  /** The authority that signed the server's certificate. */
  readonly ca?: string | Buffer;
  /** The client's own certificate (mTLS). */
  readonly cert?: string | Buffer;
  /** The private key of the client's certificate. */
  readonly key?: string | Buffer;
  /** The name in the server's certificate, if it is not the host of the address. */
  readonly serverName?: string;
}

export interface ClientOptions {
  /** The key that the server asks for. Use an `https` address, or anyone on the network can read it. */
  readonly apiKey?: string;
  readonly tls?: TlsOptions;
  /** Longest time of one call, retries included; 0: no limit. It does not limit a watch. Default: 30000. */
  readonly deadlineMs?: number;
  readonly retry?: Partial<RetryPolicy>;
}

export interface CallOptions {
  /** Longest time of this call, retries included; 0: no limit. Default: that of the client. */
  readonly deadlineMs?: number;
  /** Gives up when it aborts. The run continues. */
  readonly signal?: AbortSignal;
}

/** An update of a run. Heartbeats are left out. */
export type Update = Exclude<AnyUpdate, { case: undefined } | { case: "heartbeat" }>;

type Request = MessageInitShape<typeof CreateRunRequestSchema>;
type Send<T> = (options: { signal?: AbortSignal; timeoutMs?: number }) => Promise<T>;

/** A client of a server. */
export class PodiumClient {
  /** The generated client, with the API key and without retries, for calls that this client does not have. */
  readonly service: Client<typeof PodiumService>;
  readonly #sessions: Http2SessionManager;
  readonly #deadlineMs: number;
  readonly #retry: RetryPolicy;

  constructor(url: string, options: ClientOptions = {}) {
    const isSecure = url.startsWith("https://");
    if (!isSecure && !url.startsWith("http://")) {
      throw new TypeError(`invalid server address \`${url}\`: use http://HOST:PORT or https://HOST:PORT`);
    }
    if (options.tls && !isSecure) {
      throw new TypeError(`invalid TLS settings for \`${url}\`: the address must begin with https://`);
    }
    const { serverName, ...certificates } = options.tls ?? {};
    const tls = isSecure ? { ...certificates, ...(serverName && { servername: serverName }) } : {};
    const pings = { pingIntervalMs: 30_000, pingTimeoutMs: 10_000 };
    this.#sessions = new Http2SessionManager(url, pings, tls);
    const transport = createGrpcTransport({
      baseUrl: url,
      sessionManager: this.#sessions,
      readMaxBytes: RESPONSE_BYTES_MAX,
      interceptors: options.apiKey === undefined ? [] : [withKey(options.apiKey)],
    });
    this.service = createClient(PodiumService, transport);
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
    this.#retry = { ...RETRY, ...options.retry };
  }

  /** Closes the connection. Calls and watches in flight fail. */
  close(): void {
    this.#sessions.abort();
  }

  /** Creates a run and returns at once. A request without a `requestId` gets a new one, so that a retry creates no second run. */
  async create(request: Request, options?: CallOptions): Promise<CreateRunResponse> {
    const own = { ...request, requestId: request.requestId || randomUUID() };
    return this.#call("CreateRun", options, (call) => this.service.createRun(create(CreateRunRequestSchema, own), call));
  }

  /** The current state of a run. */
  async get(runId: string, options?: CallOptions): Promise<Run> {
    return present(await this.#call("GetRun", options, (call) => this.service.getRun({ runId }, call)));
  }

  /**
   * The tenant's runs, the newest first. Pages are read as the iterator is. A filter is such as `state = FAILED AND tier = ultra`; see
   * `ListRunsRequest.filter`.
   */
  async *list(options?: CallOptions, filter = ""): AsyncGenerator<RunSummary> {
    for (let pageToken = ""; ; ) {
      const page = await this.#call("ListRuns", options, (call) => this.service.listRuns({ pageToken, filter }, call));
      yield* page.runs;
      pageToken = page.nextPageToken;
      if (!pageToken) return;
    }
  }

  /** Cancels a run. It is no error if the run was cancelled before; it is one if the run ended in another way. */
  async cancel(runId: string, options?: CallOptions): Promise<Run> {
    return present(await this.#call("CancelRun", options, (call) => this.service.cancelRun({ runId }, call)));
  }

  /** Continues a suspended run with one result for each of its pending calls. The same results may be submitted again. */
  async submitToolResults(
    runId: string,
    results: MessageInitShape<typeof ToolResultSchema>[],
    options?: CallOptions,
  ): Promise<Run> {
    const send: Send<{ run?: Run }> = (call) => this.service.submitToolResults({ runId, results }, call);
    return present(await this.#call("SubmitToolResults", options, send));
  }

  /** Estimates the cost of a run without creating it. */
  async estimate(run: Request, options?: CallOptions): Promise<EstimateRunResponse> {
    return this.#call("EstimateRun", options, (call) => this.service.estimateRun({ run }, call));
  }

  /** Watches a run from the event after `after` until it has ended. Resumes by itself after a lost connection. */
  watch(runId: string, after = 0n, signal?: AbortSignal): Watch {
    return new Watch(this, runId, new Place(after, this.#retry), signal);
  }

  /** Creates a run and streams its answer. */
  async ask(request: Request, options?: CallOptions): Promise<Answer> {
    const { run } = await this.create(request, options);
    return this.answer(present({ run }).runId, options?.signal);
  }

  /** Streams the answer of a run that exists, from its beginning. */
  answer(runId: string, signal?: AbortSignal): Answer {
    return new Answer(this, runId, signal);
  }

  async #call<T>(method: string, options: CallOptions | undefined, send: Send<T>): Promise<T> {
    const limit = options?.deadlineMs ?? this.#deadlineMs;
    const deadline = limit > 0 ? performance.now() + limit : Infinity;
    const signal = options?.signal;
    for (let failures = 1; ; failures += 1) {
      // 0 would mean no limit.
      const left = Math.max(Math.ceil(deadline - performance.now()), 1);
      try {
        return await send({ ...(signal && { signal }), ...(Number.isFinite(left) && { timeoutMs: left }) });
      } catch (cause) {
        signal?.throwIfAborted();
        const error = new CallError(method, cause);
        const pause = pauseMs(this.#retry, failures, error);
        const isLate = performance.now() + pause >= deadline;
        if (!error.isTransient || failures >= this.#retry.attemptsMax || isLate) throw error;
        await wait(pause, signal);
      }
    }
  }
}

/**
 * The updates of a run, until it has ended.
 *
 * Events have consecutive sequence numbers: a lost connection causes neither a gap nor a repetition. Live text is never repeated.
 * Live text that was written while the connection was lost may be missing; events that follow have it. The rest of a planning text
 * or of a tool call that was interrupted is left out.
 */
export class Watch implements AsyncIterable<Update> {
  readonly runId: string;
  readonly #client: PodiumClient;
  readonly #place: Place;
  readonly #signal: AbortSignal | undefined;

  constructor(client: PodiumClient, runId: string, place: Place, signal: AbortSignal | undefined) {
    this.runId = runId;
    this.#client = client;
    this.#place = place;
    this.#signal = signal;
  }

  /** The sequence number of the last event that the caller has. */
  get sequence(): bigint {
    return this.#place.sequence;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Update> {
    for (;;) {
      let error: CallError;
      try {
        yield* this.#connection();
        if (this.#place.isFinal || this.#place.isOver(await this.#client.get(this.runId))) return;
        error = new CallError("WatchRun", new ConnectError("the watch ended before the run", Code.Unavailable));
      } catch (cause) {
        this.#signal?.throwIfAborted();
        if (cause instanceof CallError) throw cause;
        error = new CallError("WatchRun", cause);
      }
      await wait(this.#place.resumePauseMs(error), this.#signal);
    }
  }

  /** The updates of one connection that the caller does not have. */
  async *#connection(): AsyncGenerator<Update> {
    const silence = new AbortController();
    const signal = this.#signal ? AbortSignal.any([this.#signal, silence.signal]) : silence.signal;
    const listen = () => setTimeout(() => silence.abort(), SILENCE_MS_MAX);
    let timer = listen();
    const request = { runId: this.runId, afterSequence: this.#place.sequence };
    try {
      // No time limit: 0 replaces that of the transport.
      for await (const { update } of this.#client.service.watchRun(request, { signal, timeoutMs: 0 })) {
        // The caller may take its time.
        clearTimeout(timer);
        if (!this.#place.follows(update)) return;
        const unseen = this.#place.unseen(update);
        if (unseen) yield unseen as Update;
        timer = listen();
      }
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
  }
}

/** The answer of a run, part by part. It survives lost connections. */
export class Answer implements AsyncIterable<AnswerPart> {
  readonly runId: string;
  readonly #client: PodiumClient;
  readonly #signal: AbortSignal | undefined;

  constructor(client: PodiumClient, runId: string, signal: AbortSignal | undefined) {
    this.runId = runId;
    this.#client = client;
    this.#signal = signal;
  }

  /** Reads to the end and returns the run. A run that calls tools on the way waits until someone submits their results. */
  async run(): Promise<Run> {
    for await (const part of this) if (part.type === "ended") return part.run;
    return this.#get();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AnswerPart> {
    const progress = new Progress();
    for await (const update of this.#client.watch(this.runId, 0n, this.#signal)) {
      if (progress.isSuspended(update)) {
        const run = await this.#get();
        if (run.state === RunState.SUSPENDED) yield { type: "toolCalls", runId: this.runId, calls: run.toolCalls };
      } else {
        yield* progress.write(update);
      }
    }
    yield* progress.end(await this.#get());
  }

  async #get(): Promise<Run> {
    return this.#client.get(this.runId, this.#signal && { signal: this.#signal });
  }
}

function withKey(apiKey: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${apiKey}`);
    return next(request);
  };
}

function present(response: { run?: Run | undefined }): Run {
  if (!response.run) throw new Error("the response has no `run`: is the server another version?");
  return response.run;
}
