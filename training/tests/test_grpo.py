"""Reinforcement learning itself, on tiny models. Needs the dependency group "train", and "llm" for the last tests; skipped without."""

import json
import math
import os
import random
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("gguf")

from podium_training import export, grpo, nano_gguf, plan, sft, tokenizer  # noqa: E402
from podium_training import policy as policy_module  # noqa: E402
from podium_training.grpo_settings import BaseSettings, GrpoSettings, ModelSettings, RolloutSettings, Stage, TrainSettings  # noqa: E402
from podium_training.model import Conductor, Shape  # noqa: E402
from podium_training.policy import NanoPolicy, Policy, overlapping, spans  # noqa: E402
from podium_training.rollouts import Outcome, Rollout, Rollouts  # noqa: E402

NANO = Path(__file__).parents[2] / "models/nano/nano.gguf"


class Teacher:
    """In place of `podium rollout`: plans whose first step goes to worker 2 are right."""

    def __init__(self) -> None:
        self.seen: list[Rollout] = []

    def run(self, batch: list[Rollout]) -> list[Outcome]:
        self.seen += batch
        return [self.outcome(rollout) for rollout in batch]

    def outcome(self, rollout: Rollout) -> Outcome:
        parsed = plan.parse(rollout.completion)
        if parsed is None:
            return Outcome(rollout.id, 0.0, False, None, "no plan", (), 0.0)
        is_right = parsed.slots[0] == 2
        return Outcome(rollout.id, 1.0 if is_right else 0.5, True, is_right, None, tuple(f"w{slot}" for slot in parsed.slots), 1e-6)


def settings(folder: Path, **train: object) -> GrpoSettings:
    sizes = {"iterations": 4, "questions": 2, "rollouts": 4, "tokens_max": 120}
    defaults = sizes | {"warm_up": 0, "evaluate_every": 2, "evaluate_questions": 2, "save_every": 2}
    return GrpoSettings(
        model=ModelSettings("nano", "nano.gguf"),
        base=BaseSettings(steps=2, batch=2, every=2),
        rollout=RolloutSettings(workers=7),
        train=TrainSettings(**(defaults | {"curriculum": [Stage(0, 1)]} | train)),
        folder=folder,
    )


def nano() -> Policy:
    return NanoPolicy(*nano_gguf.load(NANO), [f"worker-{letter}" for letter in "abcdefg"])


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_an_exported_model_is_read_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bpe = tokenizer.train(sft.corpus(1, 200), 600)
    model = Conductor(Shape(vocabulary=600, width=128, layers=2, heads=4, hidden=96)).eval()
    export.export(model, bpe, tmp_path / "tiny.gguf", name="tiny")
    read, tokens = nano_gguf.load(tmp_path / "tiny.gguf")
    assert read.shape == model.shape
    text = 'model_id = [2]\nsubtasks = ["naïve ☃"]<|im_end|>'
    assert tokens.encode(text).ids == bpe.encode(text).ids
    prompt = torch.tensor([bpe.encode(text).ids])
    with torch.inference_mode():
        assert torch.allclose(model(prompt), read.eval()(prompt), atol=0.05)


def test_the_tokens_that_name_workers_are_found() -> None:
    policy = nano()
    text = 'Parts: "add 3" arithmetic 4; "write" words 0.\nmodel_id = [4, 0]\nsubtasks = ["add 3 to 5", "write it"]'
    tokens = policy.tokenizer.encode(text).ids
    named = [policy.tokenizer.decode([token]) for token, names in zip(tokens, policy.names_worker(tokens), strict=True) if names]
    assert [name.strip() for name in named] == ["4", "0"]
    assert overlapping(["ab", "cd", "ef"], [(3, 5)]) == [False, True, True]
    assert spans(NanoPolicy._WORKER, "12 and 3") == []


