"""The client for threads."""

import time
import uuid
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import grpc

from podium_client._answer import AnswerPart, Progress, ToolCalls
from podium_client._connection import CALL_DEADLINE_S, RetryPolicy, Target, Tls, metadata_of
from podium_client._errors import CallError, call_error
from podium_client._live import Place
from podium_client.v1 import podium_pb2, podium_pb2_grpc, run_pb2


class Client:
    """A client of a server, for any number of threads. Close it, or use it in a `with` statement.

    `deadline_s` limits each call, retries included; None: no limit. A watch has no deadline.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        deadline_s: float | None = CALL_DEADLINE_S,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        target = Target.of(url, tls)
        if target.credentials is None:
            self._channel = grpc.insecure_channel(target.address, target.options)
        else:
            self._channel = grpc.secure_channel(target.address, target.credentials, target.options)
        self._metadata = metadata_of(api_key)
        self._deadline_s = deadline_s
        self._retry = retry
        self.service: Any = podium_pb2_grpc.PodiumServiceStub(self._channel)  # type: ignore[no-untyped-call]
        """The generated client, for calls that this client does not have. It sends no API key and repeats nothing."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Calls and watches in flight fail."""
        self._channel.close()

    def create(self, request: podium_pb2.CreateRunRequest) -> podium_pb2.CreateRunResponse:
        """Creates a run and returns at once. A request without a `request_id` gets a new one, so a retry creates no second run."""
        if not request.request_id:
            copy = podium_pb2.CreateRunRequest()
            copy.CopyFrom(request)
            copy.request_id = str(uuid.uuid4())
            request = copy
        response: podium_pb2.CreateRunResponse = self._call("CreateRun", request)
        return response

    def get(self, run_id: str) -> run_pb2.Run:
        """The current state of a run."""
        response: podium_pb2.GetRunResponse = self._call("GetRun", podium_pb2.GetRunRequest(run_id=run_id))
        return response.run

    def list(self, filter: str = "") -> Iterator[run_pb2.RunSummary]:
        """The tenant's runs, the newest first. Pages are read as the iterator is.

        A filter is such as `state = FAILED AND tier = ultra`; see `ListRunsRequest.filter`.
        """
        token = ""
        while True:
            page: podium_pb2.ListRunsResponse = self._call("ListRuns", podium_pb2.ListRunsRequest(page_token=token, filter=filter))
            yield from page.runs
            token = page.next_page_token
            if not token:
                return

    def cancel(self, run_id: str) -> run_pb2.Run:
        """Cancels a run. It is no error if the run was cancelled before; it is one if the run ended in another way."""
        response: podium_pb2.CancelRunResponse = self._call("CancelRun", podium_pb2.CancelRunRequest(run_id=run_id))
        return response.run

    def submit_tool_results(self, run_id: str, results: Iterable[run_pb2.ToolResult]) -> run_pb2.Run:
        """Continues a suspended run with one result for each of its pending calls. The same results may be submitted again."""
        request = podium_pb2.SubmitToolResultsRequest(run_id=run_id, results=results)
        response: podium_pb2.SubmitToolResultsResponse = self._call("SubmitToolResults", request)
        return response.run

    def estimate(self, request: podium_pb2.CreateRunRequest) -> podium_pb2.EstimateRunResponse:
        """Estimates the cost of a run without creating it."""
        response: podium_pb2.EstimateRunResponse = self._call("EstimateRun", podium_pb2.EstimateRunRequest(run=request))
        return response

    def watch(self, run_id: str, after_sequence: int = 0) -> "Watch":
        """Watches a run from the event after `after_sequence` until it has ended. Resumes by itself after a lost connection."""
        return Watch(self, run_id, after_sequence)

    def ask(self, request: podium_pb2.CreateRunRequest) -> "Answer":
        """Creates a run and streams its answer."""
        return self.answer(self.create(request).run.run_id)

    def answer(self, run_id: str) -> "Answer":
        """Streams the answer of a run that exists, from its beginning."""
        return Answer(self, run_id)

    def _call(self, method: str, request: Any) -> Any:
        deadline = None if self._deadline_s is None else time.monotonic() + self._deadline_s
        failures = 0
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                return getattr(self.service, method)(request, timeout=left, metadata=self._metadata)
            except grpc.RpcError as cause:
                error = call_error(method, cause)
                failures += 1
                pause = self._retry.pause_s(failures, error)
                is_late = deadline is not None and time.monotonic() + pause >= deadline
                if not error.is_transient or failures >= self._retry.attempts_max or is_late:
                    raise error from cause
            time.sleep(pause)


class Watch:
    """The updates of a run, until it has ended.

    Events have consecutive sequence numbers: a lost connection causes neither a gap nor a repetition. Live text is never repeated.
    Live text that was written while the connection was lost may be missing; events that follow have it. The rest of a planning
    text or of a tool call that was interrupted is left out.
    """

    def __init__(self, client: Client, run_id: str, after_sequence: int) -> None:
        self._client = client
        self._place = Place(run_id, after_sequence, client._retry)
        self._updates = self._read()

    @property
    def sequence(self) -> int:
        """The sequence number of the last event that the caller has."""
        return self._place.sequence

    def __iter__(self) -> Iterator[podium_pb2.WatchRunResponse]:
        return self._updates

    def _read(self) -> Iterator[podium_pb2.WatchRunResponse]:
        client, place = self._client, self._place
        while True:
            call = client.service.WatchRun(place.request(), metadata=client._metadata)
            error: CallError
            try:
                for update in call:
                    if not place.follows(update):
                        break
                    if (unseen := place.unseen(update)) is not None:
                        yield unseen
                if place.is_over(client.get(place.run_id) if place.needs_run else None):
                    return
                error = CallError("WatchRun", grpc.StatusCode.UNAVAILABLE, "the watch ended before the run")
            except grpc.RpcError as cause:
                error = call_error("WatchRun", cause)
                error.__cause__ = cause
            finally:
                call.cancel()
            time.sleep(place.resume_pause_s(error))


class Answer:
    """The answer of a run, part by part. It survives lost connections."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self.run_id = run_id
        self._parts = self._read()

    def __iter__(self) -> Iterator[AnswerPart]:
        return self._parts

    def run(self) -> run_pb2.Run:
        """Reads to the end and returns the run. A run that calls tools on the way waits until someone submits their results."""
        for _ in self:
            pass
        return self._client.get(self.run_id)

    def _read(self) -> Iterator[AnswerPart]:
        progress = Progress()
        for update in self._client.watch(self.run_id):
            if progress.is_suspended(update):
                run = self._client.get(self.run_id)
                if run.state == run_pb2.RUN_STATE_SUSPENDED:
                    yield ToolCalls(self.run_id, tuple(run.tool_calls))
            else:
                yield from progress.write(update)
        yield from progress.end(self._client.get(self.run_id))
