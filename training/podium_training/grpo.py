"""GRPO: a conductor learns from the rewards of its own plans, which `podium rollout` carries out.

Each iteration draws questions, lets the model write several plans for each, carries them out, and makes plans more likely that earned more
than the others for the same question. There is no value model and no KL penalty. Rollouts that failed for reasons other than the plan
have no reward and are left out.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from podium_training import heldout, plan, sft
from podium_training.grpo_settings import GrpoSettings, TrainSettings, advantages, entropy_bonus, priced, steps_max
from podium_training.policy import NanoPolicy, Policy
from podium_training.questions import GENERAL, Generator, Question
from podium_training.rollouts import Outcome, Rollout, Rollouts


@dataclass(frozen=True)
class Task:
    """A question with its expected answer. Questions of this project also have the skills of their steps."""

    question: str
    answer: str
    grader: str | dict[str, Any] = "exact"
    skills: tuple[str, ...] = ()


def _task(question: Question) -> Task:
    return Task(question.text, question.answer or "", skills=tuple(step.skill for step in question.steps))


class OtherRun(Exception):
    """The folder holds a run with other settings."""


class Drawn:
    """Tasks that are drawn from this project's wordings."""

    def __init__(self, split: str, seed: int) -> None:
        self.generator = Generator(split, seed)

    def draw(self, steps_max: int) -> Task:
        """A question with at most so many steps."""
        while True:
            question = self.generator.draw()
            if question.shape != GENERAL and question.answer is not None and len(question.steps) <= steps_max:
                return _task(question)

    def state(self) -> Any:
        """The state that `restore` needs to continue in the same place."""
        return self.generator.rng.getstate()

    def restore(self, state: Any) -> None:
        """Continues where `state` was taken."""
        self.generator.rng.setstate(state)


class Listed:
    """Tasks of a file, in an order that is shuffled anew for each pass."""

    def __init__(self, path: Path, seed: int) -> None:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        self.tasks = [Task(line["question"], line.get("answer", ""), line.get("grader", "exact")) for line in lines]
        if not self.tasks:
            raise ValueError(f"{path} has no question")
        self.rng = random.Random(seed)
        self.order: list[int] = []

    def draw(self, steps_max: int) -> Task:
        """The next question. A file does not say how many steps its questions need."""
        if not self.order:
            self.order = self.rng.sample(range(len(self.tasks)), len(self.tasks))
        return self.tasks[self.order.pop()]

    def state(self) -> Any:
        """The state that `restore` needs to continue in the same place."""
        return (self.rng.getstate(), list(self.order))

    def restore(self, state: Any) -> None:
        """Continues where `state` was taken."""
        rng, self.order = state
        self.rng.setstate(rng)


