"""A small Qwen2: the same computation as the architecture "qwen2" of llama.cpp, with tied embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The dimensions of a model."""

    vocabulary: int
    width: int = 192
    layers: int = 5
    heads: int = 6
    hidden: int = 512
    context: int = 1024
    rope_base: float = 1e8
    norm_epsilon: float = 1e-6

    @property
    def head_width(self) -> int:
        """The width of one attention head."""
        return self.width // self.heads


class Attention(nn.Module):
    """Causal self-attention with rotary positions (the halves of a head are rotated against each other)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.width, shape.width)
        self.k = nn.Linear(shape.width, shape.width)
        self.v = nn.Linear(shape.width, shape.width)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, cache: Cache | None, layer: int) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            linear(x).view(batch, length, self.shape.heads, self.shape.head_width).transpose(1, 2) for linear in (self.q, self.k, self.v)
        )
        q, k = _rotate(q, cosine, sine), _rotate(k, cosine, sine)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Cache:
    """Keys and values of the tokens so far. The first call may be long, every later one is one token."""

    _SPARE = 64
    """Tokens for which memory is reserved ahead, so that most calls copy nothing."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.lengths: dict[int, int] = {}

    @property
    def length(self) -> int:
        """How many tokens are held."""
        return self.lengths.get(0, 0)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends keys and values of a layer and returns all of them."""
        start = self.lengths.get(layer, 0)
        end = start + k.shape[2]
        held = self.layers.get(layer)
        if held is None or held[0].shape[2] < end:
            grown = [new.new_empty((*new.shape[:2], end + self._SPARE, new.shape[3])) for new in (k, v)]
            for index, larger in enumerate(grown):
                if held is not None:
                    larger[:, :, :start] = held[index][:, :, :start]
            held = self.layers[layer] = grown[0], grown[1]
        held[0][:, :, start:end], held[1][:, :, start:end] = k, v
        self.lengths[layer] = end
        return held[0][:, :, :end], held[1][:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Forgets all texts of the batch except these rows, which move to its beginning in this order."""
        self.layers = {layer: (k[rows], v[rows]) for layer, (k, v) in self.layers.items()}


class Block(nn.Module):
    """One layer: attention and a gated feed-forward network, each behind its norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, cache: Cache | None, layer: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine, cache, layer)
        h = self.feed_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Conductor(nn.Module):
    """The whole model. `forward` gives hidden states after the last norm; `logits` turns chosen ones into scores."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        steps = torch.arange(0, shape.head_width, 2) / shape.head_width
        angles = torch.outer(torch.arange(shape.context), shape.rope_base**-steps)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                deep = name.endswith(("attention.output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * self.shape.layers) ** 0.5 if deep else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        start = cache.length if cache else 0
        span = slice(start, start + tokens.shape[1])
        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, self.cosine[span], self.sine[span], cache, layer)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary; the output matrix is the embedding."""
        return functional.linear(hidden, self.embedding.weight)

    @torch.inference_mode()
    def complete(self, prompt: list[int], end: int, tokens_max: int) -> list[int]:
        """Greedy text after a prompt, without the end token."""
        cache = Cache()
        tokens = torch.tensor([prompt])
        written: list[int] = []
        while len(written) < tokens_max:
            token = int(self.logits(self(tokens, cache)[0, -1]).argmax())
            if token == end:
                break
            written.append(token)
            tokens = torch.tensor([[token]])
        return written
