"""Reads public question files that a user has, and writes them as `podium eval` and `podium rollout` read them.

The files are as their authors publish them: JSON lines or CSV, perhaps compressed by xz or gzip. Parquet must be converted first.
"""

from __future__ import annotations

import ast
import base64
import csv
import gzip
import hashlib
import io
import json
import lzma
import pickle
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Item = dict[str, Any]

_LETTERS = "ABCDEFGHIJ"
_BOXED = "\n\nPut the final answer in \\boxed{}."
_ONE_LETTER = "\n\nAnswer with the letter of the right option."
_PYTHON = "\n\nAnswer with complete Python code in one fenced block."


class BadFile(Exception):
    """A file is not of the format; the message names the line and the missing field."""


def open_text(path: Path) -> io.TextIOBase:
    """Opens a file that may be compressed."""
    kinds: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
    return kinds.get(path.suffix, open)(path, "rt", encoding="utf-8", newline="")


def json_lines(path: Path) -> Iterator[Row]:
    """The objects of a file of JSON lines."""
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise BadFile(f"{path}, line {number}: {error}") from error


def table(path: Path) -> Iterator[Row]:
    """The rows of a CSV file with a header."""
    csv.field_size_limit(1 << 30)
    with open_text(path) as file:
        yield from csv.DictReader(file)


def load(kind: str, path: Path, judge: str | None = None) -> Iterator[Item]:
    """The questions of a file. `judge` is the worker that compares free texts; without it they are compared exactly."""
    read = 0
    try:
        for item in READERS[kind](path, judge):
            yield item
            read += 1
    except KeyError as error:
        raise BadFile(f"{path}, item {read + 1}: it has no {error}; it is not a file of kind {kind}") from error


def options(question: str, choices: list[str]) -> str:
    """A question with its options."""
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(_LETTERS, choices, strict=False))
    return f"{question.strip()}\n\n{listed}{_ONE_LETTER}"


def _item(identity: str, question: str, answer: str, grader: Any, tags: list[str]) -> Item:
    return {"id": identity, "question": question, "answer": answer, "grader": grader, "tags": tags}


def _free_text(judge: str | None) -> Any:
    return {"kind": "judge", "worker": judge} if judge else "exact"


def _math500(path: Path, judge: str | None) -> Iterator[Item]:
    for row in json_lines(path):
        tags = [row["subject"], f"level {row['level']}"]
        yield _item(row["unique_id"], row["problem"] + _BOXED, row["answer"], "math", tags)


def _aime(path: Path, judge: str | None) -> Iterator[Item]:
    for number, row in enumerate(json_lines(path), start=1):
        low = {key.lower(): value for key, value in row.items()}
        yield _item(str(low.get("id", number)), low["problem"] + _BOXED, str(low["answer"]), "numeric", ["aime"])


def _mmlu(path: Path, judge: str | None) -> Iterator[Item]:
    if path.name.endswith((".csv", ".csv.xz", ".csv.gz")):
        subject = path.name.split(".")[0].removesuffix("_test").removesuffix("_dev").removesuffix("_val")
        with open_text(path) as file:
            for number, (question, *choices, answer) in enumerate(csv.reader(file), start=1):
                yield _item(f"{subject}-{number}", options(question, choices), answer.strip(), "choice", [subject])
        return
    for number, row in enumerate(json_lines(path), start=1):
        answer = row["answer"] if isinstance(row["answer"], str) else _LETTERS[row["answer"]]
        yield _item(f"mmlu-{number}", options(row["question"], row["choices"]), answer, "choice", [row["subject"]])


def _gpqa(path: Path, judge: str | None) -> Iterator[Item]:
    for number, row in enumerate(table(path), start=1):
        right = row["Correct Answer"].strip()
        choices = [right, *(row[f"Incorrect Answer {index}"].strip() for index in (1, 2, 3))]
        identity = row.get("Record ID") or f"gpqa-{number}"
        random.Random(identity).shuffle(choices)
        question = options(row["Question"], choices)
        yield _item(identity, question, _LETTERS[choices.index(right)], "choice", [row["High-level domain"]])


class _Plain(pickle.Unpickler):
    """Reads texts, numbers, lists and dictionaries only: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _test_cases(text: str) -> list[Row]:
    """The test cases of LiveCodeBench: JSON, or JSON in a pickle, compressed, in base 64."""
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        found = _Plain(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
        return json.loads(found) if isinstance(found, str) else found


def _livecodebench(path: Path, judge: str | None) -> Iterator[Item]:
    for row in json_lines(path):
        cases = _test_cases(row["public_test_cases"]) + _test_cases(row.get("private_test_cases", ""))
        question, starter = row["question_content"], row.get("starter_code", "")
        tags = [row["difficulty"], row["platform"]]
        if cases and cases[0].get("testtype") == "functional":
            name = json.loads(row["metadata"])["func_name"]
            asked = f"{question}\n\nComplete this code:\n```python\n{starter}\n```{_PYTHON}"
            yield _item(row["question_id"], asked, _calls(name, cases), "code", tags)
        else:
            tests = [{"stdin": case["input"], "stdout": case["output"]} for case in cases]
            asked = f"{question}\n\nThe program reads standard input and writes to standard output.{_PYTHON}"
            yield _item(row["question_id"], asked, "", {"kind": "code", "stdin_tests": tests}, tags)


def _calls(name: str, cases: list[Row]) -> str:
    """Statements that call a method with each case's arguments, one JSON value a line."""
    pairs = [([json.loads(line) for line in case["input"].splitlines() if line.strip()], json.loads(case["output"])) for case in cases]
    return (
        f"_cases = {pairs!r}\n_run = Solution().{name} if 'Solution' in globals() else {name}\n"
        "for _given, _wanted in _cases:\n    _found = _run(*_given)\n"
        "    assert (list(_found) if isinstance(_found, tuple) else _found) == _wanted\n"
    )


