"""How the threads of a worker wait: without spinning, unless it measures times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbtool.model.identity import Identity
from kbtool.steps import worker


@pytest.mark.parametrize(
    ("times", "stated", "expected"),
    [(False, None, "PASSIVE"), (True, None, None), (False, "ACTIVE", None)],
)
def test_threads_that_wait_spin_only_where_times_are_measured(monkeypatch, times, stated, expected):
    seen: dict[str, str] = {}
    monkeypatch.setattr(worker, "run_process", lambda argv, **how: seen.update(how["env"]))
    if stated is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", stated)
    context: Any = SimpleNamespace(
        root=".", remaining=1, identity=Identity(), on_line=print, on_tick=print, hold=print
    )
    worker.run_worker({"threads": 3}, context, times=times)
    assert seen["OMP_NUM_THREADS"] == "3"
    assert seen.get("OMP_WAIT_POLICY") == expected
