"""Everything that decides what comes out of a training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings of a run from scratch. Nano differs in steps (1500) and decay (850)."""

    steps: int = 2400
    batch: int = 24
    seed: int = 1
    vocabulary: int = 1280
    noise: float = 0.5
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    warm_up: int = 100
    decay: int = 1500
    """How many of the steps, at the end, the learning rate falls."""
    copies: float = 0.15
    """The share of examples that are random tokens or numbers to be repeated."""
    weight_decay: float = 0.01
