#!/usr/bin/env python3
"""Makes a model with random weights in the shape of a real one, to measure speed on. It knows nothing, and is never committed.

Qwen2 architecture, Q8_0. The vocabulary is a byte-level BPE trained on this project's own texts, filled up
with tokens that no text is cut into but the model can write, so that it is as large as a real one.

    uv run --with gguf==0.19.0 --with tokenizers==0.23.3 --with numpy make_model.py OUT [--shape qwen2.5-7b] [--layers 24 ...]

The shape is that of Qwen2.5-0.5B unless another one is named. The result is the same on every run over the same texts.
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
SHAPES = {
    "qwen2.5-0.5b": {
        "vocabulary": 151_936, "layers": 24, "dimensions": 896, "heads": 14, "kv_heads": 2, "feed_forward": 4864, "tied": True,
    },
    "qwen2.5-7b": {
        "vocabulary": 152_064, "layers": 28, "dimensions": 3584, "heads": 28, "kv_heads": 4, "feed_forward": 18944, "tied": False,
    },
}
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
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-0.5b")
    parser.add_argument("--context", type=int, default=32_768)
    for name in ["vocabulary", "layers", "dimensions", "heads", "kv-heads", "feed-forward"]:
        parser.add_argument(f"--{name}", type=int, help="in place of the shape's")
    shape = parser.parse_args()
    for name, value in SHAPES[shape.shape].items():
        if getattr(shape, name, None) is None:
            setattr(shape, name, value)
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

    # A block of Q8_0: a scale of 16 bits, then 32 numbers of 8. Written as such, as a model of 7 billion is not to be made from
    # normal numbers of 32 bits. 73 is the deviation of -127 to 127.
    scale = np.frombuffer(np.float16(0.02 / 73).tobytes(), dtype=np.uint8)

    def matrix(name, rows, columns):
        blocks = np.empty((rows, columns // 32, 34), dtype=np.uint8)
        blocks[:, :, :2] = scale
        blocks[:, :, 2:] = random.integers(-127, 128, (rows, columns // 32, 32), dtype=np.int8).view(np.uint8)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=kind)

    def vector(name, size, value):
        writer.add_tensor(name, np.full(size, value, dtype=np.float32))

    matrix("token_embd.weight", len(tokens), shape.dimensions)
    if not shape.tied:
        matrix("output.weight", len(tokens), shape.dimensions)
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
