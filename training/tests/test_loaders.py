"""Loaders of public question files, on small files of their formats that were written for these tests."""

import base64
import json
import lzma
import pickle
import zlib
from pathlib import Path

import pytest

from podium_training import loaders


def written(folder: Path, name: str, *rows: object) -> Path:
    path = folder / name
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(kind: str, path: Path, judge: str | None = None) -> list[dict]:
    return list(loaders.load(kind, path, judge))


def test_math_and_aime(tmp_path: Path) -> None:
    row = {"problem": "Add 1/4 and 1/2.", "answer": "\\frac{3}{4}", "subject": "Arithmetic", "level": 2, "unique_id": "t/1"}
    (item,) = loaded("math500", written(tmp_path, "math.jsonl", row))
    assert (item["id"], item["answer"], item["grader"], item["tags"]) == ("t/1", "\\frac{3}{4}", "math", ["Arithmetic", "level 2"])
    assert item["question"].startswith("Add 1/4") and "\\boxed" in item["question"]
    (item,) = loaded("aime", written(tmp_path, "aime.jsonl", {"ID": "2024-I-1", "Problem": "How many?", "Answer": 204}))
    assert (item["id"], item["answer"], item["grader"]) == ("2024-I-1", "204", "numeric")


def test_multiple_choice(tmp_path: Path) -> None:
    path = written(tmp_path, "abstract_algebra_test.csv", '"Which, of these?",one,two,three,four,C')
    (item,) = loaded("mmlu", path)
    assert (item["id"], item["answer"], item["tags"]) == ("abstract_algebra-1", "C", ["abstract_algebra"])
    assert "Which, of these?\n\nA. one\nB. two" in item["question"]
    row = {"question": "Which?", "subject": "law", "choices": ["a", "b", "c", "d"], "answer": 3}
    (item,) = loaded("mmlu", written(tmp_path, "mmlu.jsonl", row))
    assert (item["answer"], item["grader"]) == ("D", "choice")
    header = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3,High-level domain,Record ID"
    path = written(tmp_path, "gpqa.csv", header, *(f"Q{n}?,right,wrong,worse,worst,Physics,rec{n}" for n in range(20)))
    items = loaded("gpqa", path)
    for item in items:
        assert f"\n{item['answer']}. right\n" in item["question"] and item["tags"] == ["Physics"]
    assert len({item["answer"] for item in items}) == 4, "the right option is not always in one place"
    assert loaded("gpqa", path) == items


def test_livecodebench(tmp_path: Path) -> None:
    row = {"question_content": "Double it.", "question_id": "1_A", "difficulty": "easy", "platform": "x", "metadata": "{}"}
    public = json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}])
    hidden = base64.b64encode(zlib.compress(pickle.dumps(json.dumps([{"input": "3", "output": "6", "testtype": "stdin"}])))).decode()
    path = written(tmp_path, "lcb.jsonl", row | {"public_test_cases": public, "private_test_cases": hidden})
    (item,) = loaded("livecodebench", path)
    assert item["grader"] == {"kind": "code", "stdin_tests": [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "3", "stdout": "6"}]}
    calls = json.dumps([{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}])
    method = {"starter_code": "class Solution: ...", "metadata": json.dumps({"func_name": "total"}), "public_test_cases": calls}
    (item,) = loaded("livecodebench", written(tmp_path, "method.jsonl", row | method))
    right = "class Solution:\n    def total(self, some, more):\n        return sum(some) + more\n"
    exec(right + item["answer"], {})
    with pytest.raises(AssertionError):
        exec(right.replace("+ more", "") + item["answer"], {})


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return print, ("run",)

    hidden = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(pickle.UnpicklingError, match="not plain data"):
        loaders._test_cases(hidden)


def test_bigcodebench_and_rlpr(tmp_path: Path) -> None:
    row = {"task_id": "BigCodeBench/0", "instruct_prompt": "Write task_func.", "test": "import unittest", "libs": "['random', 'itertools']"}
    (item,) = loaded("bigcodebench", written(tmp_path, "bcb.jsonl", row))
    assert (item["answer"], item["tags"], item["grader"]["kind"]) == ("import unittest", ["random", "itertools"], "code")
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "Why?"}]
    path = written(tmp_path, "rlpr.jsonl", {"prompt": turns, "reward_model": {"ground_truth": "because"}, "data_source": "x"})
    assert loaded("rlpr", path)[0]["grader"] == "exact"
    (item,) = loaded("rlpr", path, judge="worker-d")
    assert (item["question"], item["answer"], item["grader"]) == ("Why?", "because", {"kind": "judge", "worker": "worker-d"})


def test_llmrouter(tmp_path: Path) -> None:
    base = {"task": "t", "choices": None, "scores": {}}
    rows = [
        base | {"question": "Which?", "truth": "B", "metric": "em_mc", "choices": {"text": ["x", "y"], "labels": ["A", "B"]}},
        base | {"question": "How much?", "truth": "Half is 9.\n#### 18", "metric": "GSM8K"},
        base | {"question": "Write f.", "truth": "['assert f(1) == 2', 'assert f(2) == 3']", "metric": "code_eval"},
        base | {"question": "def g(x):\n    ...", "truth": "\nMETADATA = {}\n\ndef check(f):\n    assert f(1)", "metric": "code_eval"},
        base | {"question": "Use all.", "truth": "a, b", "metric": "commongen_coverage"},
        base | {"question": "Who?", "truth": "Ada", "metric": "f1_score"},
    ]
    path = tmp_path / "outcomes.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, rows)).encode()))
    items = loaded("llmrouter", path)
    assert [item["grader"] for item in items] == ["choice", "numeric", "code", "code", "exact"]
    assert [item["answer"] for item in items[:3]] == ["B", "18", "assert f(1) == 2\nassert f(2) == 3"]
    assert items[3]["answer"].endswith("check(g)\n") and items[0]["question"].startswith("Which?\n\nA. x\nB. y")


def test_routerbench_gives_questions_answers_and_a_pool(tmp_path: Path) -> None:
    names = ["a/one", "two"]
    header = ["sample_id", "prompt", "eval_name", *names, *(f"{n}|model_response" for n in names), *(f"{n}|total_cost" for n in names)]
    path = written(
        tmp_path,
        "bench.csv",
        ",".join(header),
        "arc.1,\"['Which?']\",arc,1.0,0.0,\"['B\\n']\",['A'],0.000532,0.001",
        "arc.2,\"['None?']\",arc,0.0,0.0,['A'],['A'],0.1,0.1",
        "arc.3,\"['One?']\",arc,1.0,,['C'],,0.1,0.2",
    )
    found = list(loaders.routerbench(path))
    assert [(item["id"], item["answer"]) for item, _ in found] == [("arc.1", "B"), ("arc.3", "C")]
    assert found[0][1][0] == {"model": "a-one", "question": "Which?", "answer": "B\n", "prompt_tokens": 0, "completion_tokens": 532}
    assert [answer["model"] for answer in found[1][1]] == ["a-one"]
    assert 'model = "recorded/a-one"' in loaders.recorded_pool(["a-one", "two"])


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(loaders.BadFile, match=r"item 1: it has no 'subject'; it is not a file of kind math500"):
        loaded("math500", written(tmp_path, "x.jsonl", {"problem": "p"}))
    with pytest.raises(loaders.BadFile, match="line 2"):
        loaded("math500", written(tmp_path, "y.jsonl", {"problem": "p", "answer": "a", "subject": "s", "level": 1, "unique_id": "u"}, "{"))
