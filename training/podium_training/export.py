"""A trained conductor as a GGUF file of the architecture "qwen2"."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer

from podium_training import tokenizer as bpe
from podium_training.model import Conductor

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TENSORS = {
    "attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.output": "attn_output",
    "attention_norm": "attn_norm", "feed_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
_TYPES = {
    "f16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
    "q8_0": (gguf.LlamaFileType.MOSTLY_Q8_0, gguf.GGMLQuantizationType.Q8_0),
}


def gguf_name(name: str) -> str:
    """The tensor name in GGUF for a parameter name of the model."""
    if name == "embedding.weight":
        return "token_embd.weight"
    if name == "norm.weight":
        return "output_norm.weight"
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if match is None:
        raise ValueError(f"no GGUF name for parameter {name}")
    layer, part, kind = match.groups()
    return f"blk.{layer}.{_TENSORS[part]}.{kind}"


def export(model: Conductor, tokenizer: Tokenizer, path: Path, *, name: str, kind: str = "f16") -> None:
    """Writes the file; matrices in `kind` ("f16" or "q8_0"), norms and biases in full precision."""
    file_type, matrix_type = _TYPES[kind]
    writer = gguf.GGUFWriter(str(path), "qwen2")
    _write_shape(writer, model, name, file_type)
    _write_tokenizer(writer, tokenizer)
    for parameter_name, parameter in model.state_dict().items():
        values = parameter.float().numpy()
        if values.ndim == 2:
            writer.add_tensor(gguf_name(parameter_name), gguf.quants.quantize(values, matrix_type), raw_dtype=matrix_type)
        else:
            writer.add_tensor(gguf_name(parameter_name), values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: gguf.GGUFWriter, model: Conductor, name: str, file_type: gguf.LlamaFileType) -> None:
    shape = model.shape
    writer.add_name(name)
    writer.add_license("Apache-2.0")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_file_type(file_type)


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(index) for index in range(size)]
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in bpe.SPECIAL else normal for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    end = tokenizer.token_to_id(bpe.END)
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(end)
    writer.add_pad_token_id(tokenizer.token_to_id(bpe.PAD))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)


def write_manifest(bundle: Path, slots: list[str]) -> None:
    """Writes `conductor.toml` for nano's weights in a folder. `podium bundle pack` fills in what is empty."""
    (bundle / "conductor.toml").write_text(
        f"""schema = 1
name = "nano-rl"
version = "1"
description = "A conductor of 2.5 million parameters, trained from rewards"

[weights]
file = "nano.gguf"
sha256 = ""

[prompt]
workers = "slots"
template = "chatml"
user = "{{{{question}}}}"
assistant_prefix = ""
subtasks = "copied"

[pool]
slots = {json.dumps(slots)}
trained_on = ""
hash = ""

[sampling]
temperature = 0.0
reasoning_tokens_max = 96
plan_tokens_max = 400
context_tokens = 1024
""",
        encoding="utf-8",
    )


def sha256(path: Path) -> str:
    """The checksum of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_checksum(bundle: Path) -> None:
    """Puts the checksum of the bundle's weights into its `conductor.toml`, leaving everything else as it is."""
    manifest = bundle / "conductor.toml"
    text = manifest.read_text(encoding="utf-8")
    weights = re.search(r'^\[weights\]\nfile = "([^"]+)"\nsha256 = "([^"]*)"', text, re.MULTILINE)
    if weights is None:
        raise ValueError(f"{manifest}: [weights] has no file with a sha256 after it")
    digest = sha256(bundle / weights.group(1))
    manifest.write_text(text[: weights.start(2)] + digest + text[weights.end(2) :], encoding="utf-8")
