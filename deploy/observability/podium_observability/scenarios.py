"""The faults that provoke the alerts, in four clusters of real processes."""

import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from podium_observability.cluster import Cluster, Step
from podium_observability.metrics import ROOT
from podium_observability.provoke import Scenario, Stage

QUESTION = "What is 17 times 23, in words?"
ONE_OF_EACH = ["--gateways", "1", "--planners", "1", "--executors", "1"]


def asked(workers: tuple[str, ...] = (), model: str = "podium-mini", **policy: object) -> dict[str, object]:
    """A request that only these workers may answer."""
    allowed = {"workers_allowed": list(workers)} if workers else {}
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "podium": {**allowed, **policy}}


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def frozen(cluster: Cluster, pids: list[int], begin: int, end: int) -> list[Step]:
    return [
        Step(begin, lambda: cluster.signal(pids, signal.SIGSTOP)),
        Step(end, lambda: cluster.signal(pids, signal.SIGCONT)),
    ]


def pool(workers: dict[str, str], usd: dict[str, float] | None = None, calls: dict[str, int] | None = None) -> str:
    """A pool of simulated workers, by name and model, each of a vendor of its own. They have no fallbacks."""
    text = 'schema = 1\nname = "provoked"\nversion = "1"\n'
    for worker, model in workers.items():
        price = (usd or {}).get(worker, 0.1)
        text += f"""
[[vendors]]
id = "{worker}-vendor"
api = "openai-chat"
base_url = "http://127.0.0.1:9/v1"

[[workers]]
id = "{worker}"
vendor = "{worker}-vendor"
model = "{model}"
description = "A simulated worker."
context_tokens = 32768
output_tokens_max = 1024
usd_per_million_tokens = {{ input = {price}, output = {price} }}
limits = {{ in_flight_max = {(calls or {}).get(worker, 32)}, call_ms_max = 60000 }}
fallbacks = []
"""
    return text


def start(stage: Stage, text: str, conductor: str, settings: dict[str, str]) -> Cluster:
    path = stage.work / "pool.toml"
    path.write_text(text)
    return stage.start([*ONE_OF_EACH, "--conductor", conductor, "--pool", str(path)], settings)


# Servers that are frozen, processes that are killed, a wrong clock.


def servers(stage: Stage) -> list[Step]:
    cluster = stage.start([*ONE_OF_EACH, "--conductor", "direct"])
    redis = free_address()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", redis.split(":")[1], "--save", "", "--dir", str(stage.work)]
    own = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stage.at_end.append(own.kill)
    time.sleep(1)
    holding = free_address()
    cluster.add("podium-executor", {"redis": f"redis://{redis}", "redis_away": "hold", "listen": holding}, holding)
    unlucky = free_address()
    restarting = cluster.add("podium-executor", {"listen": unlucky}, unlucky)
    wrong = free_address()
    time.sleep(5)
    stage.clients.ask(4, cluster.gateway, lambda: asked(model="podium-ultra"), pause=0.5)

    def restart() -> None:
        cluster.kill(restarting)
        cluster.start(restarting)

    def begin_wrong_clock() -> None:
        process = cluster.add("podium-executor", {"listen": wrong}, wrong, clock_off_seconds=-8)
        stage.at_end.append(lambda: cluster.kill(process))

    def kill_wrong_clock() -> None:
        cluster.kill(cluster.processes[-1])

    return [
        Step(27, own.kill),
        Step(30, begin_wrong_clock),
        *frozen(cluster, cluster.server("redis-server"), 54, 78),
        *frozen(cluster, cluster.server("nats-server"), 84, 108),
        *frozen(cluster, cluster.server("postgres"), 117, 171),
        Step(180, kill_wrong_clock),
        *(Step(at, restart) for at in (186, 198, 210, 222)),
    ]


SERVERS = Scenario(
    "servers",
    "Redis, NATS and Postgres are frozen in turn. The Redis server of one executor is killed, one executor has a wrong clock until it is "
    "killed, and one is killed and started four times.",
    255,
    servers,
    (
        "PodiumClockSkew",
        "PodiumLimiterHolds",
        "PodiumNatsUnreachable",
        "PodiumNoGatewayReady",
        "PodiumNoSweep",
        "PodiumPostgresUnreachable",
        "PodiumProcessCutOff",
        "PodiumProcessDown",
        "PodiumProcessRestarting",
        "PodiumRedisUnreachable",
    ),
    quiet=24,
)


