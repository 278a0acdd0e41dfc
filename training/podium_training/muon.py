"""Muon in single precision: a momentum step whose direction is made orthogonal. Small models on a CPU learn about twice as fast with it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Coefficients of the quintic iteration, chosen for a steep slope at zero.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrix (roughly) of each matrix of a stack, by Newton-Schulz iteration."""
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; matrices of one shape are handled in one stack."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Moves every matrix by its learning rate."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                by_shape.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in by_shape.items():
                directions = orthogonal(torch.stack([self._momentum(matrix, group["momentum"]) for matrix in matrices]))
                rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for matrix, direction in zip(matrices, directions, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-rate)

    def _momentum(self, matrix: nn.Parameter, momentum: float) -> Tensor:
        assert matrix.grad is not None
        buffer = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
        buffer.lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(buffer, momentum)
