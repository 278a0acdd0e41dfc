// Short constructors of requests.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { CreateRunRequestSchema, type CreateRunRequest } from "./generated/podium/v1/podium_pb.js";
import {
  MessageSchema,
  Role,
  ToolResultSchema,
  type Message,
  type ToolCall,
  type ToolResult,
} from "./generated/podium/v1/run_pb.js";

/** A request with one message of the user; `fields` are further fields of `CreateRunRequest`. */
export function question(text: string, fields: MessageInitShape<typeof CreateRunRequestSchema> = {}): CreateRunRequest {
  return create(CreateRunRequestSchema, { ...fields, messages: [userMessage(text)] });
}

/** Instructions of the caller's application. */
export function systemMessage(text: string): Message {
  return create(MessageSchema, { role: Role.SYSTEM, text });
}

/** A message of the user. */
export function userMessage(text: string): Message {
  return create(MessageSchema, { role: Role.USER, text });
}

/** An earlier answer, with its tool calls. */
export function assistantMessage(text: string, calls: readonly ToolCall[] = []): Message {
  const parts = calls.map((value) => ({ part: { case: "toolCall" as const, value } }));
  return create(MessageSchema, { role: Role.ASSISTANT, text, parts });
}

/** The result of a call, or the error message of a tool that failed. */
export function toolResult(call: ToolCall, output: string, isError = false): ToolResult {
  return create(ToolResultSchema, { callId: call.id, output, isError });
}

/** The results of the tool calls of the message before. */
export function toolResultsMessage(results: readonly ToolResult[]): Message {
  const parts = results.map((value) => ({ part: { case: "toolResult" as const, value } }));
  return create(MessageSchema, { role: Role.USER, parts });
}
