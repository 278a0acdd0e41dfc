"""The published Python client and its examples: with the real server, also while it is killed, and with a scripted one."""

import asyncio
import collections
import concurrent.futures
import contextlib
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from conftest import ANSWER, PATIENCE_S, QUESTION, ROOT, Podium, Process, serve
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from podium_client import AsyncClient, CallError, Client, Ended, Restarted, RetryPolicy, Text, Tls, question
from podium_client.v1 import event_pb2, podium_pb2, podium_pb2_grpc, run_pb2

EXAMPLES = ROOT / "clients/python/examples"
QUICK = RetryPolicy(backoff_initial_s=0.01, backoff_max_s=0.05)


def example(name: str, *arguments: str) -> str:
    """The output of an example."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def url(podium: Podium) -> str:
    return f"http://{podium.grpc}"


def test_the_example_streams_an_answer(podium: Podium) -> None:
    assert example("ask.py", url(podium), QUESTION) == f"{ANSWER}\n"


@pytest.mark.parametrize("model", ["podium-mini", "podium-ultra"])
def test_the_example_executes_tools(calling: Podium, model: str) -> None:
    output = example("tools.py", url(calling), model, "Ask weather.")
    assert output.startswith("weather({") and output.endswith("The tools gave: 4 degrees, rain\n")


def test_the_example_watches_from_any_event(podium: Podium) -> None:
    with Client(url(podium)) as client:
        run = client.ask(question(QUESTION)).run()
    lines = example("watch.py", url(podium), run.run_id).splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, run.sequence + 1))
    assert lines[-1].endswith(" succeeded")
    assert example("watch.py", url(podium), run.run_id, "4").splitlines() == lines[4:]


def test_an_answer_is_streamed_in_pieces(podium: Podium) -> None:
    with Client(url(podium)) as client:
        parts = list(client.ask(question(QUESTION)))
    texts = [part.text for part in parts if isinstance(part, Text)]
    assert "".join(texts) == ANSWER and len(texts) > 1
    assert isinstance(parts[-1], Ended) and parts[-1].run.answer == ANSWER


async def test_the_asyncio_client_has_the_same_calls(podium: Podium) -> None:
    async with AsyncClient(url(podium)) as client:
        answer = await client.ask(question(QUESTION))
        texts = [part.text async for part in answer if isinstance(part, Text)]
        assert "".join(texts) == ANSWER
        run = await client.get(answer.run_id)
        watch = client.watch(answer.run_id)
        events = [update.event.sequence async for update in watch if update.WhichOneof("update") == "event"]
        assert events == list(range(1, run.sequence + 1)) and watch.sequence == run.sequence
        assert answer.run_id in [listed.run_id async for listed in client.list()]
        with pytest.raises(CallError) as caught:
            await client.cancel(answer.run_id)
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_ENDED")


def test_an_error_names_the_fields(podium: Podium) -> None:
    with Client(url(podium)) as client, pytest.raises(CallError) as caught:
        client.create(question(" ", policy=run_pb2.Policy(steps_max=99)))
    error = caught.value
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_VALUE")
    assert [violation.field for violation in error.fields] == ["messages", "policy.steps_max"]
    assert isinstance(error.__cause__, grpc.RpcError)


def test_a_repeated_request_id_gives_the_same_run(podium: Podium) -> None:
    with Client(url(podium)) as client:
        request = question(QUESTION, request_id="client-test-1")
        first, second = client.create(request), client.create(request)
        assert (first.existing, second.existing) == (False, True)
        assert first.run.run_id == second.run.run_id
        # Without an id of the caller, each call creates a run.
        assert client.create(question(QUESTION)).run.run_id != client.create(question(QUESTION)).run.run_id


@pytest.fixture
def killable(tmp_path: pathlib.Path, vendor: str) -> Iterator[tuple[list[Process], Podium]]:
    """A server that a test kills and starts again, at the same address."""
    process, server = serve(tmp_path, vendor, "direct:sim-words")
    processes = [process]
    try:
        yield processes, server
    finally:
        processes[-1].stop()


def kill_and_start_again(processes: list[Process], server: Podium) -> None:
    old = processes[-1]
    old.process.kill()
    old.process.wait(PATIENCE_S)
    processes.append(Process(old.process.args, old.log.with_name("log-again")))
    processes[-1].wait_for_port(int(server.grpc.rsplit(":", 1)[1]))


def wait_for_call(server: Podium, calls: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(server.calls()) <= calls:
        assert time.monotonic() < deadline, "the worker is not called"
        time.sleep(0.02)


def test_a_watch_survives_a_killed_server(killable: tuple[list[Process], Podium]) -> None:
    processes, server = killable
    before = len(server.calls())
    with server.behaving("sim-words", {"kind": "hang"}, calls=1), Client(url(server), retry=QUICK) as client:
        answer = client.ask(question("What is 440 in words?"))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            events = pool.submit(lambda: [u.event.sequence for u in client.watch(answer.run_id) if u.HasField("event")])
            run = pool.submit(answer.run)
            wait_for_call(server, before)
            kill_and_start_again(processes, server)
            ended = run.result(PATIENCE_S)
            assert events.result(PATIENCE_S) == list(range(1, ended.sequence + 1))
    assert (ended.state, ended.answer) == (run_pb2.RUN_STATE_SUCCEEDED, "four hundred and forty")


async def test_an_asyncio_watch_survives_a_killed_server(killable: tuple[list[Process], Podium]) -> None:
    processes, server = killable
    before = len(server.calls())
    with server.behaving("sim-words", {"kind": "hang"}, calls=1):
        async with AsyncClient(url(server), retry=QUICK) as client:
            answer = await client.ask(question("What is 440 in words?"))

            async def events() -> list[int]:
                return [u.event.sequence async for u in client.watch(answer.run_id) if u.HasField("event")]

            watched = asyncio.ensure_future(events())
            await asyncio.to_thread(wait_for_call, server, before)
            await asyncio.to_thread(kill_and_start_again, processes, server)
            ended = await asyncio.wait_for(answer.run(), PATIENCE_S)
            assert await asyncio.wait_for(watched, PATIENCE_S) == list(range(1, ended.sequence + 1))
    assert ended.answer == "four hundred and forty"


class Scripted(podium_pb2_grpc.PodiumServiceServicer):
    """A server that does as a test says."""

    def __init__(self) -> None:
        self.failures: collections.deque = collections.deque()
        self.watches: collections.deque = collections.deque()
        self.request_ids: list[str] = []
        self.keys: list[str] = []
        self.watched_after: list[int] = []
        self.run = run_pb2.Run(run_id="run")
        self.silent = threading.Event()
        self.silent.set()

    def CreateRun(self, request: object, context: grpc.ServicerContext) -> podium_pb2.CreateRunResponse:
        self.request_ids.append(request.request_id)
        self.keys += [value for key, value in context.invocation_metadata() if key == "authorization"]
        self.silent.wait(PATIENCE_S)
        if self.failures:
            fail(context, *self.failures.popleft())
        return podium_pb2.CreateRunResponse(run=run_pb2.Run(run_id="run", request_id=request.request_id))

    def GetRun(self, request: object, context: grpc.ServicerContext) -> podium_pb2.GetRunResponse:
        return podium_pb2.GetRunResponse(run=self.run)

    def WatchRun(self, request: object, context: grpc.ServicerContext) -> Iterator[podium_pb2.WatchRunResponse]:
        self.watched_after.append(request.after_sequence)
        updates, end = self.watches.popleft()
        yield from updates
        if end:
            fail(context, end)


def fail(context: grpc.ServicerContext, code: grpc.StatusCode, retry_delay_s: float | None = None) -> None:
    if retry_delay_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(retry_delay_s * 1000))
        retry = error_details_pb2.RetryInfo(retry_delay=delay)
        detail = any_pb2.Any()
        detail.Pack(retry)
        status = status_pb2.Status(code=code.value[0], message="scripted", details=[detail])
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
    context.abort(code, "scripted")


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, str]]:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        server, servicer = grpc.server(pool), Scripted()
        podium_pb2_grpc.add_PodiumServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield servicer, f"http://127.0.0.1:{port}"
        finally:
            servicer.silent.set()
            server.stop(0).wait()


def event(sequence: int, **kind: object) -> podium_pb2.WatchRunResponse:
    return podium_pb2.WatchRunResponse(event=event_pb2.RunEvent(sequence=sequence, **kind))


def text(offset: int, written: str) -> podium_pb2.WatchRunResponse:
    live = event_pb2.StepText(attempt=1, offset=offset, text=written, is_answer=True)
    return podium_pb2.WatchRunResponse(step_text=live)


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def test_only_transient_errors_are_repeated_with_the_same_request_id(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    with Client(address, retry=QUICK, api_key="sk-1") as client:
        server.failures += [(UNAVAILABLE,), (grpc.StatusCode.ABORTED,)]
        client.create(question("Why?"))
        assert len(server.request_ids) == 3 and len(set(server.request_ids)) == 1 and server.request_ids[0]
        assert set(server.keys) == {"Bearer sk-1"}
        server.failures += [(grpc.StatusCode.RESOURCE_EXHAUSTED,)]
        with pytest.raises(CallError):
            client.create(question("Why?"))
        assert len(server.request_ids) == 4
        server.failures += [(UNAVAILABLE,)] * QUICK.attempts_max
        with pytest.raises(CallError):
            client.create(question("Why?"))
        assert len(server.request_ids) == 4 + QUICK.attempts_max


def test_a_limit_is_waited_for_if_it_passes_soon(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    with Client(address, retry=QUICK, deadline_s=None) as client:
        server.failures += [(grpc.StatusCode.RESOURCE_EXHAUSTED, 0.01)]
        client.create(question("Why?"))
        assert len(server.request_ids) == 2
        server.failures += [(grpc.StatusCode.RESOURCE_EXHAUSTED, 61)]
        with pytest.raises(CallError):
            client.create(question("Why?"))
        assert len(server.request_ids) == 3


def test_a_pause_that_the_server_asks_for_is_kept(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    with Client(address, retry=QUICK) as client:
        server.failures += [(UNAVAILABLE, 0.4)]
        begin = time.monotonic()
        client.create(question("Why?"))
        assert time.monotonic() - begin >= 0.4


def test_a_pause_that_is_longer_than_the_deadline_is_not_waited_for(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    server.failures += [(UNAVAILABLE, 3600)]
    with Client(address, retry=QUICK) as client, pytest.raises(CallError) as caught:
        client.create(question("Why?"))
    assert (caught.value.code, caught.value.retry_delay_s) == (UNAVAILABLE, 3600)


def test_a_deadline_ends_a_call_that_has_no_answer(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    server.silent.clear()
    with Client(address, deadline_s=0.2) as client, pytest.raises(CallError) as caught:
        client.create(question("Why?"))
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED and len(server.request_ids) == 1


def test_a_broken_watch_has_no_gap_and_no_repetition(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    server.watches += [
        ([event(1), text(0, "blue "), event(2)], UNAVAILABLE),
        # A server that repeats what the caller has.
        ([event(1), event(2), text(0, "blue "), text(0, "blue light"), event(3)], grpc.StatusCode.UNKNOWN),
        # A gap.
        ([event(5)], None),
        ([event(4), text(10, "!"), event(5, succeeded=event_pb2.Succeeded())], None),
    ]
    with Client(address, retry=QUICK) as client:
        watch = client.watch("run")
        updates = list(watch)
    assert [update.event.sequence for update in updates if update.HasField("event")] == [1, 2, 3, 4, 5]
    assert "".join(update.step_text.text for update in updates) == "blue light!"
    assert (server.watched_after, watch.sequence) == ([0, 2, 3, 3], 5)


def test_an_answer_is_complete_although_text_was_lost(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    server.run.state, server.run.sequence, server.run.answer = run_pb2.RUN_STATE_SUCCEEDED, 2, "blue light scatters"
    server.watches += [
        ([event(1), text(0, "blue ")], UNAVAILABLE),
        ([text(11, "scatters"), event(2, succeeded=event_pb2.Succeeded())], None),
    ]
    with Client(address, retry=QUICK) as client:
        parts = list(client.ask(question("Why is the sky blue?")))
    assert not any(isinstance(part, Restarted) for part in parts)
    assert "".join(part.text for part in parts if isinstance(part, Text)) == "blue light scatters"


def test_a_watch_gives_up_after_its_time(scripted: tuple[Scripted, str]) -> None:
    server, address = scripted
    server.watches += [([], UNAVAILABLE)] * 100
    retry = RetryPolicy(backoff_initial_s=0.01, backoff_max_s=0.01, resume_within_s=0.1)
    with Client(address, retry=retry) as client, pytest.raises(CallError) as caught:
        list(client.watch("run"))
    assert caught.value.code == UNAVAILABLE and len(server.watched_after) < 100


def test_a_private_authority_is_trusted_and_the_client_has_a_certificate(tmp_path: pathlib.Path) -> None:
    authority, own, caller = certificates(tmp_path)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        server = grpc.server(pool)
        podium_pb2_grpc.add_PodiumServiceServicer_to_server(Scripted(), server)
        credentials = grpc.ssl_server_credentials([(own[1], own[0])], authority, require_client_auth=True)
        address = f"https://localhost:{server.add_secure_port('localhost:0', credentials)}"
        server.start()
        with contextlib.closing(Client(address, tls=Tls(authority, *caller), retry=QUICK)) as client:
            assert client.get("run").run_id == "run"
        for refused in [Tls(authority), None]:
            with contextlib.closing(Client(address, tls=refused, retry=QUICK)) as client:
                with pytest.raises(CallError) as caught:
                    client.get("run")
                assert caught.value.code == UNAVAILABLE
        server.stop(0).wait()
    with pytest.raises(ValueError, match="must begin with https://"):
        Client("http://localhost:1", tls=Tls(authority))


def certificates(folder: pathlib.Path) -> tuple[bytes, tuple[bytes, bytes], tuple[bytes, bytes]]:
    """An authority's certificate, and certificate and key of a server and of a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=an authority of a test")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    for name in ["server", "caller"]:
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ["-CA", "root.pem", "-CAkey", "root.key", "-extfile", "names", "-CAcreateserial"]
        openssl("x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem")
    read = lambda name: (folder / name).read_bytes()  # noqa: E731
    return read("root.pem"), (read("server.pem"), read("server.key")), (read("caller.pem"), read("caller.key"))
