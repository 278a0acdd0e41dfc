"""Replaces a bundle's weights by newly trained ones, only if those plan about as well."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from podium_training import export, heldout, nano_gguf, plan
from podium_training.evaluate import evaluate


@dataclass(frozen=True)
class Verdict:
    """How many plans of the same questions are right in every part, without the grammar that copies subtasks from the question."""

    questions: int
    candidate: int
    present: int
    points_lost: float
    """How many percentage points below the present weights the candidate may be."""

    @property
    def passes(self) -> bool:
        """Whether the candidate may replace the present weights."""
        return 100 * (self.present - self.candidate) <= self.points_lost * self.questions

    def sentence(self) -> str:
        """The figures and the decision, for people."""
        kept = "replaced" if self.passes else f"kept; the new ones may have at most {self.points_lost:g} points less"
        shares = [f"{100 * right / self.questions:.1f} %" for right in (self.candidate, self.present)]
        return f"right plans of {self.questions} questions: new weights {shares[0]}, present ones {shares[1]}: {kept}"


def compare(candidate: Path, present: Path, count: int, points_lost: float, tokens_max: int = 400) -> Verdict:
    """Lets both weight files plan the same questions. They are of the split `valid`, so that no choice is made on `test`."""
    asked = list(heldout.questions("valid", 1, count))
    right = []
    for path in (candidate, present):
        model, tokenizer = nano_gguf.load(path)
        model.eval()
        end = tokenizer.token_to_id(plan.END)

        def complete(prompt: str, model=model, tokenizer=tokenizer, end=end) -> str:
            return tokenizer.decode(model.complete(tokenizer.encode(prompt).ids, end, tokens_max), skip_special_tokens=False)

        right.append(evaluate(complete, asked).right)
    return Verdict(count, right[0], right[1], points_lost)


def replace(candidate: Path, bundle: Path, count: int, points_lost: float) -> Verdict:
    """Copies the weights of the bundle `candidate` into `bundle` and writes their checksum there, if they pass. Otherwise `bundle` stays
    as it is. The weights' file appears under its name only when it is complete."""
    source, target = candidate / "nano.gguf", bundle / "nano.gguf"
    verdict = compare(source, target, count, points_lost)
    if verdict.passes:
        partial = bundle / "nano.gguf.partial"
        shutil.copyfile(source, partial)
        partial.rename(target)
        export.write_checksum(bundle)
    return verdict
