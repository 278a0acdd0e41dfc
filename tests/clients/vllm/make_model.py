"""Writes the conductor that ships (`models/nano`) as vLLM wants a model: `make_model.py GGUF FOLDER`. Needs `gguf`, `numpy`, `safetensors`."""

import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import save_file

# It was trained for 1024 tokens; longer ones are for prompts whose beginning the chat template leaves out.
CONTEXT_TOKENS = 4096
CONTROL = 3
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
# How its tokenizer cuts text before it merges: `podium_training.tokenizer` says the same.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The model is shown only the question of a prompt with instructions: it was trained on questions alone.
CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{{ message['content'].split('<question>')[-1].split('</question>')[0] | trim }}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def name(tensor: str) -> str:
    if tensor in WHOLE:
        return WHOLE[tensor]
    _, layer, part, kind = tensor.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def tokenizer(tokens: list[str], merges: list[str], kinds: list[int]) -> dict:
    special = [index for index, kind in enumerate(kinds) if kind == CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    pieces = {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": tokens[index], **flags} for index in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pieces, to_bytes]},
        "decoder": to_bytes,
        "model": {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges},
    }


def main(weights: str, folder: pathlib.Path) -> None:
    reader = gguf.GGUFReader(weights)

    def value(key: str) -> object:
        return reader.fields[key].contents()

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(int(length) for length in reversed(tensor.shape))
        tensors[name(tensor.name)] = numpy.array(tensor.data).astype(numpy.float32).reshape(shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokens = value("tokenizer.ggml.tokens")
    end = value("tokenizer.ggml.eos_token_id")
    files = {
        "tokenizer.json": tokenizer(tokens, value("tokenizer.ggml.merges"), value("tokenizer.ggml.token_type")),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokens[end],
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": CHAT,
        },
        "generation_config.json": {"eos_token_id": end},
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": len(tokens),
            "hidden_size": value("qwen2.embedding_length"),
            "num_hidden_layers": value("qwen2.block_count"),
            "intermediate_size": value("qwen2.feed_forward_length"),
            "num_attention_heads": value("qwen2.attention.head_count"),
            "num_key_value_heads": value("qwen2.attention.head_count_kv"),
            "rope_theta": value("qwen2.rope.freq_base"),
            "rms_norm_eps": value("qwen2.attention.layer_norm_rms_epsilon"),
            "max_position_embeddings": CONTEXT_TOKENS,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "torch_dtype": "float32",
            "eos_token_id": end,
        },
    }
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))


main(sys.argv[1], pathlib.Path(sys.argv[2]))