class Trainer:
    """One run in a folder. It can be stopped at any time, and continues from its last checkpoint."""

    def __init__(self, settings: GrpoSettings, policy: Policy, rollouts: Rollouts, folder: Path) -> None:
        self.settings, self.train, self.policy, self.rollouts, self.folder = settings, settings.train, policy, rollouts, folder
        torch.manual_seed(self.train.seed)
        torch.set_num_threads(self.train.threads)
        self.tasks: Drawn | Listed = (
            Listed(settings.path(self.train.questions_file), self.train.seed)
            if self.train.questions_file
            else Drawn("train", self.train.seed)
        )
        self.base = Drawn("wide", self.train.seed + 1000)
        self.rng = random.Random(self.train.seed)
        self.waiting: dict[int, list[tuple[Task, list[int]]]] = {}
        trained = [parameter for parameter in policy.module().parameters() if parameter.requires_grad]
        first, second = self.train.betas
        self.optimizer = torch.optim.AdamW(trained, lr=self.train.learning_rate, betas=(first, second), weight_decay=0.0)
        self.trained = trained
        self.iteration, self.cpu_s = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        identity = json.dumps({part: asdict(getattr(settings, part)) for part in ("model", "base", "rollout", "train")}, indent=1) + "\n"
        named = folder / "settings.json"
        if named.exists() and named.read_text(encoding="utf-8") != identity:
            raise OtherRun(f"{folder} holds a run with other settings: name another folder")
        named.write_text(identity, encoding="utf-8")
        if (folder / "state.pt").exists():
            self._resume()

    # ------------------------------------------------------------ the run

    def run(self) -> None:
        """Trains to the end. Each iteration is a line of `metrics.jsonl`; the model is written into the folder `export`."""
        if self.iteration == 0 and not (self.folder / "state.pt").exists():
            (self.folder / "metrics.jsonl").unlink(missing_ok=True)  # Of a run that ended before its first checkpoint.
            self._learn_format()
            self._evaluate()
            self._save()
        while self.iteration < self.train.iterations:
            started = time.process_time()
            metrics = self._iterate()
            self.cpu_s += time.process_time() - started
            self.iteration += 1
            self._log({"iteration": self.iteration, **metrics, "cpu_s": round(self.cpu_s, 1)})
            if self.train.evaluate_every and self.iteration % self.train.evaluate_every == 0:
                self._evaluate()
            if self.iteration % self.train.save_every == 0:
                self._save()
        self._save()
        if self.train.test_questions:
            tasks = [_task(question) for question in heldout.questions("test", 1, self.train.test_questions)]
            self._log(self._tried("test", tasks))
        for path in self.policy.export(self.folder / "export"):
            print(f"wrote {path}")

    def _iterate(self) -> dict[str, Any]:
        began = time.monotonic()
        drawn = self._draw(steps_max(self.train, self.iteration))
        prompts = [prompt for _, prompt in drawn for _ in range(self.train.rollouts)]
        completions = self.policy.sample(prompts, self.train.temperature, self.train.tokens_max)
        sampled = time.monotonic()
        tasks = [task for task, _ in drawn for _ in range(self.train.rollouts)]
        outcomes = self._carry_out(tasks, completions, self.iteration + 1)
        carried_out = time.monotonic()
        gains = advantages([self._reward(outcome) for outcome in outcomes], self.train.rollouts, self.train.deviation_min)
        learned = self._learn(prompts, completions, gains)
        if self.settings.base.every and (self.iteration + 1) % self.settings.base.every == 0:
            learned["format_loss"] = round(self._supervised_step(self._without_choices), 4)
        return {
            **self._describe(tasks, completions, outcomes),
            **learned,
            "sample_s": round(sampled - began, 2),
            "rollout_s": round(carried_out - sampled, 2),
            "update_s": round(time.monotonic() - carried_out, 2),
        }

    def _draw(self, most: int) -> list[tuple[Task, list[int]]]:
        """The questions of an iteration. If the policy needs it, their prompts have one length: others wait for a later iteration."""
        count = self.train.questions
        if not self.policy.needs_equal_prompts:
            tasks = [self.tasks.draw(most) for _ in range(count)]
            return [(task, self.policy.prompt(task.question)) for task in tasks]
        while True:
            full = next((length for length, waiting in self.waiting.items() if len(waiting) >= count), None)
            if full is not None:
                return self.waiting.pop(full)
            task = self.tasks.draw(most)
            prompt = self.policy.prompt(task.question)
            self.waiting.setdefault(len(prompt), []).append((task, prompt))

    def _carry_out(self, tasks: Sequence[Task], completions: Sequence[list[int]], salt: int) -> list[Outcome]:
        batch = []
        for index, (task, completion) in enumerate(zip(tasks, completions, strict=True)):
            seed = random.Random(f"{self.train.seed}-{salt}-{index}").randrange(2**31)
            text = self.policy.text(completion)
            batch.append(Rollout(str(index), task.question, task.answer, text, seed, task.grader, tuple(self.settings.rollout.slots)))
        return self.rollouts.run(batch)

    def _reward(self, outcome: Outcome) -> float | None:
        return priced(outcome.reward, outcome.is_right, outcome.cost_usd, self.settings.rollout)

    # ------------------------------------------------------------ learning

    def _learn(self, prompts: list[list[int]], completions: list[list[int]], gains: list[float]) -> dict[str, Any]:
        self._set_rate()
        # Texts of about one length are computed together, with little padding.
        order = sorted(range(len(completions)), key=lambda row: len(completions[row]))
        prompts, completions = [prompts[row] for row in order], [completions[row] for row in order]
        gains = [gains[row] for row in order]
        bonus = entropy_bonus(self.train, self.iteration)
        chooses = [self.policy.names_worker(completion) for completion in completions]
        tokens, choices = max(1, sum(map(len, completions))), max(1, sum(map(sum, chooses)))
        before: list[Tensor] = []
        entropy_sum = norm = 0.0
        for update in range(self.train.updates):
            for number, rows in enumerate(_pieces(len(completions), self.train.micro_batch)):
                scores = self.policy.scores(prompts[rows], completions[rows], self.train.temperature)
                if update == 0:
                    before.append(scores.log_probabilities.detach())
                wanted = _rows(chooses[rows], scores.exists)
                gain = torch.tensor(gains[rows], device=scores.exists.device)[:, None]
                ratio = (scores.log_probabilities - before[number]).exp()
                clipped = ratio.clamp(1 - self.train.clip, 1 + self.train.clip)
                gained = (torch.minimum(ratio * gain, clipped * gain) * scores.exists).sum() / tokens
                entropy = (scores.entropies * wanted).sum()
                # Both sums have one divisor, so that the bonus is in the unit of the advantages.
                (-gained - bonus * entropy / tokens).backward()
                entropy_sum += float(entropy.detach()) if update == 0 else 0.0
            norm = float(nn.utils.clip_grad_norm_(self.trained, self.train.gradient_norm_max))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return {"entropy": round(entropy_sum / choices, 4), "entropy_bonus": round(bonus, 4), "gradient_norm": round(norm, 4)}

    def _set_rate(self) -> None:
        share = rate_at(self.train, self.iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = self.train.learning_rate * share

    def _learn_format(self) -> None:
        """Supervised plans whose workers are drawn at random: the format and the language, and nothing about who can do what."""
        for step in range(self.settings.base.steps):
            loss = self._supervised_step(sft.collate)
            if step % 20 == 0 or step + 1 == self.settings.base.steps:
                self._log({"format_step": step + 1, "format_loss": round(loss, 4)})

    def _supervised_step(self, collate: Callable[[list[sft.Example]], tuple[Tensor, Tensor]]) -> float:
        if not isinstance(self.policy, NanoPolicy):
            raise ValueError("base.steps and base.every are only for nano")
        examples: list[sft.Example] = []
        while len(examples) < self.settings.base.batch:
            question = self.base.generator.draw()
            workers = [self.rng.randrange(self.settings.positions()) for _ in question.steps]
            encode = self.policy.tokenizer.encode
            completion = plan.render(list(question.steps), workers)
            examples.append(sft.Example(encode(plan.prompt(question.text)).ids, encode(completion).ids))
        inputs, targets = collate(examples)
        loss = sft.loss_of(self.policy.model, inputs, targets)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.base.learning_rate if self.iteration == 0 else self.train.learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, self.train.gradient_norm_max)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _without_choices(self, examples: list[sft.Example]) -> tuple[Tensor, Tensor]:
        """A batch whose targets lack the tokens that choose a worker: learning random ones would undo what rewards have taught."""
        inputs, targets = sft.collate(examples)
        for row, example in enumerate(examples):
            chooses = self.policy.names_worker(example.completion)
            own = targets[row, len(example.prompt) - 1 :][: len(chooses)]
            own[torch.tensor(chooses)] = sft.IGNORED
        return inputs, targets

    # ------------------------------------------------------------ what it came to

    def _describe(self, tasks: Sequence[Task], completions: Sequence[list[int]], outcomes: Sequence[Outcome]) -> dict[str, Any]:
        scored = [outcome for outcome in outcomes if outcome.reward is not None]
        plans = [outcome for outcome in scored if outcome.is_plan]
        count = max(1, len(scored))
        used = Counter(worker for outcome in plans for worker in outcome.workers)
        steps = max(1, used.total())
        right = self.settings.rollout.right_worker
        routed = [
            worker == right.get(skill)
            for task, outcome in zip(tasks, outcomes, strict=True)
            if right and outcome.is_plan and len(outcome.workers) == len(task.skills)
            for worker, skill in zip(outcome.workers, task.skills, strict=True)
        ]
        return {
            "reward": round(sum(self._reward(outcome) or 0.0 for outcome in scored) / count, 4),
            "plans": round(len(plans) / count, 4),
            "right": round(sum(bool(outcome.is_right) for outcome in scored) / count, 4),
            "routing": round(sum(routed) / len(routed), 4) if routed else None,
            "steps": round(used.total() / max(1, len(plans)), 3),
            "usd_per_thousand": round(1000 * sum(outcome.cost_usd + outcome.grading_cost_usd for outcome in scored) / count, 6),
            "left_out": len(outcomes) - len(scored),
            "tokens": round(sum(map(len, completions)) / max(1, len(completions)), 1),
            "workers": {worker: round(number / steps, 3) for worker, number in sorted(used.items())},
        }

    def _evaluate(self) -> None:
        """The most likely plans of questions in other wordings, always the same ones."""
        if self.train.questions_file or not self.train.evaluate_every:
            return
        source = Drawn("valid", 0)
        self._log(self._tried("valid", [source.draw(self.train.curriculum[-1].steps_max) for _ in range(self.train.evaluate_questions)]))

    def _tried(self, split: str, tasks: Sequence[Task]) -> dict[str, Any]:
        """The figures of the most likely plans for some questions. The plans and their outcomes are in a file of the folder."""
        completions = self._most_likely([self.policy.prompt(task.question) for task in tasks])
        outcomes = self._carry_out(tasks, completions, 0)
        with (self.folder / f"plans-{split}-{self.iteration}.jsonl").open("w", encoding="utf-8") as file:
            for task, completion, outcome in zip(tasks, completions, outcomes, strict=True):
                asked = {"question": task.question, "expected": task.answer, "completion": self.policy.text(completion)}
                print(json.dumps(asked | asdict(outcome), ensure_ascii=False), file=file)
        return {"evaluated_at": self.iteration, "split": split, **self._describe(tasks, completions, outcomes)}

    def _most_likely(self, prompts: list[list[int]]) -> list[list[int]]:
        """The most likely completion of each prompt. Prompts of one length are written together."""
        found: list[list[int]] = [[] for _ in prompts]
        by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for _, group in groupby(by_length, key=lambda index: len(prompts[index])):
            rows = list(group)
            for row, completion in zip(rows, self.policy.sample([prompts[row] for row in rows], 0.0, self.train.tokens_max), strict=True):
                found[row] = completion
        return found

    # ------------------------------------------------------------ files

    def _log(self, line: dict[str, Any]) -> None:
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
            print(json.dumps(line), file=log)

    def _save(self) -> None:
        state = {
            "iteration": self.iteration,
            "cpu_s": self.cpu_s,
            "model": {name: value for name, value in self.policy.module().state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "tasks": self.tasks.state(),
            "base": self.base.state(),
            "rng": self.rng.getstate(),
            "torch": torch.get_rng_state(),
            "waiting": self.waiting,
        }
        partial = self.folder / "state.partial"
        torch.save(state, partial)
        partial.rename(self.folder / "state.pt")

    def _resume(self) -> None:
        # The file is this run's own; it holds the states of random generators, which are not tensors.
        state = torch.load(self.folder / "state.pt", weights_only=False)
        self.iteration, self.cpu_s, self.waiting = state["iteration"], state["cpu_s"], state["waiting"]
        self.policy.module().load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._drop_later_lines()
        self.tasks.restore(state["tasks"])
        self.base.restore(state["base"])
        self.rng.setstate(state["rng"])
        torch.set_rng_state(state["torch"])

    def _drop_later_lines(self) -> None:
        """Removes the figures of iterations after the checkpoint, which follow again."""
        path = self.folder / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        kept = [line for line in lines if max(line.get("iteration", 0), line.get("evaluated_at", 0)) <= self.iteration]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def rate_at(train: TrainSettings, iteration: int) -> float:
    """The part of the learning rate at an iteration."""
    if iteration < train.warm_up:
        return (iteration + 1) / train.warm_up
    if train.schedule == "constant":
        return 1.0
    share = (iteration - train.warm_up) / max(1, train.iterations - train.warm_up)
    return 0.5 * (1 + math.cos(math.pi * share))


def _pieces(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))


def _rows(flags: list[list[bool]], like: Tensor) -> Tensor:
    """Lists of flags as a tensor of the shape of `like`."""
    rows = torch.zeros_like(like)
    for row, own in enumerate(flags):
        rows[row, : len(own)] = torch.tensor(own, device=like.device)
    return rows
