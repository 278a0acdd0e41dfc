"""Converts a BERT sentence encoder from Hugging Face files to GGUF, and computes its vectors with numpy to check the result.

The files are `config.json`, `model.safetensors` and `tokenizer.json` or `vocab.txt`, as sentence-transformers packages have them.
"""

import json
import math
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The settings and weights of an encoder."""
    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") != "bert" or config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{folder} has a {config.get('model_type')} model, only BERT with absolute positions can be converted")
    return config, {name.removeprefix("bert."): array for name, array in safetensors(folder / "model.safetensors").items()}


def safetensors(file: Path) -> dict[str, Array]:
    """The floating-point tensors of a safetensors file, as 32-bit floats."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    kinds = {"F32": np.float32, "F16": np.float16}
    arrays = {}
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in kinds:
            continue
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        values = np.frombuffer(data[begin:end], dtype=kinds[tensor["dtype"]])
        arrays[name] = values.astype(np.float32).reshape(tensor["shape"])
    return arrays


def vocabulary(folder: Path) -> list[str]:
    """The tokens in the order of their ids."""
    if (folder / "vocab.txt").exists():
        return (folder / "vocab.txt").read_text().splitlines()
    entries = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return sorted(entries, key=entries.__getitem__)


def gguf_token(token: str) -> str:
    """llama.cpp marks the beginning of a word, BERT its continuation."""
    if token in SPECIAL or (token.startswith("[unused") and token.endswith("]")):
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def convert(folder: Path, out: Path) -> None:
    """Writes the encoder in `folder` to `out`: matrices as 16-bit floats, the rest as 32-bit floats."""
    config, weights = read(folder)
    tokens = vocabulary(folder)
    if len(tokens) != len(weights["embeddings.word_embeddings.weight"]):
        raise ValueError(f"{folder} has {len(tokens)} tokens and {len(weights['embeddings.word_embeddings.weight'])} embeddings")
    writer = gguf.GGUFWriter(str(out), "bert")
    writer.add_name(folder.parent.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([gguf_token(token) for token in tokens])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if gguf_token(token) == token and token.startswith("[") else normal for token in tokens])
    pad, unknown, cls, sep, mask = (tokens.index(token) for token in SPECIAL)
    writer.add_bos_token_id(cls)
    writer.add_eos_token_id(sep)
    writer.add_sep_token_id(sep)
    writer.add_unk_token_id(unknown)
    writer.add_pad_token_id(pad)
    writer.add_mask_token_id(mask)
    names = {f"embeddings.{theirs}": ours for theirs, ours in EMBEDDINGS.items()}
    for layer in range(config["num_hidden_layers"]):
        names |= {f"encoder.layer.{layer}.{theirs}": f"blk.{layer}.{ours}" for theirs, ours in LAYER.items()}
    for theirs, ours in names.items():
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in weights:
                array = weights[f"{theirs}.{part}"]
                is_matrix = array.ndim == 2 and ours not in ("position_embd", "token_types")
                writer.add_tensor(f"{ours}.{part}", array.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vector(config: dict[str, Any], weights: dict[str, Array], ids: list[int]) -> Array:
    """The encoder's vector of these tokens, which begin with [CLS] and end with [SEP]: the mean output, with length 1."""

    def norm(x: Array, name: str) -> Array:
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def dense(x: Array, name: str) -> Array:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    count, heads = len(ids), config["num_attention_heads"]
    words = weights["embeddings.word_embeddings.weight"][ids]
    positions = weights["embeddings.position_embeddings.weight"][:count]
    x = norm(words + positions + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    erf = np.vectorize(math.erf)
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{at}.attention.self.{name}").reshape(count, heads, -1).transpose(1, 0, 2) for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        mixed = dense(mixed.transpose(1, 0, 2).reshape(count, -1), f"{at}.attention.output.dense")
        x = norm(x + mixed, f"{at}.attention.output.LayerNorm")
        inner = dense(x, f"{at}.intermediate.dense")
        inner = 0.5 * inner * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    mean = x.mean(0)
    return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)
