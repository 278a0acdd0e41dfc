import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from podium_client.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunEvent(_message.Message):
    __slots__ = ("sequence", "time", "accepted", "attempt_started", "plan_ready", "answer_kept", "step_ready", "step_done", "attempt_failed", "attempt_lost", "task_failed", "result_unused", "round_opened", "succeeded", "failed", "cancelled", "steps_planned", "steps_superseded", "round_abandoned", "fell_back", "step_called", "suspended", "results_given", "step_skipped")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_STARTED_FIELD_NUMBER: _ClassVar[int]
    PLAN_READY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_KEPT_FIELD_NUMBER: _ClassVar[int]
    STEP_READY_FIELD_NUMBER: _ClassVar[int]
    STEP_DONE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FAILED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_LOST_FIELD_NUMBER: _ClassVar[int]
    TASK_FAILED_FIELD_NUMBER: _ClassVar[int]
    RESULT_UNUSED_FIELD_NUMBER: _ClassVar[int]
    ROUND_OPENED_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    STEPS_PLANNED_FIELD_NUMBER: _ClassVar[int]
    STEPS_SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    ROUND_ABANDONED_FIELD_NUMBER: _ClassVar[int]
    FELL_BACK_FIELD_NUMBER: _ClassVar[int]
    STEP_CALLED_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    STEP_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    accepted: Accepted
    attempt_started: AttemptStarted
    plan_ready: PlanReady
    answer_kept: AnswerKept
    step_ready: StepReady
    step_done: StepDone
    attempt_failed: AttemptFailed
    attempt_lost: AttemptLost
    task_failed: TaskFailed
    result_unused: ResultUnused
    round_opened: RoundOpened
    succeeded: Succeeded
    failed: Failed
    cancelled: Cancelled
    steps_planned: StepsPlanned
    steps_superseded: StepsSuperseded
    round_abandoned: RoundAbandoned
    fell_back: FellBack
    step_called: StepCalled
    suspended: Suspended
    results_given: ResultsGiven
    step_skipped: StepSkipped
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., attempt_started: _Optional[_Union[AttemptStarted, _Mapping]] = ..., plan_ready: _Optional[_Union[PlanReady, _Mapping]] = ..., answer_kept: _Optional[_Union[AnswerKept, _Mapping]] = ..., step_ready: _Optional[_Union[StepReady, _Mapping]] = ..., step_done: _Optional[_Union[StepDone, _Mapping]] = ..., attempt_failed: _Optional[_Union[AttemptFailed, _Mapping]] = ..., attempt_lost: _Optional[_Union[AttemptLost, _Mapping]] = ..., task_failed: _Optional[_Union[TaskFailed, _Mapping]] = ..., result_unused: _Optional[_Union[ResultUnused, _Mapping]] = ..., round_opened: _Optional[_Union[RoundOpened, _Mapping]] = ..., succeeded: _Optional[_Union[Succeeded, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., cancelled: _Optional[_Union[Cancelled, _Mapping]] = ..., steps_planned: _Optional[_Union[StepsPlanned, _Mapping]] = ..., steps_superseded: _Optional[_Union[StepsSuperseded, _Mapping]] = ..., round_abandoned: _Optional[_Union[RoundAbandoned, _Mapping]] = ..., fell_back: _Optional[_Union[FellBack, _Mapping]] = ..., step_called: _Optional[_Union[StepCalled, _Mapping]] = ..., suspended: _Optional[_Union[Suspended, _Mapping]] = ..., results_given: _Optional[_Union[ResultsGiven, _Mapping]] = ..., step_skipped: _Optional[_Union[StepSkipped, _Mapping]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("round", "step")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("model", "tier", "conductor", "pool", "deadline_time")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CONDUCTOR_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    model: str
    tier: _run_pb2.Tier
    conductor: str
    pool: str
    deadline_time: _timestamp_pb2.Timestamp
    def __init__(self, model: _Optional[str] = ..., tier: _Optional[_Union[_run_pb2.Tier, str]] = ..., conductor: _Optional[str] = ..., pool: _Optional[str] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AttemptStarted(_message.Message):
    __slots__ = ("task", "attempt", "worker")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    task: Task
    attempt: int
    worker: str
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ...) -> None: ...

class StepsPlanned(_message.Message):
    __slots__ = ("round", "steps")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    round: int
    steps: _containers.RepeatedCompositeFieldContainer[_run_pb2.PlannedStep]
    def __init__(self, round: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[_run_pb2.PlannedStep, _Mapping]]] = ...) -> None: ...

class StepsSuperseded(_message.Message):
    __slots__ = ("round", "steps")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    round: int
    steps: int
    def __init__(self, round: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class RoundAbandoned(_message.Message):
    __slots__ = ("round", "failure")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    round: int
    failure: _run_pb2.Failure
    def __init__(self, round: _Optional[int] = ..., failure: _Optional[_Union[_run_pb2.Failure, _Mapping]] = ...) -> None: ...

class PlanReady(_message.Message):
    __slots__ = ("round", "steps", "reasoning", "fallback", "usage", "cost_nano_usd")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    round: int
    steps: _containers.RepeatedCompositeFieldContainer[_run_pb2.PlannedStep]
    reasoning: str
    fallback: str
    usage: _run_pb2.Usage
    cost_nano_usd: int
    def __init__(self, round: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[_run_pb2.PlannedStep, _Mapping]]] = ..., reasoning: _Optional[str] = ..., fallback: _Optional[str] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ...) -> None: ...

