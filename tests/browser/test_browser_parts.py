"""Pages that are split into parts or made smaller behave as whole ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import Served, Visit

Open = Callable[..., Visit]

KERNEL = "kernels/split_k_attention"
GLOSSARY = Path(__file__).parents[2] / "docs" / "guide" / "glossary.md"


@pytest.mark.parametrize("way", ["http", "file"])
@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("sessions/2025-10-12-n2.html#plans", "sessions/2025-10-12-n2~"),
        (f"{KERNEL}/src/cuda/fused/fused.cuh.html#L300", f"{KERNEL}/src/cuda/fused/fused.cuh~L"),
        ("guide/glossary.html#claim", "guide/glossary~"),
    ],
)
def test_an_address_from_before_a_page_was_cut_leads_to_its_place(
    own: Served, visit: Open, way: str, address: str, part: str
) -> None:
    base, anchor = own.bases()[way], address.partition("#")[2]
    seen = visit(base)
    seen.goto(f"{base}/{address}")
    seen.page.wait_for_url(f"{base}/{part}*#{anchor}")
    # There are two parts and more to come by: the last hop may still be under way.
    seen.page.wait_for_function("document.querySelector(':target') !== null")
    assert seen.page.evaluate("document.querySelector(':target').id") == anchor


def test_an_unknown_anchor_does_not_redirect_for_ever(own: Served, visit: Open) -> None:
    terms = re.findall(r"^### .*\{#([\w-]+)\}$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    seen = visit(own.http)
    seen.goto(f"{own.http}/guide/glossary.html#{terms[-1]}")
    seen.page.wait_for_function("document.querySelector(':target') !== null")
    last = seen.page.url.partition("#")[0]
    assert "glossary~" in last
    seen.goto(f"{own.http}/guide/glossary.html#nothing-of-the-kind")
    seen.page.wait_for_url(f"{last}#nothing-of-the-kind")


def test_the_state_of_a_table_in_the_address_is_not_followed_as_an_anchor(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/sessions/2025-10-12-n2.html#sort=Step")
    assert seen.page.url.endswith("n2.html#sort=Step")


def test_figures_are_aligned_by_what_the_table_says(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/tags.html")
    sides = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
    cells = seen.page.locator("article tbody tr").first.locator("td")
    assert cells.evaluate_all(sides) == ["left", "right", "right"]


def test_the_line_named_in_the_address_is_highlighted(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/{KERNEL}/src/cuda/fused/fused.cuh.html#L10")
    band = """id => getComputedStyle(document.getElementById(id), "::before").backgroundColor"""
    meant, other = (seen.page.evaluate(band, name) for name in ("L10", "L11"))
    assert meant != other and "0, 0, 0, 0" not in meant
    seen.page.locator("#L12").click()
    assert seen.page.url.endswith("#L12")
    assert seen.page.evaluate(band, "L12") == meant
