"""A lost CUDA context is reported for the case that lost it, and for no later one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbtool.gpu import harness as harnesses
from kbtool.gpu import worker
from kbtool.gpu.harness import Harness, load_module
from kbtool.gpu.process import Completed
from kbtool.gpu.task import Send, Task
from kbtool.gpu.validate import Wanted, validate, validate_case
from kbtool.model.identity import Identity
from kbtool.steps.worker import worker_failure

CARD = torch.device("cuda")
ILLEGAL = "CUDA error: an illegal memory access was encountered"


class Card:
    """Stands for a card: a launch may end the context, which shows at the next wait."""

    def __init__(self) -> None:
        self.lost = False

    def synchronize(self, device: torch.device | None = None) -> None:
        if self.lost:
            raise RuntimeError(f"{ILLEGAL}\nSearch for `cudaErrorIllegalAddress' in ...")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    return made


def harness(card: Card, call: Any) -> Any:
    def make_inputs(case: Any, *, device: torch.device, seed: int) -> dict[str, Any]:
        card.synchronize()
        return {"x": torch.ones(3), "name": case["name"]}

    def exact(inputs: Any) -> dict[str, torch.Tensor]:
        return {"out": inputs["x"].double()}

    return SimpleNamespace(make_inputs=make_inputs, reference=exact, baseline=exact, call=call)


def test_an_error_that_shows_late_belongs_to_the_case_that_made_it(card: Card) -> None:
    def call(inputs: Any, **_: Any) -> dict[str, torch.Tensor]:
        card.lost = inputs["name"] == "second"
        return {"out": inputs["x"]}

    cases = [Wanted("set", {"name": name}) for name in ("first", "second", "third")]
    done, begun = [], []
    with pytest.raises(RuntimeError, match="illegal memory access"):
        validate(
            harness(card, call),
            cases,
            sha256="0" * 64,
            device=CARD,
            seed=1,
            on_case=lambda number, part: done.append(number),
            on_begin=begun.append,
        )
    assert (done, begun) == ([1], ["set/first", "set/second"])


def test_an_error_that_keeps_the_context_makes_a_wrong_case(card: Card) -> None:
    def call(inputs: Any, **_: Any) -> dict[str, torch.Tensor]:
        raise RuntimeError("no kernel takes these sizes")

    case = validate_case(harness(card, call), "set", {"name": "first"}, device=CARD, seed=1)
    assert case.message == "the call raised RuntimeError: no kernel takes these sizes"


class Lost(Task):
    """A task in which the harness meets a context that the kernel has ended."""

    def run(self, harness: Harness, send: Send) -> Any:
        harness.make_inputs({}, device=self.torch_device, seed=1)


def test_a_lost_context_is_not_reported_as_a_fault_of_the_harness(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "harness.py"
    broken.write_text(f"def make_inputs(case, *, device, seed): raise RuntimeError({ILLEGAL!r})\n")
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    monkeypatch.setattr(harnesses, "load_harness", lambda path: load_module(path, "broken"))
    task = Lost(
        library=str(tmp_path / "library.so"), sha256="0" * 64, root=str(tmp_path),
        read_before=Identity(), harness=str(broken), cases=[], device="cuda", seed=1, threads=1,
    )  # fmt: skip
    seal: Any = SimpleNamespace(
        linking=lambda library: nullcontext(),
        solution=nullcontext,
        identity=Identity,
        hold=lambda h: None,
    )
    assert worker._run(task, lambda *_, **__: None, seal)[0] == "failed"
    card.lost = True
    event, fields = worker._run(task, lambda *_, **__: None, seal)
    assert (event, fields["message"]) == ("crashed", f"the CUDA context was lost: {ILLEGAL}")


def test_a_step_says_in_which_case_the_context_was_lost() -> None:
    message = f"the CUDA context was lost: {ILLEGAL}"
    event = {"event": "crashed", "message": message, "error": ILLEGAL, "at": "edges/one"}
    outcome = worker_failure(event, Completed(0, "", 1.0, False), "validating")
    assert outcome is not None
    assert (outcome.status, outcome.error) == ("crashed", ILLEGAL)
    assert outcome.message == f"{message}, in edges/one"