def test_scores_are_those_of_the_sampled_tokens() -> None:
    policy = nano()
    prompt = policy.prompt("Multiply 6 by 7.")
    completions = policy.sample([prompt] * 3, 1.0, 40)
    scores = policy.scores([prompt] * 3, completions, 1.0)
    assert scores.exists.sum(1).tolist() == [len(completion) for completion in completions]
    tokens = torch.tensor([prompt + completions[0]])
    with torch.no_grad():
        log_all = policy.model.logits(policy.model(tokens[:, :-1]))[0, len(prompt) - 1 :].log_softmax(-1)
    wanted = log_all.gather(-1, tokens[0, len(prompt) :][:, None])[:, 0]
    assert torch.allclose(scores.log_probabilities[0, : len(completions[0])], wanted, atol=1e-4)


def test_a_text_that_ends_early_leaves_the_others_of_its_batch_unchanged() -> None:
    policy, source = nano(), grpo.Drawn("train", 3)
    by_length: dict[int, list[list[int]]] = {}
    while not any(len(prompts) == 4 for prompts in by_length.values()):
        prompt = policy.prompt(source.draw(3).question)
        by_length.setdefault(len(prompt), []).append(prompt)
    prompts = next(prompts for prompts in by_length.values() if len(prompts) == 4)
    together = policy.sample(prompts, 0.0, 150)
    assert len({len(text) for text in together}) > 1
    assert together == [policy.sample([prompt], 0.0, 150)[0] for prompt in prompts]


def test_the_entropy_is_that_among_workers() -> None:
    logits = torch.zeros(2, 600)
    logits[0, 500] = 50.0  # Almost certainly no worker at all, and equally each of ten if one.
    logits[1, 3] = 50.0
    _, entropies = policy_module._scores(logits, torch.tensor([3, 3]), torch.arange(3, 13))
    assert entropies.tolist() == pytest.approx([math.log(10), 0.0], abs=1e-4)


def test_a_batch_without_choices_teaches_all_but_the_workers(tmp_path: Path) -> None:
    trainer = grpo.Trainer(settings(tmp_path), nano(), Teacher(), tmp_path / "run")
    encode = trainer.policy.tokenizer.encode
    texts = [plan.render([plan.Step("words", "spell 12", ()), plan.Step("words", "reverse it", (0,))], [5, 3]), "none 7"]
    examples = [sft.Example(encode(plan.prompt("Spell 12.")).ids, encode(text).ids) for text in texts]
    whole, left = sft.collate(examples)[1], trainer._without_choices(examples)[1]
    dropped = whole[whole != left].tolist()
    assert [trainer.policy.tokenizer.decode([token]) for token in dropped] == ["5", "3"]
    assert (left[whole != left] == sft.IGNORED).all()


def test_an_entropy_bonus_has_the_unit_of_the_advantages(tmp_path: Path) -> None:
    """It is divided by the number of tokens, as the gains are, and not by the number of choices, which is far smaller."""
    _, bpe = nano_gguf.load(NANO)
    torch.manual_seed(0)
    untrained = NanoPolicy(Conductor(Shape(vocabulary=bpe.get_vocab_size(), width=64, layers=1, heads=2, hidden=64)), bpe, ["a", "b", "c"])
    given = replace(settings(tmp_path, entropy_first=100.0, entropy_last=100.0, learning_rate=0.0), base=BaseSettings())
    trainer = grpo.Trainer(given, untrained, Teacher(), tmp_path / "run")
    prompts = [untrained.prompt("Multiply 6 by 7.")] * 2
    completions = [bpe.encode(plan.render([plan.Step("arithmetic", "multiply 6 by 7", ())], [worker])).ids for worker in (0, 2)]
    learned = trainer._learn(prompts, completions, [0.0, 0.0])
    scores = untrained.scores(prompts, completions, 1.0)
    chooses = grpo._rows([untrained.names_worker(completion) for completion in completions], scores.exists)
    assert int(chooses.sum()) == 2
    bonus = 100 * (scores.entropies * chooses).sum() / sum(map(len, completions))
    norm = torch.stack([(parameter.grad**2).sum() for parameter in _with_gradients(trainer, bonus)]).sum().sqrt()
    assert learned["gradient_norm"] == pytest.approx(float(norm), rel=1e-2) and float(norm) > 0.01


