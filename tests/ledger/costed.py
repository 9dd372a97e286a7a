"""Sessions with costs, for tests of exports: by hand, and at random."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import strategies as st

from kbtool.model.session import Session


def line(kind: str, amount: str | None, basis: str = "claimed", **keys: Any) -> dict[str, Any]:
    """A cost line."""
    return {"kind": kind, "amount": amount, "basis": basis, **keys}


def session(id_: str, *costs: dict[str, Any], **keys: Any) -> Session:
    """A sound session with these cost lines; its label is the end of its id, in capitals."""
    data = {"id": id_, "label": id_.split("-")[-1].upper(), "title": "T", "origin": "person"}
    return Session.model_validate({**data, "status": "complete", "costs": list(costs), **keys})


_AMOUNT = st.decimals(min_value=0, max_value=10_000, places=3).map(str) | st.none()
_LINE = st.builds(
    line,
    st.sampled_from(["gpu", "ai", "engineer", "other"]),
    _AMOUNT,
    st.sampled_from(["claimed", "estimated", "billed"]),
    currency=st.sampled_from(["USD", "EUR"]),
    note=st.none() | st.text(min_size=1, max_size=20),
)
_DAY = st.dates(max_value=date(9000, 1, 1)).map(str) | st.just("undated")

SESSIONS = st.lists(st.tuples(_DAY, st.lists(_LINE, max_size=4)), max_size=5).map(
    lambda drawn: [session(f"{day}-s{n}", *lines) for n, (day, lines) in enumerate(drawn)]
)
"""Up to five sessions, dated and undated, of up to four lines in two currencies each."""
