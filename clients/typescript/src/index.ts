export type { AnswerPart } from "./answer.js";
export { Answer, PodiumClient, Watch } from "./client.js";
export type { CallOptions, ClientOptions, TlsOptions, Update } from "./client.js";
export { CallError } from "./errors.js";
export type { FieldViolation } from "./errors.js";
export { assistantMessage, question, systemMessage, toolResult, toolResultsMessage, userMessage } from "./requests.js";
export type { RetryPolicy } from "./retry.js";
export { Code } from "@connectrpc/connect";
