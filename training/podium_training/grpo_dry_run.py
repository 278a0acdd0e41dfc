"""Checks everything of a run that needs no model: settings, files, the pool, and that plans earn rewards. Needs no PyTorch."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

from podium_training import heldout, plan
from podium_training.grpo_settings import GrpoSettings
from podium_training.rollouts import Outcome, Rollout, Rollouts


class DryRunFailed(Exception):
    """The run could not begin; the message says why."""


def dry_run(settings: GrpoSettings) -> dict[str, Any]:
    """Carries out plans that give each question to each worker in turn, and one text that is no plan."""
    batch = _rollouts(settings)
    with Rollouts(settings.rollout_command()) as rollouts:
        outcomes = rollouts.run(batch)
    *carried_out, nonsense = outcomes
    _check(settings, carried_out, nonsense)
    train = settings.train
    scored = [outcome for outcome in carried_out if outcome.reward is not None]
    return {
        "rollouts_of_the_run": train.iterations * train.questions * train.rollouts,
        "tokens_max_of_the_run": train.iterations * train.questions * train.rollouts * train.tokens_max,
        "plans_tried": len(carried_out),
        "rewards": dict(sorted(Counter(str(outcome.reward) for outcome in outcomes).items())),
        "usd_of_a_rollout": sum(outcome.cost_usd for outcome in scored) / max(1, len(scored)),
    }


def _rollouts(settings: GrpoSettings) -> list[Rollout]:
    if settings.train.questions_file:
        path = settings.path(settings.train.questions_file)
        lines = [json.loads(line) for line in islice(path.open(encoding="utf-8"), 4) if line.strip()]
        questions = [(line["question"], line.get("answer", ""), line.get("grader", "exact")) for line in lines]
    else:
        questions = [(question.text, question.answer or "", "exact") for question in heldout.questions("train", 0, 4)]
    if settings.model.prompt and not settings.path(settings.model.prompt).exists():
        raise DryRunFailed(f"model.prompt: {settings.path(settings.model.prompt)} does not exist")
    batch = []
    for number, (question, answer, grader) in enumerate(questions):
        for worker in range(settings.positions()):
            text = plan.lists([worker], [question[:16000]], [[]])
            batch.append(Rollout(f"{number}-{worker}", question, answer, text, worker, grader, tuple(settings.rollout.slots)))
    question, answer, grader = questions[0]
    return [*batch, Rollout("nonsense", question, answer, "no plan", 0, grader, tuple(settings.rollout.slots))]


def _check(settings: GrpoSettings, carried_out: list[Outcome], nonsense: Outcome) -> None:
    if nonsense.reward != 0 or nonsense.is_plan:
        raise DryRunFailed(f"a text that is no plan has reward {nonsense.reward}")
    beyond = [outcome for outcome in carried_out if not outcome.is_plan]
    if beyond:
        raise DryRunFailed(f"rollout.workers is {settings.positions()}, and the pool refuses a plan: {beyond[0].problem}")
    unscored = [outcome for outcome in carried_out if outcome.reward is None]
    if len(unscored) == len(carried_out):
        raise DryRunFailed(f"no worker answers: {unscored[0].problem}")
