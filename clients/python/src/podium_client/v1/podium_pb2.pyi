import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from podium_client.v1 import event_pb2 as _event_pb2
from podium_client.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateRunRequest(_message.Message):
    __slots__ = ("request_id", "model", "messages", "effort", "policy", "answer_tokens_max", "sampling", "response_format", "stop", "tools", "tool_choice", "parallel_tool_calls", "show_reasoning", "conversation_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    EFFORT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    SHOW_REASONING_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    messages: _containers.RepeatedCompositeFieldContainer[_run_pb2.Message]
    effort: _run_pb2.Effort
    policy: _run_pb2.Policy
    answer_tokens_max: int
    sampling: _run_pb2.Sampling
    response_format: _run_pb2.ResponseFormat
    stop: _containers.RepeatedScalarFieldContainer[str]
    tools: _containers.RepeatedCompositeFieldContainer[_run_pb2.Tool]
    tool_choice: _run_pb2.ToolChoice
    parallel_tool_calls: bool
    show_reasoning: bool
    conversation_id: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_run_pb2.Message, _Mapping]]] = ..., effort: _Optional[_Union[_run_pb2.Effort, str]] = ..., policy: _Optional[_Union[_run_pb2.Policy, _Mapping]] = ..., answer_tokens_max: _Optional[int] = ..., sampling: _Optional[_Union[_run_pb2.Sampling, _Mapping]] = ..., response_format: _Optional[_Union[_run_pb2.ResponseFormat, _Mapping]] = ..., stop: _Optional[_Iterable[str]] = ..., tools: _Optional[_Iterable[_Union[_run_pb2.Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[_run_pb2.ToolChoice, _Mapping]] = ..., parallel_tool_calls: bool = ..., show_reasoning: bool = ..., conversation_id: _Optional[str] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ("run", "existing")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    existing: bool
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., existing: bool = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "after_sequence")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_sequence: int
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("event", "planning_text", "step_text", "step_restarted", "heartbeat", "step_tool_call", "step_reasoning")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PLANNING_TEXT_FIELD_NUMBER: _ClassVar[int]
    STEP_TEXT_FIELD_NUMBER: _ClassVar[int]
    STEP_RESTARTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STEP_TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    STEP_REASONING_FIELD_NUMBER: _ClassVar[int]
    event: _event_pb2.RunEvent
    planning_text: _event_pb2.PlanningText
    step_text: _event_pb2.StepText
    step_restarted: _event_pb2.StepRestarted
    heartbeat: _event_pb2.Heartbeat
    step_tool_call: _event_pb2.StepToolCall
    step_reasoning: _event_pb2.StepReasoning
    def __init__(self, event: _Optional[_Union[_event_pb2.RunEvent, _Mapping]] = ..., planning_text: _Optional[_Union[_event_pb2.PlanningText, _Mapping]] = ..., step_text: _Optional[_Union[_event_pb2.StepText, _Mapping]] = ..., step_restarted: _Optional[_Union[_event_pb2.StepRestarted, _Mapping]] = ..., heartbeat: _Optional[_Union[_event_pb2.Heartbeat, _Mapping]] = ..., step_tool_call: _Optional[_Union[_event_pb2.StepToolCall, _Mapping]] = ..., step_reasoning: _Optional[_Union[_event_pb2.StepReasoning, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class SubmitToolResultsRequest(_message.Message):
    __slots__ = ("run_id", "results")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    results: _containers.RepeatedCompositeFieldContainer[_run_pb2.ToolResult]
    def __init__(self, run_id: _Optional[str] = ..., results: _Optional[_Iterable[_Union[_run_pb2.ToolResult, _Mapping]]] = ...) -> None: ...

class SubmitToolResultsResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.RunSummary]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.RunSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class EstimateRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: CreateRunRequest
    def __init__(self, run: _Optional[_Union[CreateRunRequest, _Mapping]] = ...) -> None: ...

class EstimateRunResponse(_message.Message):
    __slots__ = ("cost_max_nano_usd", "planning_cost_max_nano_usd", "cost_min_nano_usd", "steps", "typical")
    COST_MAX_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    PLANNING_COST_MAX_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    COST_MIN_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_FIELD_NUMBER: _ClassVar[int]
    cost_max_nano_usd: int
    planning_cost_max_nano_usd: int
    cost_min_nano_usd: int
    steps: _containers.RepeatedCompositeFieldContainer[EstimatedStep]
    typical: TypicalCost
    def __init__(self, cost_max_nano_usd: _Optional[int] = ..., planning_cost_max_nano_usd: _Optional[int] = ..., cost_min_nano_usd: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[EstimatedStep, _Mapping]]] = ..., typical: _Optional[_Union[TypicalCost, _Mapping]] = ...) -> None: ...

class TypicalCost(_message.Message):
    __slots__ = ("cost_nano_usd", "runs")
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    cost_nano_usd: int
    runs: int
    def __init__(self, cost_nano_usd: _Optional[int] = ..., runs: _Optional[int] = ...) -> None: ...

class EstimatedStep(_message.Message):
    __slots__ = ("worker", "cost_max_nano_usd")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    COST_MAX_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    worker: str
    cost_max_nano_usd: int
    def __init__(self, worker: _Optional[str] = ..., cost_max_nano_usd: _Optional[int] = ...) -> None: ...

class ListBudgetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBudgetsResponse(_message.Message):
    __slots__ = ("budgets",)
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    budgets: _containers.RepeatedCompositeFieldContainer[Budget]
    def __init__(self, budgets: _Optional[_Iterable[_Union[Budget, _Mapping]]] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("payer", "period", "period_start_time", "cap_nano_usd", "spent_nano_usd", "reserved_nano_usd")
    PAYER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    PERIOD_START_TIME_FIELD_NUMBER: _ClassVar[int]
    CAP_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    SPENT_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    RESERVED_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    payer: str
    period: str
    period_start_time: _timestamp_pb2.Timestamp
    cap_nano_usd: int
    spent_nano_usd: int
    reserved_nano_usd: int
    def __init__(self, payer: _Optional[str] = ..., period: _Optional[str] = ..., period_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cap_nano_usd: _Optional[int] = ..., spent_nano_usd: _Optional[int] = ..., reserved_nano_usd: _Optional[int] = ...) -> None: ...

class RateRunRequest(_message.Message):
    __slots__ = ("run_id", "score", "comment")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    score: float
    comment: str
    def __init__(self, run_id: _Optional[str] = ..., score: _Optional[float] = ..., comment: _Optional[str] = ...) -> None: ...

class RateRunResponse(_message.Message):
    __slots__ = ("rating",)
    RATING_FIELD_NUMBER: _ClassVar[int]
    rating: Rating
    def __init__(self, rating: _Optional[_Union[Rating, _Mapping]] = ...) -> None: ...

class Rating(_message.Message):
    __slots__ = ("score", "comment")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    score: float
    comment: str
    def __init__(self, score: _Optional[float] = ..., comment: _Optional[str] = ...) -> None: ...

class ListOutcomesRequest(_message.Message):
    __slots__ = ("from_time", "until_time", "page_size", "page_token")
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    from_time: _timestamp_pb2.Timestamp
    until_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, from_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListOutcomesResponse(_message.Message):
    __slots__ = ("outcomes", "next_page_token")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    next_page_token: str
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("run_id", "question", "worker", "rating", "rate_time", "cost_nano_usd", "latency_ms")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RATING_FIELD_NUMBER: _ClassVar[int]
    RATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    question: str
    worker: str
    rating: Rating
    rate_time: _timestamp_pb2.Timestamp
    cost_nano_usd: int
    latency_ms: int
    def __init__(self, run_id: _Optional[str] = ..., question: _Optional[str] = ..., worker: _Optional[str] = ..., rating: _Optional[_Union[Rating, _Mapping]] = ..., rate_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., latency_ms: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "tier", "pin")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    tier: _run_pb2.Tier
    pin: str
    def __init__(self, name: _Optional[str] = ..., tier: _Optional[_Union[_run_pb2.Tier, str]] = ..., pin: _Optional[str] = ...) -> None: ...

class CreateConversationRequest(_message.Message):
    __slots__ = ("messages", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_run_pb2.Message]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, messages: _Optional[_Iterable[_Union[_run_pb2.Message, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: Conversation
    def __init__(self, conversation: _Optional[_Union[Conversation, _Mapping]] = ...) -> None: ...

class GetConversationRequest(_message.Message):
    __slots__ = ("conversation_id",)
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    def __init__(self, conversation_id: _Optional[str] = ...) -> None: ...

class GetConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: Conversation
    def __init__(self, conversation: _Optional[_Union[Conversation, _Mapping]] = ...) -> None: ...

class ListConversationItemsRequest(_message.Message):
    __slots__ = ("conversation_id", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListConversationItemsResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ConversationItem]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[ConversationItem, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteConversationRequest(_message.Message):
    __slots__ = ("conversation_id",)
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    def __init__(self, conversation_id: _Optional[str] = ...) -> None: ...

class DeleteConversationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Conversation(_message.Message):
    __slots__ = ("conversation_id", "create_time", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    create_time: _timestamp_pb2.Timestamp
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, conversation_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ConversationItem(_message.Message):
    __slots__ = ("item_id", "message")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    message: _run_pb2.Message
    def __init__(self, item_id: _Optional[str] = ..., message: _Optional[_Union[_run_pb2.Message, _Mapping]] = ...) -> None: ...
