"""The settings of reinforcement learning, from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from podium_training.plan import SLOTS


class BadSettings(Exception):
    """A settings file is invalid; the message names the key and its bounds."""


@dataclass(frozen=True)
class ModelSettings:
    """The model that learns."""

    kind: str
    """`nano`: this project's small model, from a GGUF file. `transformers`: a model of the transformers library."""
    start: str
    """For nano a path, relative to the settings file. For transformers a folder or a name on the Hugging Face hub."""
    lora_rank: int = 0
    """Trains low-rank adapters of this rank instead of all weights; 0 trains all weights. Only transformers."""
    lora_alpha: int = 32
    dtype: str = "float32"
    gradient_checkpointing: bool = False
    prompt: str = ""
    """Only transformers: a file with the prompt, relative to the settings file; `{question}` and `{workers}` are filled in."""


@dataclass(frozen=True)
class BaseSettings:
    """Supervised learning before and during the reinforcement: the format of plans with workers drawn at random. Only nano."""

    steps: int = 0
    batch: int = 16
    learning_rate: float = 5e-4
    every: int = 0
    """One supervised batch after so many iterations, so that the format is not lost; 0 for none."""


@dataclass(frozen=True)
class RolloutSettings:
    """Where rewards come from."""

    command: list[str] = field(default_factory=lambda: ["podium", "rollout"])
    """The command; the option --pool is added to it."""
    pool: str = "demo"
    """A pool file, relative to the settings file, or `demo`."""
    workers: int = 7
    """The number of the pool's workers: positions from 0 to one below it."""
    slots: list[str] = field(default_factory=list)
    """The ids of the workers that the positions mean, in order, instead of all of the pool in its order. Give each run an order of its own,
    so that who can do what must be learned from rewards. A bundle of the trained model needs the same order in its `slots`."""
    price_weight: float = 0.0
    """How much of the reward of a right answer its price can take. At most 0.49: a right answer stays above a wrong one, which has 0.5."""
    price_full_usd: float = 0.0
    """The price of an answer at which it takes all of `price_weight`; required with it."""
    right_worker: dict[str, str] = field(default_factory=dict)
    """Which worker is best at each skill. It is only reported; the learner never sees it."""


@dataclass(frozen=True)
class Stage:
    """From an iteration on, questions have at most so many steps."""

    iteration: int
    steps_max: int


@dataclass(frozen=True)
class TrainSettings:
    """The reinforcement learning itself: GRPO without a KL penalty (beta = 0), on-policy, advantages scaled per question."""

    iterations: int = 300
    questions: int = 8
    rollouts: int = 8
    learning_rate: float = 1.5e-4
    schedule: str = "constant"
    """`constant` or `cosine`, both after the warm-up."""
    warm_up: int = 5
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    temperature: float = 1.0
    tokens_max: int = 230
    clip: float = 0.2
    updates: int = 1
    """Updates from each batch of rollouts."""
    micro_batch: int = 64
    """Completions whose gradients are computed together."""
    gradient_norm_max: float = 1.0
    entropy_first: float = 0.8
    entropy_last: float = 0.05
    """The bonus on the entropy of the tokens that name workers, falling linearly over the iterations. It is in the unit of the advantages:
    with 0.5, a nat of entropy weighs as much as an advantage of 0.5."""
    deviation_min: float = 0.0
    """Rewards of a question that differ less are divided by this deviation instead of their own, so that a difference in price alone is
    not taken for one between right and wrong."""
    curriculum: list[Stage] = field(default_factory=lambda: [Stage(0, 1), Stage(100, 2), Stage(200, 3)])
    questions_file: str = ""
    """JSON lines with `question`, `answer` and perhaps `grader`, relative to the settings file; empty draws questions of this project."""
    evaluate_every: int = 50
    evaluate_questions: int = 64
    test_questions: int = 0
    """At the end of the run, the model plans so many questions of the split `test`: with 300, those of `eval/heldout.jsonl`."""
    save_every: int = 10
    """Iterations between checkpoints. A run that is stopped continues from the last one."""
    seed: int = 1
    threads: int = 1


@dataclass(frozen=True)
class GrpoSettings:
    """All settings of a run."""

    model: ModelSettings
    base: BaseSettings
    rollout: RolloutSettings
    train: TrainSettings
    folder: Path
    """The folder of the file, to which paths in it are relative."""

    def path(self, relative: str) -> Path:
        """A path of the file."""
        return (self.folder / relative).resolve()

    def positions(self) -> int:
        """How many workers a plan can name."""
        return len(self.rollout.slots) or self.rollout.workers

    def worker_ids(self) -> list[str]:
        """The workers that the positions mean, in order. Raises `BadSettings` if the pool file has other ones."""
        if self.rollout.slots:
            return list(self.rollout.slots)
        if self.rollout.pool == "demo":
            return [f"sim-{skill}" if skill != "general" else "sim-generalist" for skill in SLOTS][: self.rollout.workers]
        path = self.path(self.rollout.pool)
        try:
            ids = [worker["id"] for worker in tomllib.loads(path.read_text(encoding="utf-8"))["workers"]]
        except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
            raise BadSettings(f"{path}: cannot read the ids of its workers: {error!r}") from error
        if len(ids) < self.rollout.workers:
            raise BadSettings(f"{path}: rollout.workers is {self.rollout.workers}, and the pool has {len(ids)} workers")
        return ids[: self.rollout.workers]

    def rollout_command(self) -> list[str]:
        """The command for rewards."""
        pool = self.rollout.pool if self.rollout.pool == "demo" else str(self.path(self.rollout.pool))
        return [*self.rollout.command, "--pool", pool]