def _with_gradients(trainer: grpo.Trainer, loss: torch.Tensor) -> list[torch.Tensor]:
    loss.backward()
    return [parameter for parameter in trainer.trained if parameter.grad is not None]


def test_rewarded_plans_become_more_likely(tmp_path: Path) -> None:
    given = settings(tmp_path, iterations=12, questions=2, rollouts=8, learning_rate=1e-3, evaluate_every=0)
    trainer = grpo.Trainer(replace(given, base=BaseSettings()), nano(), Teacher(), tmp_path / "run")
    prompts = [trainer.policy.prompt("Multiply 6 by 7.")]
    workers = [plan.render([plan.Step("arithmetic", "multiply 6 by 7", ())], [worker]) for worker in (2, 0)]
    pair = [trainer.policy.tokenizer.encode(text).ids for text in workers]

    def margin() -> float:
        with torch.no_grad():
            sums = trainer.policy.scores(prompts * 2, pair, 1.0).log_probabilities.sum(1)
        return float(sums[0] - sums[1])

    before = margin()
    for _ in range(12):
        trainer._learn(prompts * 2, pair, [1.0, -1.0])
    assert margin() > before + 1


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    whole = grpo.Trainer(settings(tmp_path), nano(), Teacher(), tmp_path / "whole")
    whole.run()

    class Stopped(Exception):
        pass

    first = grpo.Trainer(settings(tmp_path), nano(), Teacher(), tmp_path / "parts")
    iterate = first._iterate
    first._iterate = lambda: iterate() if first.iteration < 2 else (_ for _ in ()).throw(Stopped)
    with pytest.raises(Stopped):
        first.run()
    second = grpo.Trainer(settings(tmp_path), nano(), Teacher(), tmp_path / "parts")
    assert second.iteration == 2
    second.run()
    left, right = lines(tmp_path / "whole"), lines(tmp_path / "parts")
    timeless = [[{k: v for k, v in line.items() if not k.endswith("_s")} for line in run] for run in (left, right)]
    assert timeless[0] == timeless[1]
    assert [line["iteration"] for line in left if "iteration" in line] == [1, 2, 3, 4]
    exported = tmp_path / "parts/export/bundle"
    assert (exported / "nano.gguf").exists()
    manifest = tomllib.loads((exported / "conductor.toml").read_text(encoding="utf-8"))
    assert manifest["pool"]["slots"][2] == "worker-c" and manifest["prompt"]["user"] == "{{question}}"
    with pytest.raises(grpo.OtherRun):
        grpo.Trainer(settings(tmp_path, seed=2), nano(), Teacher(), tmp_path / "parts")


def test_a_rollout_without_reward_is_left_out_of_the_figures(tmp_path: Path) -> None:
    class Failing(Teacher):
        def outcome(self, rollout: Rollout) -> Outcome:
            return Outcome(rollout.id, None, True, None, "the vendor failed", (), 0.0)

    trainer = grpo.Trainer(settings(tmp_path), nano(), Failing(), tmp_path / "run")
    before = {name: value.clone() for name, value in trainer.policy.module().state_dict().items()}
    trainer.train = replace(trainer.train, entropy_first=0.0, entropy_last=0.0)
    metrics = trainer._iterate()
    assert (metrics["left_out"], metrics["reward"], metrics["plans"]) == (8, 0.0, 0.0)
    assert all(torch.equal(before[name], value) for name, value in trainer.policy.module().state_dict().items())


@pytest.mark.skipif("PODIUM" not in os.environ, reason="PODIUM names no binary of podium")
def test_some_iterations_over_the_real_engine(tmp_path: Path) -> None:
    given = settings(tmp_path, iterations=3, questions=4, rollouts=4, tokens_max=160, evaluate_every=3)
    given = replace(given, rollout=RolloutSettings(command=[os.environ["PODIUM"], "rollout"], pool="demo", workers=7))
    with Rollouts(given.rollout_command()) as process:
        grpo.Trainer(replace(given, base=BaseSettings()), nano(), process, tmp_path / "run").run()
    metrics = lines(tmp_path / "run")
    # nano was trained on exact plans for the demo's workers.
    evaluated = [line for line in metrics if "evaluated_at" in line]
    assert [line["evaluated_at"] for line in evaluated] == [0, 3] and evaluated[0]["plans"] == 1.0
    for line in (line for line in metrics if "iteration" in line):
        assert line["plans"] > 0.8 and line["reward"] > 0.6 and line["right"] > 0.3 and line["left_out"] == 0, line


