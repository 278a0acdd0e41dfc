"""Supervised training of a conductor from scratch: fresh questions all the time, loss on the plan only."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from podium_training import copying, literals, plan
from podium_training import tokenizer as bpe
from podium_training.model import Conductor, Shape
from podium_training.muon import Muon
from podium_training.questions import Generator
from podium_training.settings import Settings

IGNORED = -100
_BATCHES_A_POOL = 25
_TOKENIZER_QUESTIONS = 6000


@dataclass(frozen=True)
class Example:
    """The tokens of a prompt and of its completion."""

    prompt: list[int]
    completion: list[int]


def corpus(seed: int, count: int) -> Iterator[str]:
    """Texts to learn the tokenizer from."""
    generator = Generator("wide", seed)
    for _ in range(count):
        question = generator.draw()
        yield plan.prompt(question.text) + plan.render(list(question.steps))


class Source:
    """An endless stream of training batches."""

    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.generator = Generator("wide", settings.seed + 1, noise=settings.noise)
        self.rng = random.Random(settings.seed)

    def _example(self) -> Example:
        question = self.generator.draw()
        prompt, completion = plan.prompt(question.text), plan.render(list(question.steps))
        return Example(self.tokenizer.encode(prompt).ids, self.tokenizer.encode(completion).ids)

    def _copy(self) -> Example:
        """Something without any sense, to be repeated: random tokens, dates or numbers. It keeps the copying heads exact."""
        kind = self.rng.random()
        if kind < 0.4:
            tokens = [self.rng.randrange(3, self.settings.vocabulary) for _ in range(self.rng.randint(8, 48))]
        elif kind < 0.6:
            dates = [date for _ in range(self.rng.randint(1, 3)) for date in literals.date_pair(self.rng)]
            tokens = self.tokenizer.encode(self.rng.choice((", ", " and ", " to ")).join(dates)).ids
        else:
            numbers = [str(self.rng.randrange(10 ** self.rng.randint(1, 5))) for _ in range(self.rng.randint(2, 9))]
            tokens = self.tokenizer.encode(self.rng.choice((", ", " ", "; ", "-", " and ")).join(numbers)).ids
        end = self.tokenizer.token_to_id(bpe.END)
        return Example([self.tokenizer.token_to_id(bpe.START), *tokens, end], [*tokens, end])

    def pool(self, copies: float) -> list[tuple[Tensor, Tensor]]:
        """Some batches of inputs and targets, each of examples of about one length."""
        count = self.settings.batch * _BATCHES_A_POOL
        examples = [self._copy() if self.rng.random() < copies else self._example() for _ in range(count)]
        examples.sort(key=lambda example: len(example.prompt) + len(example.completion))
        batches = [collate(examples[start : start + self.settings.batch]) for start in range(0, count, self.settings.batch)]
        self.rng.shuffle(batches)
        return batches


def collate(examples: list[Example]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch; only completion tokens are targets."""
    length = max(len(example.prompt) + len(example.completion) for example in examples) - 1
    inputs = torch.zeros(len(examples), length, dtype=torch.long)
    targets = torch.full((len(examples), length), IGNORED)
    for row, example in enumerate(examples):
        tokens = example.prompt + example.completion
        inputs[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        targets[row, len(example.prompt) - 1 : len(tokens) - 1] = torch.tensor(example.completion)
    return inputs, targets


def loss_of(model: Conductor, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the completion tokens; scores are made for those positions only."""
    hidden = model(inputs)
    chosen = targets != IGNORED
    return functional.cross_entropy(model.logits(hidden[chosen]), targets[chosen])


def optimizers(model: Conductor, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for the embedding, norms and biases."""
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.ndim == 2]
    inside = {id(parameter) for parameter in matrices}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in inside]
    adam = torch.optim.AdamW(rest, lr=settings.adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
    if settings.muon_rate == 0:
        return [torch.optim.AdamW(model.parameters(), lr=settings.adam_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay)]
    muon = Muon(matrices, lr=settings.muon_rate, momentum=0.95, weight_decay=settings.weight_decay)
    return [muon, adam]


def rate_at(step: int, settings: Settings) -> float:
    """The part of the full learning rate at a step: a warm-up, a plateau, a linear decay to nearly nothing."""
    if step < settings.warm_up:
        return (step + 1) / settings.warm_up
    return min(1.0, 0.02 + 0.98 * (settings.steps - step) / settings.decay)


def save(directory: Path, model: Conductor, tokenizer: Tokenizer) -> None:
    """Writes what `load` needs. The weights appear under their name only when they are complete."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "shape.json").write_text(json.dumps(asdict(model.shape)) + "\n", encoding="utf-8")
    _write(directory / "weights.pt", model.state_dict())


def _identity(settings: Settings, shape: dict[str, int], texts: list[str]) -> str:
    """The inputs that determine a run's outcome, as JSON. The tokenizer's texts stand for all questions."""
    questions = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return json.dumps({"settings": asdict(settings), "shape": shape, "questions": questions}, indent=1) + "\n"


def _write(path: Path, content: object) -> None:
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    partial.rename(path)


def load(directory: Path) -> tuple[Conductor, Tokenizer]:
    """Reads a checkpoint."""
    shape = Shape(**json.loads((directory / "shape.json").read_text(encoding="utf-8")))
    model = Conductor(shape)
    model.load_state_dict(torch.load(directory / "weights.pt", weights_only=True))
    return model.eval(), bpe.load(directory / "tokenizer.json")


class OtherRun(Exception):
    """The directory holds a checkpoint of a run that would have come to something else."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} holds a run with other settings or other questions: remove it to begin anew")


