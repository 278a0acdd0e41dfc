"""Holds an exported conductor under llama.cpp against its checkpoint: same greedy text. Needs the group "check"."""

from __future__ import annotations

import json
from pathlib import Path

import xllamacpp
from tokenizers import Tokenizer

from podium_training import heldout, plan
from podium_training.model import Conductor


def _server(path: Path) -> xllamacpp.Server:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 1024
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.verbosity = 0
    return xllamacpp.Server(parameters)


def _object(answer: dict | str) -> dict:
    return answer if isinstance(answer, dict) else json.loads(answer)


def compare(path: Path, model: Conductor, tokenizer: Tokenizer, count: int) -> dict[str, int]:
    """How many of the first held-out questions get the same text from both."""
    server, end = _server(path), tokenizer.token_to_id(plan.END)
    same_text = 0
    for question in heldout.questions("test", 1, count):
        prompt = plan.prompt(question.text)
        request = {"prompt": prompt, "n_predict": 400, "temperature": 0.0, "top_k": 1, "cache_prompt": False, "special": True}
        answer = _object(server.handle_completions(request))
        text = answer.get("content") or answer["choices"][0]["text"]
        expected = tokenizer.decode(model.complete(tokenizer.encode(prompt).ids, end, 400), skip_special_tokens=False)
        same_text += text.replace(plan.END, "") == expected
    return {"questions": count, "same_text": same_text}