# Vendors that fail, refuse, break off, lie about their usage; a conductor that writes no plans; an empty budget; runs of a newer version.

VENDORS_POOL = {
    "breaks": "sim-arithmetic",
    "flaky": "sim-words",
    "picky": "sim-lists",
    "cuts": "sim-units",
    "premium": "sim-generalist",
    "honest": "sim-facts",
    "late": "sim-dates",
    "planner": "sim-conductor",
    "liar": "recorded/liar",
}
# As a newer version of Podium: one more event, in a format that this version does not know.
NEWER = """
    CREATE TEMPORARY TABLE changed AS SELECT DISTINCT run_id FROM tasks WHERE state = 'running' AND lane LIKE '%.late-vendor';
    UPDATE run_states SET version = version + 1 WHERE run_id IN (SELECT run_id FROM changed);
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
        SELECT run_id, version, version, 'newer', 99, '[]' FROM run_states WHERE run_id IN (SELECT run_id FROM changed)
"""


def psql(cluster: Cluster, statements: str) -> None:
    subprocess.run(["psql", "--quiet", "--no-psqlrc", "--output", "/dev/null", "--dbname", cluster.database, "--command", statements], check=True)


def serve_liar(stage: Stage, cluster: Cluster) -> None:
    """Starts a vendor that reports ten million tokens for each answer, and writes its address into the cluster's pool file."""
    answers, address = stage.work / "answers.jsonl", free_address()
    answers.write_text(f'{{"model": "liar", "question": "{QUESTION}", "answer": "391", "completion_tokens": 10000000}}\n')
    command = [str(cluster.binaries / "vendor-sim"), "--listen", address, "--recorded", str(answers)]
    liar = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stage.at_end.append(liar.kill)
    path = Path(cluster.setting("podium-gateway", "pool"))
    blocks = re.split(r"(?m)^(?=\[\[)", path.read_text())
    changed = [block.replace(cluster.vendor, f"http://{address}") if 'id = "liar-vendor"' in block else block for block in blocks]
    path.write_text("".join(changed))


def vendors(stage: Stage) -> list[Step]:
    prices = {"cuts": 10_000.0, "premium": 10_000.0}
    settings = {"conductor_next": "worker:planner", "conductor_next_share": "0.5"}
    cluster = start(stage, pool(VENDORS_POOL, prices), "direct", settings)
    serve_liar(stage, cluster)
    key = cluster.key("acme")
    cluster.podium("budget", "set", "--tenant", "acme", "--usd", "0.000001", "--period", "day")
    time.sleep(12)
    clients, gateway = stage.clients, cluster.gateway
    clients.ask(1, gateway, lambda: asked(("honest",)))
    clients.ask(1, gateway, lambda: asked(("premium",)), pause=20)

    def fail() -> None:
        for model, kind, probability in (
            ("sim-arithmetic", {"kind": "server_error"}, 1.0),
            ("sim-words", {"kind": "server_error"}, 0.5),
            ("sim-lists", {"kind": "status", "status": 422}, 1.0),
            ("sim-units", {"kind": "cut_stream", "after_chunks": 3}, 0.85),
            ("sim-conductor", {"kind": "garbage"}, 1.0),
        ):
            cluster.behave(model, [{"fault": kind, "probability": probability}])
        cluster.behave("sim-dates", [], first_token_ms=50_000)
        short = {"attempts_max": 2, "fallback": "none"}
        clients.ask(2, gateway, lambda: asked(("breaks",), deadline_ms=10_000, **short))
        clients.ask(3, gateway, lambda: asked(("flaky",), deadline_ms=20_000, **short))
        clients.ask(2, gateway, lambda: asked(("picky",), **short))
        clients.ask(4, gateway, lambda: asked(("cuts",), **short))
        clients.ask(2, gateway, lambda: asked(("honest",), model="podium-ultra"))
        clients.ask(2, gateway, lambda: asked(("premium",)), pause=2)
        clients.ask(1, gateway, lambda: asked(("liar",)), pause=2)
        clients.ask(1, gateway, lambda: asked(("honest",)), key, pause=0.5)
        clients.ask(4, gateway, lambda: asked(("late",), deadline_ms=20_000, **short))

    # The first minute is yesterday's; the faults begin today.
    return [Step(63, fail), Step(78, lambda: psql(cluster, f"BEGIN; {NEWER}; COMMIT"))]


