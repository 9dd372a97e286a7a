"""Which generator a knowledge base names, and what is said where it is missing or unknown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kbtool.model.errors import MachineError, UsageError
from kbtool.site.html.build import required_generator
from kbtool.site.needs import generator_of


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "mkdocs"),
        ("format: 2\n", "mkdocs"),
        ("format: 2\ngenerator: zensical\n", "zensical"),
        ("generator: 'zensical' # its successor\nformat: 2\n", "zensical"),
        ("# generator: zensical\nformat: 2\n", "mkdocs"),
        ("format: 2\r\ngenerator: mkdocs\r\n", "mkdocs"),
    ],
)
def test_the_generator_is_named_in_kbtool_yaml(
    tmp_path: Path, text: str | None, named: str
) -> None:
    if text is not None:
        (tmp_path / "kbtool.yaml").write_bytes(text.encode())
    assert generator_of(tmp_path) == named


def test_an_unknown_generator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kbtool.yaml").write_text("format: 2\ngenerator: hugo\n")
    with pytest.raises(UsageError, match="'hugo'; kbtool knows mkdocs or zensical"):
        required_generator(tmp_path)


@pytest.mark.parametrize(
    ("generator", "package", "extra"),
    [("mkdocs", "material", "site"), ("zensical", "zensical", "zensical")],
)
def test_a_generator_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generator: str, package: str, extra: str
) -> None:
    (tmp_path / "kbtool.yaml").write_text(f"generator: {generator}\n")
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == package else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(MachineError, match=rf"{package} is missing; .*kbtool\[{extra}\]"):
        required_generator(tmp_path)