class Training:
    """One training run. It can be stopped at any time and goes on from its last checkpoint as if nothing had happened.

    Raises `OtherRun` when the checkpoint is of other settings, another shape or other questions.
    """

    def __init__(self, directory: Path, settings: Settings, shape: dict[str, int]) -> None:
        torch.manual_seed(settings.seed)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.settings = settings
        resumed = (directory / "state.pt").exists()
        texts = list(corpus(settings.seed, _TOKENIZER_QUESTIONS))
        identity = _identity(settings, shape, texts)
        named = directory / "run.json"
        if resumed and (not named.exists() or named.read_text(encoding="utf-8") != identity):
            raise OtherRun(directory)
        self.tokenizer = bpe.load(directory / "tokenizer.json") if resumed else bpe.train(texts, settings.vocabulary)
        self.model = Conductor(Shape(vocabulary=settings.vocabulary, **shape))
        copying.prepare(self.model, settings.seed)
        self.source = Source(self.tokenizer, settings)
        self.optimizers = optimizers(self.model, settings)
        self.peaks = [group["lr"] for group in self._groups()]
        self.step = self.seen = 0
        self.cpu_s = 0.0
        if resumed:
            self._resume()
        named.write_text(identity, encoding="utf-8")

    def _groups(self) -> list[dict]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _resume(self) -> None:
        # The file is this run's own; it holds the states of random generators, which are not tensors.
        state = torch.load(self.directory / "state.pt", weights_only=False)
        self.step, self.seen, self.cpu_s = state["step"], state["seen"], state["cpu_s"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.source.rng.setstate(state["source"])
        self.source.generator.rng.setstate(state["generator"])

    def _save(self) -> None:
        state = {
            "step": self.step,
            "seen": self.seen,
            "cpu_s": self.cpu_s,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "source": self.source.rng.getstate(),
            "generator": self.source.generator.rng.getstate(),
        }
        _write(self.directory / "state.pt", state)
        save(self.directory, self.model, self.tokenizer)

    def run(self, pools_a_checkpoint: int) -> None:
        """Trains to the end; the final checkpoint is in the directory, with `log.jsonl` next to it."""
        pools = 0
        while self.step < self.settings.steps:
            started = time.process_time()
            losses = [self._learn(inputs, targets) for inputs, targets in self.source.pool(self.settings.copies)]
            self.cpu_s += time.process_time() - started
            self._log(sum(losses) / len(losses))
            pools += 1
            if pools % pools_a_checkpoint == 0:
                self._save()
        self._save()

    def _learn(self, inputs: Tensor, targets: Tensor) -> float:
        for group, peak in zip(self._groups(), self.peaks, strict=True):
            group["lr"] = peak * rate_at(min(self.step, self.settings.steps), self.settings)
        loss = loss_of(self.model, inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.seen += inputs.numel()
        return loss.item()

    def _log(self, loss: float) -> None:
        line = {"step": self.step, "loss": round(loss, 4), "tokens": self.seen, "cpu_s": round(self.cpu_s, 1)}
        with (self.directory / "log.jsonl").open("a", encoding="utf-8") as log:
            print(json.dumps(line), file=log)
