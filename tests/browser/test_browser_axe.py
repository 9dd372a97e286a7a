"""axe finds no accessibility violation on any kind of page, in either palette."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import Served, Visit

Open = Callable[..., Visit]
PALETTES = ["light", "dark"]
GROUNDS = {"light": (200, 255), "dark": (0, 70)}
"""Between which values each channel of a page's background lies."""
FEW_ROWS = """
for (const body of document.querySelectorAll("tbody"))
  for (const row of [...body.rows].slice(6)) row.remove()
"""
"""The rows of a table are alike, and axe looks at each element of each."""


def axe() -> str:
    """axe-core, as the package that brings it has it."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-core is missing; pip install axe-playwright-python")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("palette", PALETTES)
def test_axe_finds_no_violation_on_any_kind_of_page(own: Served, visit: Open, palette: str) -> None:
    script = axe()
    seen = visit(own.http, color_scheme=palette, reduced_motion="reduce")
    # The palettes differ in their colours only.
    asked: dict[str, list[str]] = {"resultTypes": ["violations"]}
    if palette == "dark":
        asked["runOnly"] = ["color-contrast", "link-in-text-block"]
    violations = []
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        low, high = GROUNDS[palette]
        channels = [int(part) for part in ground.strip("rgba()").split(",")[:3]]
        assert all(low <= channel <= high for channel in channels), (page, ground)
        seen.page.evaluate(FEW_ROWS)
        seen.page.evaluate(script)
        for found in seen.page.evaluate("o => axe.run(o).then(f => f.violations)", asked):
            nodes = [node["html"][:160] for node in found["nodes"]]
            violations.append((page, found["id"], len(nodes), nodes[:3]))
    assert violations == []


def test_axe_reports_an_image_without_alternative_text(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/index.html")
    seen.page.evaluate("document.querySelector('article').innerHTML += '<img src=\"data:,\">'")
    seen.page.evaluate(axe())
    found = seen.page.evaluate("axe.run().then(found => found.violations.map(v => v.id))")
    assert found == ["image-alt"]
