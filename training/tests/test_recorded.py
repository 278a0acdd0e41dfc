"""Recorded outcomes of other projects' formats, on small files of our own."""

import json
import lzma
from pathlib import Path

import pytest

from podium_training import recorded


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_llmrouter_scores_become_outcomes(tmp_path: Path) -> None:
    record = {"question": "2 + 2?", "task": "sums", "scores": {"vendor/small": 0.25, "big": 1.0}}
    with lzma.open(tmp_path / "outcomes.jsonl.xz", "wt") as file:
        file.write(json.dumps(record) + "\n" + json.dumps({**record, "question": "3 + 3?"}) + "\n")
    assert recorded.convert("llmrouter", [tmp_path / "outcomes.jsonl.xz"], tmp_path / "out") == 4
    first, second, third, _ = lines(tmp_path / "out")
    assert (first["worker"], first["reward"], second["worker"]) == ("vendor/small", 0.25, "big")
    assert first["question_id"] == second["question_id"] != third["question_id"]
    assert first["schema"] == 1 and "cost_nano_usd" not in first


def test_routerbench_has_costs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,small,small|model_response,small|total_cost\n"Why, then?",0.5,"Text",0.00002\nHow?,,,0\n')
    assert recorded.convert("routerbench", [tmp_path / "a.csv"], tmp_path / "out") == 1
    (only,) = lines(tmp_path / "out")
    assert (only["question"], only["worker"], only["reward"], only["cost_nano_usd"]) == ("Why, then?", "small", 0.5, 20_000)
    assert only["answer"] == "Text" and "task" not in only


def test_routerbench_has_answers_and_tasks(tmp_path: Path) -> None:
    header = "prompt,eval_name,a/B.1,a/B.1|model_response,a/B.1|total_cost"
    (tmp_path / "a.csv").write_text(header + "\n\"['Which?']\",arc,1.0,\"['B\\n']\",0.1\n")
    assert recorded.convert("routerbench", [tmp_path / "a.csv"], tmp_path / "out") == 1
    (only,) = lines(tmp_path / "out")
    assert (only["question"], only["worker"], only["answer"], only["task"]) == ("Which?", "a-b-1", "B\n", "arc")


def test_a_score_outside_0_to_1_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "?", "scores": {"m": 2.0}}) + "\n")
    with pytest.raises(ValueError, match=r"the score of m is 2\.0"):
        recorded.convert("llmrouter", [tmp_path / "a.jsonl"], tmp_path / "out")
