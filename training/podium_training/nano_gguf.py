"""Reads nano back from its GGUF file, for training that begins with it."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from podium_training import export
from podium_training import tokenizer as bpe
from podium_training.model import Conductor, Shape


def load(path: Path) -> tuple[Conductor, Tokenizer]:
    """The model and its tokenizer. Raises `ValueError` if the file holds another kind of model."""
    reader = gguf.GGUFReader(path)

    def value(key: str) -> object:
        found = reader.fields.get(key)
        if found is None:
            raise ValueError(f"{path}: no field {key}; it is not a model of this project")
        return found.contents()

    tokens = list(value("tokenizer.ggml.tokens"))  # type: ignore[call-overload]
    merges = [merge.split(" ") for merge in value("tokenizer.ggml.merges")]  # type: ignore[attr-defined]
    shape = Shape(
        vocabulary=len(tokens),
        width=int(value("qwen2.embedding_length")),  # type: ignore[call-overload]
        layers=int(value("qwen2.block_count")),  # type: ignore[call-overload]
        heads=int(value("qwen2.attention.head_count")),  # type: ignore[call-overload]
        hidden=int(value("qwen2.feed_forward_length")),  # type: ignore[call-overload]
        context=int(value("qwen2.context_length")),  # type: ignore[call-overload]
        rope_base=float(value("qwen2.rope.freq_base")),  # type: ignore[arg-type]
    )
    model = Conductor(shape)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    weights = {}
    for name, parameter in model.state_dict().items():
        tensor = tensors[export.gguf_name(name)]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weights[name] = torch.from_numpy(np.array(values, dtype=np.float32)).reshape(parameter.shape)
    model.load_state_dict(weights)
    return model, _tokenizer(tokens, merges)


def _tokenizer(tokens: list[str], merges: list[list[str]]) -> Tokenizer:
    """The tokenizer of a file, from its tokens and merges."""
    tokenizer = bpe.train([], 0)
    form = json.loads(tokenizer.to_str())
    form["model"]["vocab"] = {token: index for index, token in enumerate(tokens)}
    form["model"]["merges"] = merges
    for added in form["added_tokens"]:
        added["id"] = tokens.index(added["content"])
    return Tokenizer.from_str(json.dumps(form))
