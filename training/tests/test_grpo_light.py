"""Settings, advantages, the dry run and the client of `podium rollout`. Needs no PyTorch."""

import json
import sys
from pathlib import Path

import pytest

from podium_training import curves, grpo_settings, plan, rollout_bench
from podium_training.grpo_dry_run import DryRunFailed, dry_run
from podium_training.grpo_settings import BadSettings, RolloutSettings, advantages, priced
from podium_training.rollouts import Rollout, Rollouts, RolloutsFailed

CONFIGS = Path(__file__).parents[1] / "configs"

# In place of `podium rollout`: three workers, of which the one at position 1 answers right.
# Outcomes of two completions with `hold` come in reverse order.
SERVER = r"""
import json, re, sys
def out(line):
    r = json.loads(line)
    found = re.search(r"model_id = \[(\d+)\]", r["completion"])
    is_plan = bool(found) and int(found.group(1)) < 3
    is_right = int(found.group(1)) == 1 if is_plan else None
    step = dict(worker="w" + found.group(1)) if is_plan else None
    return dict(id=r["id"], reward=(1.0 if is_right else 0.5) if is_plan else 0.0, is_plan=is_plan, is_right=is_right, answer="x",
                problem=None if is_plan else "no plan", steps=[step] if step else [], cost_nano_usd=7, grading_cost_nano_usd=1)
held = []
for line in sys.stdin:
    held.append(line)
    if len(held) == 2 or "hold" not in line:
        while held:
            print(json.dumps(out(held.pop())), flush=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> list[str]:
    path = tmp_path / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return [sys.executable, str(path)]


def config(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def rollout(identity: str, completion: str) -> Rollout:
    return Rollout(identity, "question", "answer", completion, seed=1)


def test_the_shipped_settings_are_valid() -> None:
    nano = grpo_settings.load(CONFIGS / "grpo-nano.toml")
    assert (nano.train.learning_rate, nano.train.questions, nano.train.rollouts) == (4e-4, 8, 8)
    assert nano.path(nano.model.start).name == "nano.gguf" and nano.path(nano.model.start).exists()
    assert nano.worker_ids() == [f"worker-{letter}" for letter in "abcdefghij"]
    assert set(nano.rollout.right_worker.values()) < set(nano.worker_ids())
    assert [grpo_settings.steps_max(nano.train, at) for at in (0, 79, 80, 119)] == [1, 1, 2, 3]
    bonuses = [grpo_settings.entropy_bonus(nano.train, at) for at in (0, nano.train.iterations - 1)]
    assert bonuses == pytest.approx([0.8, 0.05])
    qwen = grpo_settings.load(CONFIGS / "grpo-qwen2.5-7b.toml")
    assert (qwen.train.iterations, qwen.train.questions, qwen.train.rollouts, qwen.train.learning_rate) == (200, 4, 64, 1e-6)
    assert "{question}" in qwen.path(qwen.model.prompt).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model]\nkind='nano'\n", "model.start is missing"),
        ("[model]\nkind='llama'\nstart='x'\n", "model.kind is 'llama', it must be one of nano, transformers"),
        ("[model]\nkind='nano'\nstart='x'\n[train]\nrollouts=1\n", "train.rollouts is 1, it must be a number from 2"),
        ("[model]\nkind='nano'\nstart='x'\n[train]\nrolouts=8\n", "unknown key train.rolouts"),
        ("[model]\nkind='nano'\nstart='x'\n[training]\n", "unknown table [training]"),
        ("[model]\nkind='nano'\nstart='x'\n[train]\ncurriculum=[{iteration=5,steps_max=1}]\n", "must begin with iteration 0"),
        ("[model]\nkind='transformers'\nstart='x'\n", "needs model.prompt"),
        ("[model]\nkind='nano'\nstart='x'\n[rollout]\nprice_weight=0.5\n", "price_weight is 0.5, it must be a number from 0 to 0.49"),
        ("[model]\nkind='nano'\nstart='x'\n[rollout]\nprice_weight=0.3\n", "price_weight needs rollout.price_full_usd"),
        ("[model]\nkind='nano'\nstart='x'\n[rollout]\nslots=['a', 'b', 'a']\n", "rollout.slots names a worker twice"),
        ("[model\n", "config.toml"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said.replace("[", r"\[").replace(".", r"\.")):
        grpo_settings.load(config(tmp_path, text))


def test_the_positions_mean_the_workers_of_the_settings_or_the_pool(tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text("[[workers]]\nid = 'x'\n[[workers]]\nid = 'y'\n[[workers]]\nid = 'z'\n", encoding="utf-8")
    text = "[model]\nkind='nano'\nstart='x'\n[rollout]\npool='{}'\nworkers={}\n"
    assert grpo_settings.load(config(tmp_path, text.format("pool.toml", 2))).worker_ids() == ["x", "y"]
    demo = grpo_settings.load(config(tmp_path, text.format("demo", 7))).worker_ids()
    assert demo[:2] == ["sim-arithmetic", "sim-words"] and demo[6] == "sim-generalist"
    named = grpo_settings.load(config(tmp_path, text.format("pool.toml", 2) + "slots=['z', 'x', 'y']\n"))
    assert named.worker_ids() == ["z", "x", "y"] and named.positions() == 3
    with pytest.raises(BadSettings, match=r"rollout\.workers is 4, and the pool has 3 workers"):
        grpo_settings.load(config(tmp_path, text.format("pool.toml", 4))).worker_ids()
    with pytest.raises(BadSettings, match="cannot read the ids"):
        grpo_settings.load(config(tmp_path, text.format("none.toml", 1))).worker_ids()


def test_a_dry_run_gives_the_order_of_the_workers(tmp_path: Path, server) -> None:
    echo = server[1].replace("server.py", "echo.py")
    known = Path(server[1]).read_text(encoding="utf-8")
    checks = known.replace("    r = json.loads(line)", "    r = json.loads(line)\n    assert r['workers'] == ['z', 'x', 'y'], r")
    Path(echo).write_text(checks, encoding="utf-8")
    text = f"[model]\nkind='nano'\nstart='x'\n[rollout]\ncommand={json.dumps([server[0], echo])}\nslots=['z', 'x', 'y']\n"
    assert dry_run(grpo_settings.load(config(tmp_path, text)))["plans_tried"] == 12


def test_an_advantage_is_relative_to_the_same_question() -> None:
    gains = advantages([0.0, 0.5, 1.0, 0.5, 1.0, 1.0, None, 1.0], group=4)
    assert gains[0] == -gains[2] < 0 and gains[1] == gains[3] == 0
    assert gains[4:] == [0.0, 0.0, 0.0, 0.0], "equal rewards teach nothing, and a rollout without a reward is left out"
    assert advantages([None, 1.0, 0.5, 0.5], group=4)[0] == 0
    assert sum(advantages([None, 1.0, 0.5, 0.5], group=4)) == pytest.approx(0)


def test_small_differences_of_a_question_stay_small() -> None:
    rewards: list[float | None] = [0.99, 0.99, 0.98, 0.99]
    assert max(map(abs, advantages(rewards, group=4))) > 1.5
    assert max(map(abs, advantages(rewards, group=4, deviation_min=0.05))) < 0.2
    apart: list[float | None] = [1.0, 0.5, 0.5, 0.5]
    assert advantages(apart, group=4, deviation_min=0.05) == advantages(apart, group=4)


def test_a_price_lowers_the_reward_of_right_answers_only() -> None:
    rollout = RolloutSettings(price_weight=0.3, price_full_usd=1e-4)
    assert priced(1.0, True, 0.0, rollout) == 1.0
    assert priced(1.0, True, 5e-5, rollout) == pytest.approx(0.85)
    assert priced(1.0, True, 1.0, rollout) == pytest.approx(0.7), "no price makes a right answer worse than a wrong one"
    assert priced(0.5, False, 5e-5, rollout) == 0.5
    assert priced(0.0, None, 0.0, rollout) == 0.0 and priced(None, None, 5e-5, rollout) is None
    assert priced(1.0, True, 5e-5, RolloutSettings()) == 1.0


def test_curves_have_a_line_for_each_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"format_step": 1}, *({"iteration": n, "reward": n / 4, "routing": None} for n in (1, 2, 3, 4)), {"evaluated_at": 4}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    image = curves.svg({"a < b": curves.read(path), "c": curves.read(path)[:2]}, ["reward", "routing"], "a note")
    assert image.count("<polyline") == 4 and "a &lt; b" in image and "a note" in image
    # Means of one to four values, at a quarter to the whole of the axis.
    assert '"127.0,146.5 202.0,127.8 277.0,109.0 352.0,90.2"' in image, image
    assert curves.smoothed([None, 2.0, 4.0, 6.0], window=2) == [None, 2.0, 3.0, 5.0]


def test_outcomes_come_back_in_the_order_of_the_batch(server) -> None:
    with Rollouts(server) as process:
        batch = [rollout(str(n), f"model_id = [{n % 4}]" + "hold" * 500) for n in range(500)]
        outcomes = process.run(batch)
        assert [outcome.id for outcome in outcomes] == [str(n) for n in range(500)]
        assert [outcome.reward for outcome in outcomes[:4]] == [0.5, 1.0, 0.5, 0.0]
        assert outcomes[1].workers == ("w1",)
        assert (outcomes[1].cost_usd, outcomes[1].grading_cost_usd) == (pytest.approx(7e-9), pytest.approx(1e-9))
        assert process.run([rollout("again", "nothing")])[0].is_plan is False


def test_the_last_words_of_a_failed_process_are_told() -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('podium: standard input, line 1: question must not be blank')"]
    with pytest.raises(RolloutsFailed, match="line 1: question must not be blank"), Rollouts(failing) as process:
        process.run([rollout("a", "x")])
    with pytest.raises(RolloutsFailed, match="cannot start"):
        Rollouts(["/does/not/exist"])


def test_a_dry_run_tries_every_worker(tmp_path: Path, server) -> None:
    text = f"[model]\nkind='nano'\nstart='x'\n[rollout]\ncommand={json.dumps(server)}\nworkers=3\n"
    report = dry_run(grpo_settings.load(config(tmp_path, text)))
    assert report["plans_tried"] == 12
    assert report["rewards"] == {"0.0": 1, "0.5": 8, "1.0": 4}
    assert report["rollouts_of_the_run"] == 300 * 64
    too_many = config(tmp_path, text.replace("workers=3", "workers=4"))
    with pytest.raises(DryRunFailed, match=r"rollout\.workers is 4"):
        dry_run(grpo_settings.load(too_many))


def test_the_benchmark_counts_every_rollout(server) -> None:
    measured = rollout_bench.measure(server, 5, 2)
    assert (measured["rollouts"], measured["without_reward"]) == (5, 0) and measured["cpu_s"] > 0


def test_the_trainer_reads_plans_as_the_engine_does() -> None:
    """A test of `podium rollout` holds the engine to the same file."""
    rows = [json.loads(line) for line in (Path(__file__).parent / "plans.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        parsed = plan.parse(row["text"])
        found = parsed and {"workers": list(parsed.slots), "subtasks": list(parsed.subtasks), "access": [list(a) for a in parsed.access]}
        assert found == row["trainer"], row["text"]
        assert row["trainer"] in (None, row["engine"]), "the trainer accepts no plan that the engine refuses or reads otherwise"
    assert sum(row["trainer"] is not None for row in rows) >= 4
