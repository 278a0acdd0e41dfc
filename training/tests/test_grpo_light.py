"""Settings, advantages, the dry run and the client of `podium rollout`. Needs no PyTorch."""

import json
import sys
from pathlib import Path

import pytest

from podium_training import grpo_settings, plan, rollout_bench
from podium_training.grpo_dry_run import DryRunFailed, dry_run
from podium_training.grpo_settings import BadSettings, advantages
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
    assert (nano.train.learning_rate, nano.train.questions, nano.train.rollouts) == (1.5e-4, 8, 8)
    assert nano.path(nano.model.start).name == "nano.gguf" and nano.path(nano.model.start).exists()
    assert nano.path(nano.rollout.pool).exists()
    assert [grpo_settings.steps_max(nano.train, at) for at in (0, 99, 100, 299)] == [1, 1, 2, 3]
    bonuses = [grpo_settings.entropy_bonus(nano.train, at) for at in (0, nano.train.iterations - 1)]
    assert bonuses == pytest.approx([0.15, 0.02])
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
        ("[model\n", "config.toml"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said.replace("[", r"\[").replace(".", r"\.")):
        grpo_settings.load(config(tmp_path, text))


def test_an_advantage_is_relative_to_the_same_question() -> None:
    gains = advantages([0.0, 0.5, 1.0, 0.5, 1.0, 1.0, None, 1.0], group=4)
    assert gains[0] == -gains[2] < 0 and gains[1] == gains[3] == 0
    assert gains[4:] == [0.0, 0.0, 0.0, 0.0], "equal rewards teach nothing, and a rollout without a reward is left out"
    assert advantages([None, 1.0, 0.5, 0.5], group=4)[0] == 0
    assert sum(advantages([None, 1.0, 0.5, 0.5], group=4)) == pytest.approx(0)


def test_outcomes_come_back_in_the_order_of_the_batch(server) -> None:
    with Rollouts(server) as process:
        batch = [rollout(str(n), f"model_id = [{n % 4}]" + "hold" * 500) for n in range(500)]
        outcomes = process.run(batch)
        assert [outcome.id for outcome in outcomes] == [str(n) for n in range(500)]
        assert [outcome.reward for outcome in outcomes[:4]] == [0.5, 1.0, 0.5, 0.0]
        assert outcomes[1].workers == ("w1",) and outcomes[1].cost_usd == pytest.approx(8e-9)
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
