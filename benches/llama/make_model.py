#!/usr/bin/env python3
"""Makes a model with random weights in the shape of a real one, to measure speed on. It knows nothing, and is never committed.

Qwen2 architecture with tied embeddings, Q8_0. The vocabulary is a byte-level BPE trained on this project's own texts, filled up
with tokens that no text is cut into but the model can write, so that it is as large as a real one.

    uv run --with gguf==0.19.0 --with tokenizers==0.23.3 --with numpy make_model.py OUT [--layers 24 ...]

The defaults are the shape of Qwen2.5-0.5B. The result is the same on every run over the same texts.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TRAINED = 12_000


def texts():
    for pattern in ["crates/**/*.rs", "docs/**/*.md", "*.md"]:
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text(encoding="utf-8")


def vocabulary(size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=min(TRAINED, size - len(CONTROL)), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda entry: entry[1])]
    known = set(tokens)
    dice = np.random.default_rng(3)
    letters = np.array(list("etaoinshrdlucmfwygpbvkxqjz"))
    weights = 1.0 / np.arange(1, len(letters) + 1)
    while len(tokens) < size - len(CONTROL):
        word = "".join(dice.choice(letters, size=dice.integers(3, 10), p=weights / weights.sum()))
        # Most words of a real vocabulary begin with a blank, which byte-level BPE writes as this letter.
        word = "\u0120" + word if dice.random() < 0.6 else word
        if word not in known:
            known.add(word)
            tokens.append(word)
    kinds = [int(gguf.TokenType.NORMAL)] * len(tokens) + [int(gguf.TokenType.CONTROL)] * len(CONTROL)
    return tokens + CONTROL, kinds, [" ".join(pair) for pair in model["merges"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    for name, default in [
        ("vocabulary", 151_936), ("layers", 24), ("dimensions", 896), ("heads", 14), ("kv-heads", 2), ("feed-forward", 4864),
        ("context", 32_768),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    shape = parser.parse_args()
    tokens, kinds, merges = vocabulary(shape.vocabulary)

    writer = gguf.GGUFWriter(shape.out, "qwen2")
    writer.add_name("random")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.dimensions)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_bos_token_id(len(tokens) - 3)
    writer.add_pad_token_id(len(tokens) - 3)
    writer.add_add_bos_token(False)

    random = np.random.default_rng(7)

    def matrix(name, *size):
        weights = random.standard_normal(size, dtype=np.float32) * np.float32(0.02)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)

    def vector(name, size, value):
        writer.add_tensor(name, np.full(size, value, dtype=np.float32))

    matrix("token_embd.weight", len(tokens), shape.dimensions)
    vector("output_norm.weight", shape.dimensions, 1.0)
    key_size = shape.dimensions // shape.heads * shape.kv_heads
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        for norm in ["attn_norm", "ffn_norm"]:
            vector(f"{block}{norm}.weight", shape.dimensions, 1.0)
        for part, size in [("q", shape.dimensions), ("k", key_size), ("v", key_size)]:
            matrix(f"{block}attn_{part}.weight", size, shape.dimensions)
            vector(f"{block}attn_{part}.bias", size, 0.0)
        matrix(f"{block}attn_output.weight", shape.dimensions, shape.dimensions)
        matrix(f"{block}ffn_gate.weight", shape.feed_forward, shape.dimensions)
        matrix(f"{block}ffn_up.weight", shape.feed_forward, shape.dimensions)
        matrix(f"{block}ffn_down.weight", shape.dimensions, shape.feed_forward)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{shape.out}: {shape.out.stat().st_size / 1e6:.0f} MB, {len(tokens)} tokens")


if __name__ == "__main__":
    main()
