"""Everything that decides what comes out of a training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings of a run from scratch; the defaults are those that nano was made with."""

    steps: int = 4800
    batch: int = 24
    seed: int = 1
    vocabulary: int = 1536
    noise: float = 0.4
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    warm_up: int = 100
    decay: int = 3200
    """How many of the steps, at the end, the learning rate falls."""
    copies: float = 0.12
    """The share of examples that are random tokens, dates or numbers to be repeated."""
    weight_decay: float = 0.01
