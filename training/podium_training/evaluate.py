"""How right are plans? Offline, against the plan that belongs to each question; no worker is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from podium_training import plan
from podium_training.questions import Question


@dataclass
class Score:
    """Counts over a set of questions. `right` means: same slots, same subtasks, same access lists."""

    questions: int = 0
    parsed: int = 0
    slots: int = 0
    access: int = 0
    subtasks: int = 0
    right: int = 0
    by_shape: Counter[str] = field(default_factory=Counter)
    right_by_shape: Counter[str] = field(default_factory=Counter)
    misses: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, question: Question, text: str) -> None:
        """Counts one answer of the conductor."""
        wanted, got = plan.lists_of(list(question.steps)), plan.parse(text)
        self.questions += 1
        self.by_shape[question.shape] += 1
        self.parsed += got is not None
        self.slots += got is not None and got.slots == wanted.slots
        self.access += got is not None and got.access == wanted.access
        self.subtasks += got is not None and got.subtasks == wanted.subtasks
        if got == wanted:
            self.right += 1
            self.right_by_shape[question.shape] += 1
        else:
            self.misses.append((question.text, plan.render(list(question.steps)), text))

    def report(self) -> dict[str, object]:
        """Shares of all questions, and of each shape."""
        shares = {name: round(getattr(self, name) / self.questions, 4) for name in ("parsed", "slots", "access", "subtasks", "right")}
        shapes = {shape: f"{self.right_by_shape[shape]}/{count}" for shape, count in sorted(self.by_shape.items())}
        return {"questions": self.questions, **shares, "right_by_shape": shapes}


def evaluate(complete: Callable[[str], str], questions: Iterable[Question]) -> Score:
    """Lets a conductor plan every question. `complete` takes a prompt and gives the text up to the end token."""
    score = Score()
    for question in questions:
        score.add(question, complete(plan.prompt(question.text)))
    return score
