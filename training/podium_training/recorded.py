"""Converts recorded outcomes of real models into the lines that `podium head` reads.

`llmrouter`: JSON lines with `question` and `scores`, a score from 0 to 1 for each model.
`routerbench`: the CSV files of RouterBench, with `prompt`, a score for each model, its cost in the column `MODEL|total_cost`, and
perhaps its answer in `MODEL|model_response` and the question's task in `eval_name`. The models have the names of the pool that
`podium-training questions routerbench --pool` writes.

The files are not part of this project. A name with `.xz` is decompressed.
"""

import csv
import hashlib
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from podium_training.loaders import first_text, worker_id

COST = "|total_cost"
ANSWER = "|model_response"


def opened(file: Path) -> TextIO:
    return lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8")


def outcome(question: str, model: str, reward: float, cost_usd: float | None) -> dict[str, Any]:
    if not 0 <= reward <= 1:
        raise ValueError(f"the score of {model} is {reward}, it must be 0 to 1")
    digest = hashlib.sha256(question.encode()).hexdigest()[:32]
    line = {"schema": 1, "question_id": f"q-{digest}", "question": question, "worker": model, "reward": reward}
    if cost_usd is not None:
        line["cost_nano_usd"] = round(cost_usd * 1e9)
    return line


def llmrouter(file: Path) -> Iterator[dict[str, Any]]:
    with opened(file) as lines:
        for line in lines:
            record = json.loads(line)
            for model, score in record["scores"].items():
                yield outcome(record["question"], model, float(score), None)


def routerbench(file: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(1 << 30)
    with opened(file) as lines:
        for row in csv.DictReader(lines):
            for column in row:
                model = column.removesuffix(COST)
                # Some models have no answer to some questions.
                if column.endswith(COST) and row[model]:
                    line = outcome(first_text(row["prompt"]), worker_id(model), float(row[model]), float(row[column]))
                    if answer := row.get(model + ANSWER):
                        line["answer"] = first_text(answer)
                    if task := row.get("eval_name"):
                        line["task"] = task
                    yield line


def convert(kind: str, files: list[Path], out: Path) -> int:
    """Writes the outcomes of the files to `out`, and returns their number."""
    read = {"llmrouter": llmrouter, "routerbench": routerbench}[kind]
    count = 0
    with out.open("w", encoding="utf-8") as lines:
        for file in files:
            for line in read(file):
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += 1
    return count
