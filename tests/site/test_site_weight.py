"""Every page is below the size limit, in bytes of HTML without charts."""

from __future__ import annotations

import re

from site_html import Site

MOST = 44_000
_CHART = re.compile(r'(<(?:div|span) class="kb-(?:chart|spark|bars)\b[^>]*>)<svg.*?</svg>')


def test_every_page_is_below_the_size_limit(site: Site) -> None:
    sizes = {
        path: len(_CHART.sub(r"\1", (site.out / path).read_text(encoding="utf-8")).encode())
        for path in site.pages
    }
    assert {path: size for path, size in sizes.items() if size > MOST} == {}