def test_the_learning_rate_rises_and_falls() -> None:
    train = TrainSettings(iterations=100, warm_up=10, schedule="cosine")
    rates = [grpo.rate_at(train, at) for at in range(100)]
    assert rates[0] == 0.1 and max(rates) == 1.0 and rates[10] == 1.0 and rates[-1] < 0.01
    assert grpo.rate_at(replace(train, schedule="constant"), 99) == 1.0


@pytest.fixture(scope="module")
def tiny_qwen(tmp_path_factory) -> Path:
    """A random model of the architecture of Qwen2.5, as a folder of the transformers library."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("qwen")
    torch.manual_seed(0)
    _, bpe = nano_gguf.load(NANO)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    shape = transformers.Qwen2Config(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(shape).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("rank", [0, 4])
def test_a_transformers_model_is_trained_and_exported(tmp_path: Path, tiny_qwen: Path, rank: int) -> None:
    if rank:
        pytest.importorskip("peft")
    from podium_training import policy

    (tmp_path / "prompt.txt").write_text("{workers} workers. Task: {question}", encoding="utf-8")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n), "grader": "numeric"} for n in range(5)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = settings(tmp_path, iterations=2, tokens_max=12, questions_file="questions.jsonl", micro_batch=3, updates=2, learning_rate=1e-2)
    model = ModelSettings("transformers", str(tiny_qwen), lora_rank=rank, prompt="prompt.txt")
    given = replace(given, model=model, base=BaseSettings())

    class Coin(Teacher):
        def outcome(self, rollout: Rollout) -> Outcome:
            assert rollout.grader == "numeric" and rollout.question.startswith("What is")
            reward = float(random.Random(rollout.completion).random() < 0.5)
            return Outcome(rollout.id, reward, True, bool(reward), None, ("w",), 0.0)

    learner = policy.load(given)
    trained = [name for name, value in learner.module().named_parameters() if value.requires_grad]
    assert trained and all("lora" in name for name in trained) == bool(rank)
    grpo.Trainer(given, learner, Coin(), tmp_path / "run").run()
    metrics = [line for line in lines(tmp_path / "run") if "iteration" in line]
    assert len(metrics) == 2 and metrics[0]["left_out"] == 0
    again = policy.load(replace(given, model=replace(model, start=str(tmp_path / "run/export"), lora_rank=0)))
    start = policy.load(replace(given, model=replace(model, lora_rank=0))).module().state_dict()
    assert any(not torch.equal(start[name], value) for name, value in again.module().state_dict().items())
    prompt = again.prompt("What is 1 + 1?")
    assert "7 workers. Task: What is 1 + 1?" in again.tokenizer.decode(prompt) and len(again.sample([prompt, prompt], 0.0, 5)) == 2


def test_left_padding_does_not_change_what_is_written(tmp_path: Path, tiny_qwen: Path) -> None:
    from podium_training import policy

    (tmp_path / "prompt.txt").write_text("{question}", encoding="utf-8")
    model = ModelSettings("transformers", str(tiny_qwen), prompt="prompt.txt")
    learner = policy.load(replace(settings(tmp_path, questions_file="q"), model=model))
    short, long = learner.prompt("short"), learner.prompt("a much longer question " * 6)
    together = learner.sample([short, long], 0.0, 8)
    assert together[0] == learner.sample([short], 0.0, 8)[0]
    alone = learner.scores([short], [together[0]], 1.0).log_probabilities[0]
    padded = learner.scores([short, long], together, 1.0).log_probabilities[0, : len(together[0])]
    assert torch.allclose(alone, padded, atol=1e-4)
