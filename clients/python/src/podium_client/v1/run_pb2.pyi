import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]

class ToolChoiceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_CHOICE_MODE_UNSPECIFIED: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_AUTO: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_NONE: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_REQUIRED: _ClassVar[ToolChoiceMode]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_MINI: _ClassVar[Tier]
    TIER_ULTRA: _ClassVar[Tier]

class Effort(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFORT_UNSPECIFIED: _ClassVar[Effort]
    EFFORT_LOW: _ClassVar[Effort]
    EFFORT_MEDIUM: _ClassVar[Effort]
    EFFORT_HIGH: _ClassVar[Effort]
    EFFORT_XHIGH: _ClassVar[Effort]
    EFFORT_NONE: _ClassVar[Effort]
    EFFORT_MINIMAL: _ClassVar[Effort]
    EFFORT_MAX: _ClassVar[Effort]

class Fallback(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FALLBACK_UNSPECIFIED: _ClassVar[Fallback]
    FALLBACK_NONE: _ClassVar[Fallback]
    FALLBACK_POOL: _ClassVar[Fallback]

class BrokenAnswer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKEN_ANSWER_UNSPECIFIED: _ClassVar[BrokenAnswer]
    BROKEN_ANSWER_ELSEWHERE: _ClassVar[BrokenAnswer]
    BROKEN_ANSWER_AGAIN: _ClassVar[BrokenAnswer]

class FailedStep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILED_STEP_UNSPECIFIED: _ClassVar[FailedStep]
    FAILED_STEP_REPLAN: _ClassVar[FailedStep]
    FAILED_STEP_CONTINUE: _ClassVar[FailedStep]
    FAILED_STEP_FAIL: _ClassVar[FailedStep]

class StepCaching(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_CACHING_UNSPECIFIED: _ClassVar[StepCaching]
    STEP_CACHING_OFF: _ClassVar[StepCaching]
    STEP_CACHING_EXACT: _ClassVar[StepCaching]

class StepTools(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_TOOLS_UNSPECIFIED: _ClassVar[StepTools]
    STEP_TOOLS_ALL: _ClassVar[StepTools]
    STEP_TOOLS_LAST: _ClassVar[StepTools]

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_ACTIVE: _ClassVar[RunState]
    RUN_STATE_SUCCEEDED: _ClassVar[RunState]
    RUN_STATE_FAILED: _ClassVar[RunState]
    RUN_STATE_CANCELLED: _ClassVar[RunState]
    RUN_STATE_SUSPENDED: _ClassVar[RunState]

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_WAITING: _ClassVar[TaskState]
    TASK_STATE_READY: _ClassVar[TaskState]
    TASK_STATE_RUNNING: _ClassVar[TaskState]
    TASK_STATE_DONE: _ClassVar[TaskState]
    TASK_STATE_FAILED: _ClassVar[TaskState]
    TASK_STATE_CANCELLED: _ClassVar[TaskState]
    TASK_STATE_CALLING: _ClassVar[TaskState]
    TASK_STATE_SKIPPED: _ClassVar[TaskState]

class AttemptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_OUTCOME_UNSPECIFIED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_RUNNING: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_ACCEPTED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_FAILED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_LOST: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_UNUSED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_HANDED_BACK: _ClassVar[AttemptOutcome]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_CONTENT_FILTER: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
TOOL_CHOICE_MODE_UNSPECIFIED: ToolChoiceMode
TOOL_CHOICE_MODE_AUTO: ToolChoiceMode
TOOL_CHOICE_MODE_NONE: ToolChoiceMode
TOOL_CHOICE_MODE_REQUIRED: ToolChoiceMode
TIER_UNSPECIFIED: Tier
TIER_MINI: Tier
TIER_ULTRA: Tier
EFFORT_UNSPECIFIED: Effort
EFFORT_LOW: Effort
EFFORT_MEDIUM: Effort
EFFORT_HIGH: Effort
EFFORT_XHIGH: Effort
EFFORT_NONE: Effort
EFFORT_MINIMAL: Effort
EFFORT_MAX: Effort
FALLBACK_UNSPECIFIED: Fallback
FALLBACK_NONE: Fallback
FALLBACK_POOL: Fallback
BROKEN_ANSWER_UNSPECIFIED: BrokenAnswer
BROKEN_ANSWER_ELSEWHERE: BrokenAnswer
BROKEN_ANSWER_AGAIN: BrokenAnswer
FAILED_STEP_UNSPECIFIED: FailedStep
FAILED_STEP_REPLAN: FailedStep
FAILED_STEP_CONTINUE: FailedStep
FAILED_STEP_FAIL: FailedStep
STEP_CACHING_UNSPECIFIED: StepCaching
STEP_CACHING_OFF: StepCaching
STEP_CACHING_EXACT: StepCaching
STEP_TOOLS_UNSPECIFIED: StepTools
STEP_TOOLS_ALL: StepTools
STEP_TOOLS_LAST: StepTools
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_ACTIVE: RunState
RUN_STATE_SUCCEEDED: RunState
RUN_STATE_FAILED: RunState
RUN_STATE_CANCELLED: RunState
RUN_STATE_SUSPENDED: RunState
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_WAITING: TaskState
TASK_STATE_READY: TaskState
TASK_STATE_RUNNING: TaskState
TASK_STATE_DONE: TaskState
TASK_STATE_FAILED: TaskState
TASK_STATE_CANCELLED: TaskState
TASK_STATE_CALLING: TaskState
TASK_STATE_SKIPPED: TaskState
ATTEMPT_OUTCOME_UNSPECIFIED: AttemptOutcome
ATTEMPT_OUTCOME_RUNNING: AttemptOutcome
ATTEMPT_OUTCOME_ACCEPTED: AttemptOutcome
ATTEMPT_OUTCOME_FAILED: AttemptOutcome
ATTEMPT_OUTCOME_LOST: AttemptOutcome
ATTEMPT_OUTCOME_UNUSED: AttemptOutcome
ATTEMPT_OUTCOME_HANDED_BACK: AttemptOutcome
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_CONTENT_FILTER: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason

class Message(_message.Message):
    __slots__ = ("role", "text", "parts")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    role: Role
    text: str
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., text: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "image", "tool_call", "tool_result", "file")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: Image
    tool_call: ToolCall
    tool_result: ToolResult
    file: File
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[Image, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ..., file: _Optional[_Union[File, _Mapping]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ..., strict: bool = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "name")
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoiceMode
    name: str
    def __init__(self, mode: _Optional[_Union[ToolChoiceMode, str]] = ..., name: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("call_id", "output", "images", "is_error", "files")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    output: str
    images: _containers.RepeatedCompositeFieldContainer[Image]
    is_error: bool
    files: _containers.RepeatedCompositeFieldContainer[File]
    def __init__(self, call_id: _Optional[str] = ..., output: _Optional[str] = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., is_error: bool = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("url", "data")
    URL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    url: str
    data: ImageData
    def __init__(self, url: _Optional[str] = ..., data: _Optional[_Union[ImageData, _Mapping]] = ...) -> None: ...

class ImageData(_message.Message):
    __slots__ = ("media_type", "data")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("name", "url", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    data: FileData
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., data: _Optional[_Union[FileData, _Mapping]] = ...) -> None: ...

class FileData(_message.Message):
    __slots__ = ("media_type", "data")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class ResponseFormat(_message.Message):
    __slots__ = ("json_object", "json_schema")
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    json_object: JsonObject
    json_schema: JsonSchema
    def __init__(self, json_object: _Optional[_Union[JsonObject, _Mapping]] = ..., json_schema: _Optional[_Union[JsonSchema, _Mapping]] = ...) -> None: ...

class JsonObject(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JsonSchema(_message.Message):
    __slots__ = ("name", "schema", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    schema: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., schema: _Optional[str] = ..., strict: bool = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("steps_max", "rounds_max", "attempts_max", "deadline_ms", "cost_max_nano_usd", "output_bytes_max", "workers_allowed", "fallback", "broken_answer", "failed_step", "step_cache", "tools", "turns_max", "suspended_ms_max", "show_steps")
    STEPS_MAX_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_MAX_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COST_MAX_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WORKERS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    BROKEN_ANSWER_FIELD_NUMBER: _ClassVar[int]
    FAILED_STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_CACHE_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TURNS_MAX_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    SHOW_STEPS_FIELD_NUMBER: _ClassVar[int]
    steps_max: int
    rounds_max: int
    attempts_max: int
    deadline_ms: int
    cost_max_nano_usd: int
    output_bytes_max: int
    workers_allowed: _containers.RepeatedScalarFieldContainer[str]
    fallback: Fallback
    broken_answer: BrokenAnswer
    failed_step: FailedStep
    step_cache: StepCaching
    tools: StepTools
    turns_max: int
    suspended_ms_max: int
    show_steps: bool
    def __init__(self, steps_max: _Optional[int] = ..., rounds_max: _Optional[int] = ..., attempts_max: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., cost_max_nano_usd: _Optional[int] = ..., output_bytes_max: _Optional[int] = ..., workers_allowed: _Optional[_Iterable[str]] = ..., fallback: _Optional[_Union[Fallback, str]] = ..., broken_answer: _Optional[_Union[BrokenAnswer, str]] = ..., failed_step: _Optional[_Union[FailedStep, str]] = ..., step_cache: _Optional[_Union[StepCaching, str]] = ..., tools: _Optional[_Union[StepTools, str]] = ..., turns_max: _Optional[int] = ..., suspended_ms_max: _Optional[int] = ..., show_steps: bool = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cache_write_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cache_write_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("usage", "cost_nano_usd")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    usage: Usage
    cost_nano_usd: int
    def __init__(self, usage: _Optional[_Union[Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("number", "executor", "start_time", "end_time", "outcome", "error", "usage", "cost_nano_usd", "first_token_ms", "worker", "saved")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    number: int
    executor: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    outcome: AttemptOutcome
    error: str
    usage: Usage
    cost_nano_usd: int
    first_token_ms: int
    worker: str
    saved: Saved
    def __init__(self, number: _Optional[int] = ..., executor: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[_Union[AttemptOutcome, str]] = ..., error: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., first_token_ms: _Optional[int] = ..., worker: _Optional[str] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ...) -> None: ...

class PlannedStep(_message.Message):
    __slots__ = ("index", "worker", "subtask", "access", "sees_earlier_round", "unless_agree")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    SEES_EARLIER_ROUND_FIELD_NUMBER: _ClassVar[int]
    UNLESS_AGREE_FIELD_NUMBER: _ClassVar[int]
    index: int
    worker: str
    subtask: str
    access: _containers.RepeatedScalarFieldContainer[int]
    sees_earlier_round: bool
    unless_agree: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, index: _Optional[int] = ..., worker: _Optional[str] = ..., subtask: _Optional[str] = ..., access: _Optional[_Iterable[int]] = ..., sees_earlier_round: bool = ..., unless_agree: _Optional[_Iterable[int]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("planned", "state", "attempts", "output", "usage", "cost_nano_usd", "finish_reason", "fell_back_to", "tool_calls", "stop_sequence", "same_as")
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    FELL_BACK_TO_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAME_AS_FIELD_NUMBER: _ClassVar[int]
    planned: PlannedStep
    state: TaskState
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    output: str
    usage: Usage
    cost_nano_usd: int
    finish_reason: FinishReason
    fell_back_to: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    stop_sequence: str
    same_as: int
    def __init__(self, planned: _Optional[_Union[PlannedStep, _Mapping]] = ..., state: _Optional[_Union[TaskState, str]] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., output: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., fell_back_to: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., stop_sequence: _Optional[str] = ..., same_as: _Optional[int] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "planning_state", "planning_attempts", "reasoning", "fallback", "steps", "superseded_steps", "abandoned", "corrects")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PLANNING_STATE_FIELD_NUMBER: _ClassVar[int]
    PLANNING_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_STEPS_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    CORRECTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    planning_state: TaskState
    planning_attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    reasoning: str
    fallback: str
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    superseded_steps: int
    abandoned: Failure
    corrects: Failure
    def __init__(self, number: _Optional[int] = ..., planning_state: _Optional[_Union[TaskState, str]] = ..., planning_attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., reasoning: _Optional[str] = ..., fallback: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., superseded_steps: _Optional[int] = ..., abandoned: _Optional[_Union[Failure, _Mapping]] = ..., corrects: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class FailedStepInfo(_message.Message):
    __slots__ = ("round", "step", "worker", "reason")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    worker: str
    reason: str
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., worker: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "sequence", "state", "request_id", "model", "tier", "effort", "policy", "messages", "conductor", "pool", "rounds", "answer", "failure", "usage", "planning_usage", "cost_nano_usd", "accept_time", "deadline_time", "end_time", "answer_tokens_max", "wasted_usage", "wasted_cost_nano_usd", "sampling", "response_format", "stop", "tools", "tool_choice", "parallel_tool_calls", "tool_calls", "results_due_time", "reasoning", "saved", "fallbacks", "failed_steps", "degraded", "refused", "trace_id", "conversation_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    EFFORT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONDUCTOR_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PLANNING_USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TIME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    WASTED_USAGE_FIELD_NUMBER: _ClassVar[int]
    WASTED_COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_STEPS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    sequence: int
    state: RunState
    request_id: str
    model: str
    tier: Tier
    effort: Effort
    policy: Policy
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    conductor: str
    pool: str
    rounds: _containers.RepeatedCompositeFieldContainer[Round]
    answer: str
    failure: Failure
    usage: Usage
    planning_usage: Usage
    cost_nano_usd: int
    accept_time: _timestamp_pb2.Timestamp
    deadline_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    answer_tokens_max: int
    wasted_usage: Usage
    wasted_cost_nano_usd: int
    sampling: Sampling
    response_format: ResponseFormat
    stop: _containers.RepeatedScalarFieldContainer[str]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    results_due_time: _timestamp_pb2.Timestamp
    reasoning: str
    saved: Saved
    fallbacks: int
    failed_steps: _containers.RepeatedCompositeFieldContainer[FailedStepInfo]
    degraded: bool
    refused: bool
    trace_id: str
    conversation_id: str
    def __init__(self, run_id: _Optional[str] = ..., sequence: _Optional[int] = ..., state: _Optional[_Union[RunState, str]] = ..., request_id: _Optional[str] = ..., model: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., effort: _Optional[_Union[Effort, str]] = ..., policy: _Optional[_Union[Policy, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., conductor: _Optional[str] = ..., pool: _Optional[str] = ..., rounds: _Optional[_Iterable[_Union[Round, _Mapping]]] = ..., answer: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., planning_usage: _Optional[_Union[Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., accept_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., answer_tokens_max: _Optional[int] = ..., wasted_usage: _Optional[_Union[Usage, _Mapping]] = ..., wasted_cost_nano_usd: _Optional[int] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., response_format: _Optional[_Union[ResponseFormat, _Mapping]] = ..., stop: _Optional[_Iterable[str]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., parallel_tool_calls: bool = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., results_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reasoning: _Optional[str] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., fallbacks: _Optional[int] = ..., failed_steps: _Optional[_Iterable[_Union[FailedStepInfo, _Mapping]]] = ..., degraded: bool = ..., refused: bool = ..., trace_id: _Optional[str] = ..., conversation_id: _Optional[str] = ...) -> None: ...

class RunSummary(_message.Message):
    __slots__ = ("run_id", "state", "model", "question", "steps", "cost_nano_usd", "accept_time", "end_time", "wasted_cost_nano_usd", "saved_cost_nano_usd", "fallbacks", "failed_steps", "degraded", "refused")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    WASTED_COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    SAVED_COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_STEPS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    state: RunState
    model: str
    question: str
    steps: int
    cost_nano_usd: int
    accept_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    wasted_cost_nano_usd: int
    saved_cost_nano_usd: int
    fallbacks: int
    failed_steps: int
    degraded: bool
    refused: bool
    def __init__(self, run_id: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., model: _Optional[str] = ..., question: _Optional[str] = ..., steps: _Optional[int] = ..., cost_nano_usd: _Optional[int] = ..., accept_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wasted_cost_nano_usd: _Optional[int] = ..., saved_cost_nano_usd: _Optional[int] = ..., fallbacks: _Optional[int] = ..., failed_steps: _Optional[int] = ..., degraded: bool = ..., refused: bool = ...) -> None: ...
