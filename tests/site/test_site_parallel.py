"""Pages are rendered by several processes."""

from __future__ import annotations

import os
import signal

import pytest

from kbtool.model.errors import MachineError
from kbtool.site.html import engine


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_processors", lambda: 2)


@pytest.mark.slow
def test_the_results_are_in_order():
    here = os.getpid()
    found = engine.shared(lambda number: (number, os.getpid()), range(500))
    assert [number for number, _ in found] == list(range(500))
    assert here not in {process for _, process in found}


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_build_and_is_told():
    def work(number: int) -> int:
        if number == 70:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(MachineError, match="a process that rendered pages was killed"):
        engine.shared(work, range(500))