def _bigcodebench(path: Path, judge: str | None) -> Iterator[Item]:
    for row in json_lines(path):
        libraries = ast.literal_eval(row["libs"]) if isinstance(row["libs"], str) else row["libs"]
        grader = {"kind": "code", "limits": {"cpu_s": 60, "memory_mib": 4096}}
        yield _item(row["task_id"], row["instruct_prompt"] + _PYTHON, row["test"], grader, list(libraries))


def _rlpr(path: Path, judge: str | None) -> Iterator[Item]:
    for number, row in enumerate(json_lines(path), start=1):
        asked = row["prompt"]
        question = asked if isinstance(asked, str) else [turn["content"] for turn in asked if turn["role"] == "user"][-1]
        answer = str(row["reward_model"]["ground_truth"])
        yield _item(f"rlpr-{number}", question, answer, _free_text(judge), [row.get("data_source", "rlpr")])


def _llmrouter(path: Path, judge: str | None) -> Iterator[Item]:
    for number, row in enumerate(json_lines(path), start=1):
        question, answer, metric = row["question"], row["truth"], row["metric"]
        grader: Any
        if metric == "em_mc":
            choices = row["choices"]
            question, grader = options(question, choices["text"] if isinstance(choices, dict) else choices), "choice"
        elif metric == "code_eval":
            tests = answer if answer.lstrip().startswith(("METADATA", "def check")) else "\n".join(ast.literal_eval(answer))
            if "def check" in tests:
                tests += f"\ncheck({question[question.rindex('def ') :].split('(')[0].removeprefix('def ').strip()})\n"
            question, answer, grader = question + _PYTHON, tests, "code"
        elif metric == "GSM8K":
            answer, grader = answer.split("####")[-1].strip(), "numeric"
        elif metric == "MATH":
            grader = "math"
        elif metric == "f1_score":
            grader = _free_text(judge)
        else:
            continue  # Coverage of given words has no grader here.
        yield _item(f"llmrouter-{number}", question, answer, grader, [row["task"]])


READERS: dict[str, Callable[[Path, str | None], Iterator[Item]]] = {
    "math500": _math500,
    "aime": _aime,
    "mmlu": _mmlu,
    "gpqa": _gpqa,
    "livecodebench": _livecodebench,
    "bigcodebench": _bigcodebench,
    "rlpr": _rlpr,
    "llmrouter": _llmrouter,
    "routerbench": lambda path, judge: (item for item, _ in routerbench(path)),
}


def routerbench(path: Path) -> Iterator[tuple[Item, list[Row]]]:
    """Questions of RouterBench with options, and the recorded answers of each model for `vendor-sim --recorded`.

    The files have no expected answers, so a question that no model answered right is left out. They have costs and no tokens: an answer
    gets one completion token for each millionth of a dollar, so a worker that costs $1 per million output tokens and nothing for its
    input has the recorded cost.
    """
    for row in table(path):
        models = [name.removesuffix("|model_response") for name in row if name.endswith("|model_response")]
        # Some models have no answer to some questions.
        models = [model for model in models if row[model] and row[f"{model}|total_cost"]]
        answers = {model: first_text(row[f"{model}|model_response"]) for model in models}
        right = [_letter(answers[model]) for model in models if float(row[model]) == 1]
        letters = [letter for letter in right if letter]
        if not letters:
            continue
        question = first_text(row["prompt"])
        item = _item(row["sample_id"], question, max(set(letters), key=letters.count), "choice", [row["eval_name"]])
        recorded = [
            {
                "model": model.replace("/", "-"),
                "question": question,
                "answer": answers[model],
                "prompt_tokens": 0,
                "completion_tokens": round(float(row[f"{model}|total_cost"]) * 1e6),
            }
            for model in models
        ]
        yield item, recorded


def first_text(text: str) -> str:
    """The text of a list with one text, as Python prints it."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return str(found[0]) if isinstance(found, list) and found else text


def _letter(answer: str) -> str | None:
    stripped = answer.strip().strip("().*: ")
    return stripped if len(stripped) == 1 and stripped in _LETTERS else None


def worker_id(model: str) -> str:
    """The name of a model in the pool of `recorded_pool`."""
    return model.replace("/", "-").replace(".", "-").lower()


def recorded_pool(models: list[str]) -> str:
    """A pool file of recorded models, for `routerbench`."""
    digest = hashlib.sha256("\n".join(models).encode()).hexdigest()[:8]
    head = (
        "# Made by `podium-training questions routerbench`. A token stands for a millionth of a dollar.\n"
        f'schema = 1\nname = "recorded"\nversion = "{digest}"\n\n[[vendors]]\nid = "sim"\napi = "openai-chat"\n'
        'base_url = "http://127.0.0.1:8099/v1"\n'
    )
    worker = (
        '\n[[workers]]\nid = "{id}"\nvendor = "sim"\nmodel = "recorded/{model}"\ndescription = "Recorded answers."\n'
        "context_tokens = 131072\nusd_per_million_tokens = {{ input = 0.0, output = 1.0 }}\nfallbacks = []\n"
    )
    return head + "".join(worker.format(id=worker_id(model), model=model) for model in models)
