"""Learning curves of reinforcement as an SVG image. Needs nothing but Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

FIGURES = ("reward", "plans", "right", "routing", "steps", "usd_per_thousand", "entropy")
"""The figures of an iteration that can be drawn."""
_SMOOTHED = 10
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 150, 52, 34, 40
_COLOURS = ("#1a73e8", "#d93025", "#188038", "#9334e6", "#e37400")


def read(path: Path) -> list[dict[str, Any]]:
    """The iterations of a `metrics.jsonl`, in order."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [line for line in lines if "iteration" in line]


def smoothed(values: Sequence[float | None], window: int = _SMOOTHED) -> list[float | None]:
    """The mean over each value and those before it, at most `window` of them; missing ones are left out."""
    found: list[float | None] = []
    for end in range(1, len(values) + 1):
        known = [value for value in values[max(0, end - window) : end] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def svg(runs: dict[str, list[dict[str, Any]]], figures: Sequence[str], note: str) -> str:
    """One panel for each figure, two in a row, with a line for each run: means over ten iterations."""
    rows = (len(figures) + 1) // 2
    width, height = 2 * (_LEFT + _WIDTH) + 30, rows * (_HEIGHT + _TOP + _GAP) + 44
    last = max((line["iteration"] for run in runs.values() for line in run), default=1)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, figure in enumerate(figures):
        left = _LEFT + (index % 2) * (_WIDTH + _LEFT)
        top = _TOP + (index // 2) * (_HEIGHT + _TOP + _GAP)
        out += _panel(runs, figure, left, top, last)
    at = height - 30
    for index, name in enumerate(runs):
        x = _LEFT + 130 * index
        out.append(f'<line x1="{x}" y1="{at}" x2="{x + 18}" y2="{at}" stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-width="2"/>')
        out.append(f'<text x="{x + 24}" y="{at + 4}">{escape(name)}</text>')
    out.append(f'<text x="{_LEFT}" y="{height - 8}" fill="#555">{escape(note)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _panel(runs: dict[str, list[dict[str, Any]]], figure: str, left: int, top: int, last: int) -> list[str]:
    lines = {name: smoothed([line.get(figure) for line in run]) for name, run in runs.items()}
    highest = max((value for line in lines.values() for value in line if value is not None), default=1.0)
    # Shares have the whole range from 0 to 1, other figures their own.
    full = 1.0 if figure in ("reward", "plans", "right", "routing") else highest or 1.0
    out = [f'<text x="{left}" y="{top - 10}" font-weight="bold">{escape(figure.replace("_", " "))}</text>']
    for part in range(5):
        y = top + _HEIGHT - _HEIGHT * part / 4
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{full * part / 4:.3g}</text>')
    out.append(f'<text x="{left}" y="{top + _HEIGHT + 16}">0</text>')
    out.append(f'<text x="{left + _WIDTH}" y="{top + _HEIGHT + 16}" text-anchor="end">{last} iterations</text>')
    for index, (name, run) in enumerate(runs.items()):
        points = [
            f"{left + _WIDTH * line['iteration'] / last:.1f},{top + _HEIGHT * (1 - value / full):.1f}"
            for line, value in zip(run, lines[name], strict=True)
            if value is not None
        ]
        colour = _COLOURS[index % len(_COLOURS)]
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return out