class AnswerKept(_message.Message):
    __slots__ = ("round", "usage", "cost_nano_usd")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    round: int
    usage: _run_pb2.Usage
    cost_nano_usd: int
    def __init__(self, round: _Optional[int] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ...) -> None: ...

class StepReady(_message.Message):
    __slots__ = ("round", "step")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class StepSkipped(_message.Message):
    __slots__ = ("round", "step", "same_as")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAME_AS_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    same_as: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., same_as: _Optional[int] = ...) -> None: ...

class StepDone(_message.Message):
    __slots__ = ("round", "step", "attempt", "output", "usage", "cost_nano_usd", "first_token_ms", "finish_reason", "saved", "tool_calls", "reasoning", "stop_sequence")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    attempt: int
    output: str
    usage: _run_pb2.Usage
    cost_nano_usd: int
    first_token_ms: int
    finish_reason: _run_pb2.FinishReason
    saved: _run_pb2.Saved
    tool_calls: _containers.RepeatedCompositeFieldContainer[_run_pb2.ToolCall]
    reasoning: str
    stop_sequence: str
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., output: _Optional[str] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., first_token_ms: _Optional[int] = ..., finish_reason: _Optional[_Union[_run_pb2.FinishReason, str]] = ..., saved: _Optional[_Union[_run_pb2.Saved, _Mapping]] = ..., tool_calls: _Optional[_Iterable[_Union[_run_pb2.ToolCall, _Mapping]]] = ..., reasoning: _Optional[str] = ..., stop_sequence: _Optional[str] = ...) -> None: ...

class StepCalled(_message.Message):
    __slots__ = ("round", "step", "attempt", "text", "tool_calls", "usage", "cost_nano_usd", "first_token_ms", "reasoning")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    attempt: int
    text: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_run_pb2.ToolCall]
    usage: _run_pb2.Usage
    cost_nano_usd: int
    first_token_ms: int
    reasoning: str
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., text: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_run_pb2.ToolCall, _Mapping]]] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., first_token_ms: _Optional[int] = ..., reasoning: _Optional[str] = ...) -> None: ...

class Suspended(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResultsGiven(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_run_pb2.Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[_run_pb2.Message, _Mapping]]] = ...) -> None: ...

class AttemptFailed(_message.Message):
    __slots__ = ("task", "attempt", "error", "retry_time", "usage", "cost_nano_usd", "handed_back", "fallback")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIME_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    HANDED_BACK_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    attempt: int
    error: str
    retry_time: _timestamp_pb2.Timestamp
    usage: _run_pb2.Usage
    cost_nano_usd: int
    handed_back: bool
    fallback: str
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., attempt: _Optional[int] = ..., error: _Optional[str] = ..., retry_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ..., handed_back: bool = ..., fallback: _Optional[str] = ...) -> None: ...

class FellBack(_message.Message):
    __slots__ = ("round", "step", "worker", "error", "attempt")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    worker: str
    error: str
    attempt: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., worker: _Optional[str] = ..., error: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class AttemptLost(_message.Message):
    __slots__ = ("task", "attempt")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    task: Task
    attempt: int
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class TaskFailed(_message.Message):
    __slots__ = ("task", "error", "usage", "cost_nano_usd")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    task: Task
    error: str
    usage: _run_pb2.Usage
    cost_nano_usd: int
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., error: _Optional[str] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ...) -> None: ...

class ResultUnused(_message.Message):
    __slots__ = ("task", "attempt", "usage", "cost_nano_usd")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    COST_NANO_USD_FIELD_NUMBER: _ClassVar[int]
    task: Task
    attempt: int
    usage: _run_pb2.Usage
    cost_nano_usd: int
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., attempt: _Optional[int] = ..., usage: _Optional[_Union[_run_pb2.Usage, _Mapping]] = ..., cost_nano_usd: _Optional[int] = ...) -> None: ...

class RoundOpened(_message.Message):
    __slots__ = ("round", "failed")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    round: int
    failed: _run_pb2.Failure
    def __init__(self, round: _Optional[int] = ..., failed: _Optional[_Union[_run_pb2.Failure, _Mapping]] = ...) -> None: ...

class Succeeded(_message.Message):
    __slots__ = ("round", "step")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("failure",)
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    failure: _run_pb2.Failure
    def __init__(self, failure: _Optional[_Union[_run_pb2.Failure, _Mapping]] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanningText(_message.Message):
    __slots__ = ("round", "text")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    round: int
    text: str
    def __init__(self, round: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class StepText(_message.Message):
    __slots__ = ("round", "step", "attempt", "offset", "text", "is_answer")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    attempt: int
    offset: int
    text: str
    is_answer: bool
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ..., is_answer: bool = ...) -> None: ...

class StepReasoning(_message.Message):
    __slots__ = ("round", "step", "attempt", "offset", "text")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    attempt: int
    offset: int
    text: str
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class StepToolCall(_message.Message):
    __slots__ = ("round", "step", "attempt", "index", "id", "name", "arguments", "is_answer")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    IS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    attempt: int
    index: int
    id: str
    name: str
    arguments: str
    is_answer: bool
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ..., is_answer: bool = ...) -> None: ...

class StepRestarted(_message.Message):
    __slots__ = ("round", "step")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    round: int
    step: int
    def __init__(self, round: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...
