"""The gRPC API, through the generated client of the package `podium-client`."""

import uuid

import grpc
import pytest
from conftest import ANSWER, PATIENCE_S, QUESTION, Generated, Podium
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status


def asking(generated: Generated, question: str = QUESTION, **fields: object) -> object:
    message = generated.run.Message(role=generated.run.ROLE_USER, text=question)
    return generated.podium.CreateRunRequest(messages=[message], **fields)


def create(stub: object, generated: Generated, **fields: object) -> object:
    return stub.CreateRun(asking(generated, **fields), timeout=PATIENCE_S)


def watch(stub: object, generated: Generated, run_id: str, after: int = 0) -> list:
    request = generated.podium.WatchRunRequest(run_id=run_id, after_sequence=after)
    return list(stub.WatchRun(request, timeout=PATIENCE_S))


def events(updates: list) -> list:
    return [update.event for update in updates if update.WhichOneof("update") == "event"]


def refusal(call: object, request: object) -> tuple[grpc.StatusCode, error_details_pb2.ErrorInfo, list[str]]:
    """The status, its reason, and the fields that it blames."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=PATIENCE_S)
    info, fields = error_details_pb2.ErrorInfo(), []
    for detail in rpc_status.from_call(caught.value).details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        bad = error_details_pb2.BadRequest()
        if detail.Is(bad.DESCRIPTOR):
            detail.Unpack(bad)
            fields = [violation.field for violation in bad.field_violations]
    assert info.domain == "podium"
    return caught.value.code(), info, fields


def test_a_run_is_created_and_watched_to_its_end(stub: object, generated: Generated) -> None:
    created = create(stub, generated)
    assert not created.existing
    updates = watch(stub, generated, created.run.run_id)
    stored = events(updates)
    assert [event.sequence for event in stored] == list(range(1, len(stored) + 1))
    kinds = [event.WhichOneof("kind") for event in stored]
    assert kinds[0] == "accepted" and kinds[-1] == "succeeded"
    assert kinds.count("step_done") == 3 and kinds.count("plan_ready") == 1
    plan = next(event.plan_ready for event in stored if event.WhichOneof("kind") == "plan_ready")
    assert [list(step.access) for step in plan.steps] == [[], [0], [1]]
    written = [u.step_text for u in updates if u.WhichOneof("update") == "step_text" and u.step_text.is_answer]
    assert ANSWER.startswith("".join(text.text for text in written))

    run = stub.GetRun(generated.podium.GetRunRequest(run_id=created.run.run_id)).run
    assert (run.state, run.answer, run.sequence) == (generated.run.RUN_STATE_SUCCEEDED, ANSWER, len(stored))
    assert [step.output for step in run.rounds[0].steps][:2] == ["440", "5280"]
    assert run.usage.prompt_tokens == sum(step.usage.prompt_tokens for step in run.rounds[0].steps)
    assert run.cost_nano_usd == sum(step.cost_nano_usd for step in run.rounds[0].steps) > 0


def test_a_watch_is_resumed_after_any_event_also_after_the_end(stub: object, generated: Generated) -> None:
    run_id = create(stub, generated).run.run_id
    every = events(watch(stub, generated, run_id))
    for after in range(len(every)):
        assert events(watch(stub, generated, run_id, after)) == every[after:]
    assert events(watch(stub, generated, run_id, len(every))) == []


def test_a_repeated_request_id_gives_the_same_run(stub: object, generated: Generated) -> None:
    request_id = str(uuid.uuid4())
    first = create(stub, generated, request_id=request_id)
    second = create(stub, generated, request_id=request_id)
    assert (first.existing, second.existing) == (False, True)
    assert first.run.run_id == second.run.run_id
    assert second.run.request_id == request_id


def test_a_run_continues_a_conversation(stub: object, generated: Generated) -> None:
    podium_pb = generated.podium
    stored = generated.run.Message(role=generated.run.ROLE_USER, text="Hello.")
    request = podium_pb.CreateConversationRequest(messages=[stored], metadata={"customer": "7"})
    conversation_id = stub.CreateConversation(request).conversation.conversation_id
    run_id = create(stub, generated, conversation_id=conversation_id).run.run_id
    watch(stub, generated, run_id)
    items = stub.ListConversationItems(podium_pb.ListConversationItemsRequest(conversation_id=conversation_id)).items
    assert [item.message.text for item in items][:2] == ["Hello.", QUESTION] and len(items) == 3
    run = stub.GetRun(podium_pb.GetRunRequest(run_id=run_id)).run
    assert [message.text for message in run.messages] == ["Hello.", QUESTION]
    stub.DeleteConversation(podium_pb.DeleteConversationRequest(conversation_id=conversation_id))
    code, info, _ = refusal(stub.GetConversation, podium_pb.GetConversationRequest(conversation_id=conversation_id))
    assert (code, info.reason) == (grpc.StatusCode.NOT_FOUND, "CONVERSATION_NOT_FOUND")


def test_tool_calls_are_watched_and_their_results_continue_the_loop(calling: Podium, generated: Generated) -> None:
    run_pb, podium_pb = generated.run, generated.podium
    parameters = '{"type": "object", "properties": {"city": {"type": "string"}}}'
    tool = run_pb.Tool(name="weather", parameters=parameters)
    user = run_pb.Message(role=run_pb.ROLE_USER, text="Ask weather.")
    with grpc.insecure_channel(calling.grpc) as channel:
        stub = generated.service.PodiumServiceStub(channel)

        def ended(messages: list) -> tuple[list, object]:
            request = podium_pb.CreateRunRequest(model="podium-mini", messages=messages, tools=[tool])
            run_id = stub.CreateRun(request, timeout=PATIENCE_S).run.run_id
            updates = watch(stub, generated, run_id)
            return updates, stub.GetRun(podium_pb.GetRunRequest(run_id=run_id)).run

        updates, run = ended([user])
        (call,) = run.tool_calls
        assert (call.name, call.arguments) == ("weather", '{"city":"Ask weather."}')
        pieces = [u.step_tool_call for u in updates if u.WhichOneof("update") == "step_tool_call"]
        assert [piece.id for piece in pieces][:1] in ([], [call.id])
        assert call.arguments.startswith("".join(piece.arguments for piece in pieces))
        done = next(event.step_done for event in events(updates) if event.WhichOneof("kind") == "step_done")
        assert list(done.tool_calls) == [call] == list(run.rounds[0].steps[0].tool_calls)
        asked = run_pb.Message(role=run_pb.ROLE_ASSISTANT, parts=[run_pb.Part(tool_call=call)])
        result = run_pb.ToolResult(call_id=call.id, output="cold")
        answered = run_pb.Message(role=run_pb.ROLE_USER, parts=[run_pb.Part(tool_result=result)])
        _, run = ended([user, asked, answered])
        assert run.answer == "The tools gave: cold"
        assert list(run.messages) == [user, asked, answered]

        unanswered = podium_pb.CreateRunRequest(messages=[user, asked, user], tools=[tool])
        code, _, fields = refusal(stub.CreateRun, unanswered)
        assert (code, fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["messages"])


def test_a_run_is_taken_back(stub: object, generated: Generated, podium: Podium) -> None:
    with podium.behaving("sim-dates", {"kind": "hang"}):
        run_id = create(stub, generated).run.run_id
        updates = stub.WatchRun(generated.podium.WatchRunRequest(run_id=run_id), timeout=PATIENCE_S)
        for update in updates:
            if update.event.WhichOneof("kind") == "attempt_started" and update.event.attempt_started.worker:
                break
        request = generated.podium.CancelRunRequest(run_id=run_id)
        for _ in range(2):
            run = stub.CancelRun(request, timeout=PATIENCE_S).run
            assert run.state == generated.run.RUN_STATE_CANCELLED
        rest = [update.event.WhichOneof("kind") for update in updates]
    assert "cancelled" in rest
    kinds = [event.WhichOneof("kind") for event in events(watch(stub, generated, run_id))]
    assert "cancelled" in kinds and "succeeded" not in kinds


def test_a_run_that_has_ended_cannot_be_taken_back(stub: object, generated: Generated) -> None:
    run_id = create(stub, generated).run.run_id
    watch(stub, generated, run_id)
    code, info, _ = refusal(stub.CancelRun, generated.podium.CancelRunRequest(run_id=run_id))
    assert (code, info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_ENDED")


def test_bad_input_is_refused_with_every_field_that_is_wrong(stub: object, generated: Generated) -> None:
    policy = generated.run.Policy(steps_max=99, workers_allowed=["not a name"])
    code, info, fields = refusal(stub.CreateRun, asking(generated, question=" ", policy=policy, effort=77))
    assert (code, info.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_VALUE")
    assert fields == ["messages", "effort", "policy.steps_max", "policy.workers_allowed"]
    code, info, fields = refusal(stub.GetRun, generated.podium.GetRunRequest(run_id="no"))
    assert (code, fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["run_id"])


def test_a_policy_that_leaves_no_worker_is_refused(stub: object, generated: Generated) -> None:
    policy = generated.run.Policy(workers_allowed=["nobody"])
    code, info, fields = refusal(stub.CreateRun, asking(generated, policy=policy))
    assert (code, info.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "NO_WORKER_ALLOWED")


def test_what_is_not_there_is_not_found(stub: object, generated: Generated) -> None:
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    for call, request in [
        (stub.GetRun, generated.podium.GetRunRequest(run_id=unknown)),
        (stub.CancelRun, generated.podium.CancelRunRequest(run_id=unknown)),
        (lambda r, timeout: list(stub.WatchRun(r, timeout=timeout)), generated.podium.WatchRunRequest(run_id=unknown)),
    ]:
        code, info, _ = refusal(call, request)
        assert (code, info.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
    code, info, _ = refusal(stub.CreateRun, asking(generated, model="gpt-5"))
    assert (code, info.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


def test_runs_are_listed_page_by_page_the_newest_first(stub: object, generated: Generated) -> None:
    ids = [create(stub, generated).run.run_id for _ in range(3)]
    listed, token = [], ""
    while len(listed) < 3:
        page = stub.ListRuns(generated.podium.ListRunsRequest(page_size=2, page_token=token))
        assert len(page.runs) == 2 and page.next_page_token
        listed += [run.run_id for run in page.runs]
        token = page.next_page_token
    assert listed[:3] == ids[::-1]
    assert page.runs[0].question == QUESTION


def test_the_service_is_healthy(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", "podium.v1.PodiumService", "liveness"]:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_describes_the_service(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "podium.v1.PodiumService" in database.get_services()
    file = database.FindFileContainingSymbol("podium.v1.PodiumService")
    assert [method.name for method in file.service[0].method] == [
        "CreateRun", "WatchRun", "GetRun", "CancelRun", "SubmitToolResults", "ListRuns", "EstimateRun", "ListBudgets",
        "RateRun", "ListOutcomes",
        "ListModels",
        "GetModel",
        "CreateConversation",
        "GetConversation",
        "ListConversationItems",
        "DeleteConversation",
    ]
