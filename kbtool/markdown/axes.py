"""The grid of a chart, and what stands at its lines."""

from __future__ import annotations

from collections.abc import Iterable

from kbtool.markdown.escape import attribute


def levels(ticks: Iterable[tuple[float, str]], left: float, right: float) -> list[str]:
    """Lines across, with their names before them: height in pixels, name."""
    return [
        f'<line class="kb-grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{attribute(name)}</text>'
        for y, name in ticks
    ]


def columns(ticks: Iterable[tuple[float, str]], top: float, foot: float) -> list[str]:
    """Lines upright, with their names below them: place in pixels, name."""
    return [
        f'<line class="kb-grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{foot}"/>'
        f'<text x="{x:.1f}" y="{foot + 15}" text-anchor="middle">{attribute(name)}</text>'
        for x, name in ticks
    ]
