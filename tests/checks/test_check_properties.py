"""Whatever a file holds, ``check`` answers with findings and never with an exception."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from knowledge import SESSION, SESSION_LINE, Knowledge

from kbtool.checks.examine import examine
from kbtool.model.base import Instant, Quantity
from kbtool.model.control import CONTROL
from kbtool.store.document import DocumentError, parse
from kbtool.store.dump import dump, flow

KINDS = {
    "session": "sessions/2025-01-01-a/session.yaml",
    "notes": "sessions/2025-01-01-a/notes.md",
    "run": "sessions/2025-01-01-a/runs/20250101T000000Z-x.json",
    "pattern": "patterns/P01.yaml",
    "kernel": "kernels/add/kernel.yaml",
}
YAML_LIKE = st.lists(
    st.sampled_from(
        [
            "id", "label", "a", "- ", ": ", "\n", "\n  ", "[", "]", "{", "}", ",", "'", '"', "#",
            "null", "~", "|", ">", "&a", "*a", "!t", "?", "%", "---", "\t", "\r", "é", "\x85", "0",
            "bugs:\n  - ", "unknown:\n  ", "claims: [{of: [", "source: ", "follows: ", "cites: ",
        ]
    ),
    max_size=40,
).map("".join)  # fmt: skip
TEXT = st.text(max_size=20).filter(lambda text: not CONTROL.search(text))
DATA = st.recursive(
    st.none() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=300))
def test_arbitrary_bytes_give_findings_and_no_crash(kind, raw):
    examine(KINDS[kind], kind, raw)


@given(st.sampled_from(["session", "pattern", "kernel"]), YAML_LIKE)
def test_arbitrary_text_like_yaml_gives_findings_and_no_crash(kind, text):
    examine(KINDS[kind], kind, text.encode())


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*SESSION.split(), "unknown", "bugs"]), DATA, min_size=1))
def test_arbitrary_data_in_a_session_gives_findings_and_no_crash(data):
    head = SESSION_LINE + SESSION.format(id="2025-01-01-a", label="A")
    known = {line.split(":")[0] for line in SESSION.splitlines()}
    more = {key: value for key, value in data.items() if key not in known}
    try:
        text = head + dump(more)
        raw = text.encode()
    except UnicodeEncodeError:
        return
    examine(KINDS["session"], "session", raw)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_records_have_the_same_findings_with_and_without_the_cache(session, run):
    with tempfile.TemporaryDirectory() as folder:
        base = Knowledge(Path(folder))
        base.write(KINDS["session"], session)
        base.write(KINDS["run"], run)
        assert base.findings(cached=True) == base.findings(cached=False)


@pytest.mark.slow
@given(
    st.dictionaries(TEXT, DATA, min_size=1).filter(
        lambda data: not any("\ud800" <= c <= "\udfff" for c in repr(data))
    )
)
def test_dumped_data_parse_back_unchanged(data):
    text = dump(data)
    try:
        assert parse(text.encode(), "x").data == data
    except DocumentError as error:
        # Only depth is refused: every text without control characters can be written.
        assert "nested" in error.finding.message
    assert yaml.safe_load(text) == data  # nor does an editor see anything else


@pytest.mark.slow
@given(
    st.dictionaries(TEXT, DATA, min_size=1).filter(
        lambda data: not any("\ud800" <= c <= "\udfff" for c in repr(data))
    )
)
def test_data_dumped_on_one_line_parse_back_unchanged(data):
    text = flow(data)
    assert "\n" not in text
    try:
        assert parse(f"a: {text}\n".encode(), "x").data == {"a": data}
    except DocumentError as error:
        assert "nested" in error.finding.message
    assert yaml.safe_load(text) == data


@given(
    st.sampled_from(["", "~", "<", "<=", ">", ">=", "~ "]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.sampled_from(["", " min", "%", " USD/h", " lines of code", "×"]),
)
def test_quantities_keep_what_was_written(relation, number, unit):
    text = f"{relation}{number}{unit}"
    quantity = Quantity(text)
    assert str(quantity) == text.strip()
    assert quantity.low == number
    assert Quantity(str(quantity)) == quantity


@given(
    st.datetimes(datetime(1901, 1, 1), datetime(2998, 12, 31), timezones=st.timezones() | st.none())
)
def test_instants_keep_what_was_written(moment):
    text = moment.isoformat(timespec="minutes")
    instant = Instant(text)
    assert str(instant) == text
    assert instant.zoned == (moment.tzinfo is not None)
    assert Instant(str(instant)) == instant
