"""No record holds an infinite figure: it cannot be drawn, averaged or compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kbtool.model.run import Run

BASE = Path(__file__).parents[2] / "soak" / "base"


def figures(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a record has a figure that is no whole number."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for key, value in children:
        if isinstance(value, float):
            found.append((*path, key))
        elif isinstance(value, dict | list):
            found += figures(value, (*path, key))
    return found


@pytest.mark.parametrize("path", sorted(BASE.glob("sessions/*/runs/*.json")), ids=lambda p: p.stem)
@pytest.mark.parametrize("written", ["1e999", "-1e999"])
def test_an_infinite_figure_of_a_run_is_refused(path: Path, written: str) -> None:
    run = json.loads(path.read_text())
    free = {"case", "parameters"}  # cases hold what a harness takes
    for place in figures(run):
        if free.intersection(place):
            continue
        changed = json.loads(path.read_text())
        node = changed
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = float(written)
        with pytest.raises(ValidationError):
            Run.model_validate(changed)


@pytest.mark.parametrize(
    ("field", "value"),
    [("bytes", 10**400), ("bytes", -1), ("read_gb_s", 5e-324)],
    ids=["too many bytes", "negative bytes", "no rate"],
)
def test_a_figure_that_no_rate_follows_from_is_refused(field: str, value: float) -> None:
    path = next(iter(BASE.glob("sessions/*/runs/*-look-0001.json")))
    run = json.loads(path.read_text())
    (result,) = (step["result"] for step in run["steps"] if step["kind"] == "benchmark")
    holder = result if field in result else result["cases"][0]
    holder[field] = value
    with pytest.raises(ValidationError, match=field):
        Run.model_validate_json(json.dumps(run))
