"""Weights to start from: heads that already copy.

A plan copies spans of the question. The circuit for that is known: heads in the first layer tell each position which tokens came before it,
heads in the second find the earlier position that came after the same tokens and repeat what stands there. Left to chance, it takes a
model of this size millions of tokens to find it. Here some heads are given it before training, which may then change everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from podium_training.model import Attention, Conductor

_DISTANT = 0.02
"""Rotary pairs that turn by less than this a position still match over a whole prompt."""


@dataclass(frozen=True)
class Circuit:
    """How the copying heads are set up: strengths, found by trying on untrained models, and shares of a head's dimensions."""

    embedding: float = 2.5
    sharp: float = 12.0
    fast_pairs: int = 5
    tell: float = 0.08
    match: float = 3.5
    write: float = 0.9
    heads: int = 6
    shares: tuple[int, ...] = (10, 8, 6)


def prepare(model: Conductor, seed: int, circuit: Circuit | None = None) -> None:
    """Gives the model the copying circuit; everything else keeps its random weights."""
    circuit = circuit or Circuit()
    generator = torch.Generator().manual_seed(seed)
    shape = model.shape
    head = shape.head_width
    same = _rotation(shape.width, generator)
    before = _rotation(shape.width, generator)
    frequencies = shape.rope_base ** (-torch.arange(0, head, 2) / head)
    with torch.no_grad():
        model.embedding.weight.mul_(circuit.embedding)
        first = model.blocks[0].attention
        # Heads 0 and 1 look one position back, 2 two, 3 three; each writes what it sees into a space of its own.
        for index, distance in enumerate((1, 1, 2, 3)):
            span = slice(index * head, (index + 1) * head)
            _look_back(first, span, frequencies[: circuit.fast_pairs], distance, circuit.sharp)
            first.v.weight[span] = same[head : 2 * head] if index == 1 else same[:head]
            first.output.weight[:, span] = before[span].T * circuit.tell
        told = [before[index * head : (index + 1) * head] for index in range(4)]
        pairs = [(same[: 2 * head], torch.cat((told[0], told[1]))), (told[0], told[2]), (told[2], told[3])]
        slow = [pair for pair in range(head // 2) if frequencies[pair] < _DISTANT]
        rows = slow + [pair + head // 2 for pair in slow]
        for index in range(min(circuit.heads, shape.heads)):
            _copy(model.blocks[1].attention, index, rows, pairs, same, circuit, generator)


def _rotation(width: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]


def _look_back(attention: Attention, span: slice, frequencies: Tensor, distance: int, strength: float) -> None:
    """Biases with which a head attends `distance` positions back: rotary angles agree there and nowhere near."""
    half = (span.stop - span.start) // 2
    for pair, frequency in enumerate(frequencies):
        angle = frequency * distance
        attention.q.bias[span.start + pair] = strength
        attention.k.bias[span.start + pair] = strength * angle.cos()
        attention.k.bias[span.start + pair + half] = strength * angle.sin()


def _copy(
    attention: Attention,
    index: int,
    rows: list[int],
    pairs: list[tuple[Tensor, Tensor]],
    same: Tensor,
    circuit: Circuit,
    generator: torch.Generator,
) -> None:
    """A head that compares what it is told here with what later positions were told, and writes the token that stood there."""
    head = attention.shape.head_width
    free = iter(rows)
    for share, (here, there) in zip(circuit.shares, pairs, strict=True):
        chosen = torch.randperm(len(here), generator=generator)[:share]
        for dimension, row in zip(chosen, free, strict=False):
            attention.q.weight[index * head + row] = here[dimension] * circuit.match
            attention.k.weight[index * head + row] = there[dimension] * circuit.match
    span = slice(index * head, (index + 1) * head)
    attention.v.weight[span] = same[span]
    attention.output.weight[:, span] = same[span].T * circuit.write
