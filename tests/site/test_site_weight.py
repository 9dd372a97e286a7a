"""No page is heavy: bytes of HTML, the charts left out."""

from __future__ import annotations

import re

import pytest
from site_html import Site

MOST = 40_000
_CHART = re.compile(r'(<(?:div|span) class="kb-(?:chart|spark|bars)\b[^>]*>)<svg.*?</svg>')


@pytest.mark.parametrize("name", ["plain_site", "hostile_site", "empty_site", "real_site"])
def test_no_page_is_heavy(request: pytest.FixtureRequest, name: str) -> None:
    site: Site = request.getfixturevalue(name)
    sizes = {
        path: len(_CHART.sub(r"\1", (site.out / path).read_text(encoding="utf-8")).encode())
        for path in site.pages
    }
    assert {path: size for path, size in sizes.items() if size > MOST} == {}
