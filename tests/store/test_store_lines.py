"""The line of each value of a document is the one that PyYAML's nodes give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kbtool.store.document import Document, parse

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted(
    path for where in ("sessions", "patterns", "kernels") for path in (ROOT / where).rglob("*.yaml")
)

values = st.recursive(
    st.none() | st.text("ab:#-' \n", max_size=9),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text("abc1", min_size=1), below),
    max_leaves=20,
)


def lines_of(node: Any, location: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, int]]:
    """Each place below a node of PyYAML, and the line that its mark names."""
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key.start_mark, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(place, item.start_mark, item) for place, item in enumerate(node.value)]
    else:
        return
    for name, mark, child in children:
        yield (*location, name), mark.line + 1
        yield from lines_of(child, (*location, name))


def check(document: Document) -> None:
    wanted = dict(lines_of(document.node))
    assert {location: document.line(location) for location in wanted} == wanted
    assert len(document.lines) == len(wanted) + 1


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name + "/" + path.name)
def test_every_value_of_the_repositorys_records_has_its_line(path):
    check(parse(path.read_bytes(), path.name))


@pytest.mark.slow
@given(st.dictionaries(st.text("abc1", min_size=1), values, min_size=1), st.booleans())
def test_every_value_of_a_random_document_has_its_line(data, flow):
    text = yaml.safe_dump(data, default_flow_style=flow, width=20)
    check(parse(f"# a comment\n\n{text}".encode(), "drawn"))


def test_a_missing_path_has_the_line_of_its_nearest_parent():
    document = parse(b"a:\n  - b: 1\n    c: 2\n", "d")
    assert document.line(["a", 0, "c"]) == 3
    assert document.line(["a", 0, "x"]) == document.line(["a", 0]) == 2
    assert document.line(["a", 7]) == document.line(["x"]) == 1
