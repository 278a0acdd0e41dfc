"""Evaluation files: questions with exact answers, one JSON object a line, as `podium eval` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from podium_training.questions import GENERAL, Generator, Question


def questions(split: str, seed: int, count: int) -> Iterator[Question]:
    """Different questions with an answer that can be checked."""
    generator = Generator(split, seed)
    seen: set[str] = set()
    while len(seen) < count:
        question = generator.draw()
        if question.shape != GENERAL and question.text not in seen:
            seen.add(question.text)
            yield question


def record(question: Question, identity: str) -> str:
    """One line of an evaluation file."""
    skills = list(dict.fromkeys(step.skill for step in question.steps))
    fields = {"id": identity, "question": question.text, "answer": question.answer, "skills": skills, "steps": len(question.steps)}
    return json.dumps(fields, ensure_ascii=False)