_BOUNDS: dict[str, tuple[float, float]] = {
    "model.lora_rank": (0, 1024),
    "base.steps": (0, 1_000_000),
    "base.batch": (1, 4096),
    "base.learning_rate": (0, 1),
    "base.every": (0, 1_000_000),
    "rollout.workers": (1, 64),
    "rollout.price_weight": (0, 0.49),
    "rollout.price_full_usd": (0, 1e6),
    "train.iterations": (0, 1_000_000),
    "train.questions": (1, 4096),
    "train.rollouts": (2, 4096),
    "train.learning_rate": (0, 1),
    "train.warm_up": (0, 1_000_000),
    "train.temperature": (0.01, 5),
    "train.tokens_max": (1, 32768),
    "train.clip": (0, 1),
    "train.updates": (1, 64),
    "train.micro_batch": (1, 65536),
    "train.entropy_first": (0, 10),
    "train.entropy_last": (0, 10),
    "train.deviation_min": (0, 1),
    "train.test_questions": (0, 100_000),
    "train.save_every": (1, 1_000_000),
    "train.evaluate_every": (0, 1_000_000),
    "train.evaluate_questions": (1, 100_000),
    "train.threads": (1, 1024),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "model.kind": ("nano", "transformers"),
    "model.dtype": ("float32", "bfloat16"),
    "train.schedule": ("constant", "cosine"),
}


def load(path: Path) -> GrpoSettings:
    """Reads and checks a settings file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path}: {error}") from error
    parts = {"model": ModelSettings, "base": BaseSettings, "rollout": RolloutSettings, "train": TrainSettings}
    unknown = sorted(set(content) - set(parts))
    if unknown:
        raise BadSettings(f"{path}: unknown table [{unknown[0]}]; there are {', '.join(parts)}")
    read = {name: _part(path, name, kind, content.get(name, {})) for name, kind in parts.items()}
    settings = GrpoSettings(**read, folder=path.resolve().parent)
    if settings.model.kind == "transformers" and not (settings.model.prompt and settings.train.questions_file):
        raise BadSettings(f"{path}: model.kind transformers needs model.prompt and train.questions_file")
    if settings.rollout.price_weight and not settings.rollout.price_full_usd:
        raise BadSettings(f"{path}: rollout.price_weight needs rollout.price_full_usd")
    if len(set(settings.rollout.slots)) != len(settings.rollout.slots):
        raise BadSettings(f"{path}: rollout.slots names a worker twice")
    return settings


def _part(path: Path, table: str, kind: type[Any], values: dict[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind)}
    for key, value in values.items():
        name = f"{table}.{key}"
        if key not in known:
            raise BadSettings(f"{path}: unknown key {name}")
        bounds = _BOUNDS.get(name)
        if bounds and (isinstance(value, bool) or not isinstance(value, int | float) or not bounds[0] <= value <= bounds[1]):
            raise BadSettings(f"{path}: {name} is {value!r}, it must be a number from {bounds[0]} to {bounds[1]}")
        choices = _CHOICES.get(name)
        if choices and value not in choices:
            raise BadSettings(f"{path}: {name} is {value!r}, it must be one of {', '.join(choices)}")
    missing = [f.name for f in known.values() if f.default is MISSING and f.default_factory is MISSING and f.name not in values]
    if missing:
        raise BadSettings(f"{path}: {table}.{missing[0]} is missing")
    if "curriculum" in values:
        values = values | {"curriculum": _curriculum(path, values["curriculum"])}
    return kind(**values)


def _curriculum(path: Path, stages: Any) -> list[Stage]:
    try:
        read = [Stage(int(stage["iteration"]), int(stage["steps_max"])) for stage in stages]
    except (KeyError, TypeError, ValueError) as error:
        raise BadSettings(f"{path}: train.curriculum must be a list of tables with iteration and steps_max") from error
    if not read or read[0].iteration != 0 or any(a.iteration >= b.iteration for a, b in pairwise(read)):
        raise BadSettings(f"{path}: train.curriculum must begin with iteration 0 and ascend")
    return read


def steps_max(train: TrainSettings, iteration: int) -> int:
    """Most steps of a question at an iteration, which counts from 0."""
    return [stage.steps_max for stage in train.curriculum if stage.iteration <= iteration][-1]


def entropy_bonus(train: TrainSettings, iteration: int) -> float:
    """The weight of the entropy at an iteration: linear from the first to the last."""
    share = iteration / max(1, train.iterations - 1)
    return train.entropy_first + (train.entropy_last - train.entropy_first) * share


def priced(reward: float | None, is_right: bool | None, cost_usd: float, rollout: RolloutSettings) -> float | None:
    """The reward that is learned from: a right answer loses `price_weight` times its price, in units of `price_full_usd` and at most one.
    A wrong answer loses nothing, so that a cheap worker that cannot help is no better than another one."""
    if reward is None or not is_right or not rollout.price_weight:
        return reward
    return reward - rollout.price_weight * min(1.0, cost_usd / rollout.price_full_usd)


def advantages(rewards: list[float | None], group: int, deviation_min: float = 0.0) -> list[float]:
    """Each reward against those of the same question: the distance to their mean, in standard deviations or in `deviation_min`, whichever
    is larger. 0 for a rollout without a reward, and for all of a question whose rewards are equal."""
    found: list[float] = []
    for start in range(0, len(rewards), group):
        of_question = rewards[start : start + group]
        known = [reward for reward in of_question if reward is not None]
        mean = sum(known) / len(known) if known else 0.0
        deviation = (sum((reward - mean) ** 2 for reward in known) / len(known)) ** 0.5 if known else 0.0
        found += [
            0.0 if reward is None or deviation < 1e-6 else (reward - mean) / (max(deviation, deviation_min) + 1e-4)
            for reward in of_question
        ]
    return found
