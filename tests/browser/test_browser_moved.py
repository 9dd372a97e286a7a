"""Addresses from before a page was moved lead to where its text is now."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Served, Visit

Open = Callable[..., Visit]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("sessions/2025-10-12-n2~plans.html#plans", "sessions/2025-10-12-n2.html#plans"),
        ("runs/page/3.html#sort=Took", "runs/index.html#sort=Took"),
    ],
)
def test_the_address_of_a_part_leads_to_the_whole_page(
    own: Served, visit: Open, before: str, now: str
) -> None:
    seen = visit(own.http)
    seen.page.goto(f"{own.http}/{before}")
    seen.page.wait_for_url(f"{own.http}/{now}")
    seen.faults[:] = [fault for fault in seen.faults if "status of 404" not in fault]
    assert seen.page.locator("article h1").count() == 1


@pytest.mark.parametrize("way", ["http", "file"])
@pytest.mark.parametrize(
    ("anchor", "now"),
    [
        ("results.cuda.NVIDIA-H200", "results"), ("history.1", "history"),
        ("ladder.cuda", "variants"), ("results.newest", "correctness"), ("cases", "correctness"),
        ("design-3", "about"), ("mentioned-by", "about"),
    ],
)  # fmt: skip
def test_a_section_of_a_kernels_page_is_found_on_its_page_of_now(
    own: Served, visit: Open, way: str, anchor: str, now: str
) -> None:
    base = f"{own.bases()[way]}/kernels/split_k_attention"
    seen = visit(own.bases()[way])
    seen.page.goto(f"{base}.html#{anchor}")
    seen.page.wait_for_url(f"{base}/{now}.html#{anchor}")
    seen.page.wait_for_function("document.querySelector(':target') !== null")


def test_an_unknown_anchor_leads_nowhere(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    for anchor in ("nothing-of-the-kind", "sort=Case", "results-of-no-kind"):
        seen.goto(f"{own.http}/kernels/split_k_attention/results.html#{anchor}")
        assert seen.page.url.endswith(f"results.html#{anchor}")