VENDORS = Scenario(
    "vendors",
    "One vendor fails each call, one fails half of them, one refuses each, one breaks answers off, and one reports an impossible usage. The "
    "conductor of half of the runs writes no plans. A tenant asks although its budget is spent. Running runs get an event of a newer version. "
    "An expensive worker is asked more often. A day before, all vendors worked.",
    258,
    vendors,
    (
        "PodiumBreakerOpen",
        "PodiumBudgetsExhausted",
        "PodiumPlanningFails",
        "PodiumRunsFailing",
        "PodiumRunsUnreadable",
        "PodiumSpendingUnusual",
        "PodiumSpendingWasted",
        "PodiumUsageMisreported",
        "PodiumVendorFailing",
        "PodiumVendorRefusesCalls",
    ),
    quiet=57,
    next_day=60,
)


# More work than a worker's limit lets through; no planner; locks in Postgres.

QUEUE_POOL = {"slow": "sim-arithmetic", "stuck": "sim-dates", "quick": "sim-facts"}
LOCK = "BEGIN; LOCK TABLE run_events IN EXCLUSIVE MODE; SELECT pg_sleep(9); COMMIT"
LOCKED = range(222, 332, 11)


def queue(stage: Stage) -> list[Step]:
    settings = {"lane_messages_max": "4", "plan_at_once": "false"}
    cluster = start(stage, pool(QUEUE_POOL, calls={"slow": 1}), "direct", settings)
    cluster.behave("sim-arithmetic", [], first_token_ms=8_000)
    cluster.behave("sim-dates", [], first_token_ms=50_000)
    clients, gateway = stage.clients, cluster.gateway
    clients.ask(2, gateway, lambda: asked(("quick",)))
    waiting = {"deadline_ms": 1_500_000, "fallback": "none"}
    return [
        Step(27, lambda: clients.ask(100, gateway, lambda: asked(("slow",), "podium-ultra", **waiting), once=True)),
        *frozen(cluster, cluster.pids_of("podium-planner"), 90, 162),
        Step(210, lambda: clients.ask(16, gateway, lambda: asked(("stuck",), deadline_ms=2_000))),
        *(Step(at, lambda: psql(cluster, LOCK)) for at in LOCKED),
    ]


QUEUE = Scenario(
    "queue",
    "A hundred runs need a worker that answers one call in eight seconds. The only planner is frozen, and later a transaction locks the "
    "table of events again and again.",
    684,
    queue,
    (
        "PodiumLaneBacklog",
        "PodiumLaneNotServed",
        "PodiumPostgresSlow",
        "PodiumStepsWaitLong",
        "PodiumSweepLate",
        "PodiumTaskWaitsLong",
    ),
    quiet=24,
)


# More plans than the planner's model can write.


def model(stage: Stage) -> list[Step]:
    nano = f"llama:{ROOT / 'models' / 'nano'}"
    settings = {"plan_sequences": "1", "plan_slots": "64"}
    cluster = stage.start([*ONE_OF_EACH, "--conductor", nano], settings)
    clients, gateway = stage.clients, cluster.gateway
    clients.ask(1, gateway, lambda: asked(model="podium-ultra"), pause=2)
    return [Step(27, lambda: clients.ask(60, gateway, lambda: asked(model="podium-ultra"), pause=0.1))]


MODEL = Scenario("model", "Sixty clients ask a planner whose model writes one plan at a time.", 99, model, ("PodiumPlansWait",), quiet=24)

ALL = (SERVERS, VENDORS, QUEUE, MODEL)
# Alerts that no scenario provokes, with the reason.
NOT_PROVOKED: dict[str, str] = {}
