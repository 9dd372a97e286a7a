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
