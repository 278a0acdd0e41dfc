"""How many rollouts `podium rollout` carries out in a second of processor time, with the demo's simulated workers in its process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from podium_training import plan
from podium_training.questions import GENERAL, Generator
from podium_training.rollouts import Rollout, Rollouts


def rollouts(count: int, steps: int) -> Iterator[Rollout]:
    """Right plans of questions with so many steps, for the slots of the demo pool."""
    generator, number = Generator("train", 5), 0
    while number < count:
        question = generator.draw()
        if question.shape != GENERAL and question.answer is not None and len(question.steps) == steps:
            completion = plan.render(list(question.steps)).removesuffix(plan.END)
            yield Rollout(str(number), question.text, question.answer, completion, number)
            number += 1


def measure(command: Sequence[str], count: int, steps: int) -> dict[str, Any]:
    """Carries out the rollouts, and measures the time of the whole process without the start of Python."""
    batch = list(rollouts(count, steps))
    before, began = os.times(), time.monotonic()
    with Rollouts(command) as process:
        outcomes = process.run(batch)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    wall_s = time.monotonic() - began
    return {
        "rollouts": count,
        "steps": steps,
        "right": sum(bool(outcome.is_right) for outcome in outcomes),
        "without_reward": sum(outcome.reward is None for outcome in outcomes),
        "cpu_s": round(cpu_s, 2),
        "wall_s": round(wall_s, 2),
        "rollouts_a_cpu_second": round(count / cpu_s, 1),
    }
