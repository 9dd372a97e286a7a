"""What a worker is asked to do.

A kind of step brings its tasks in ``kbtool/steps/KIND/task.py``. The worker imports that file
before it knows whether torch is there, so what needs torch is imported in ``run``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbtool.gpu.harness import Harness
from kbtool.model.base import Model
from kbtool.model.kernel import CaseValue

if TYPE_CHECKING:
    import torch

Send = Callable[..., None]
"""Reports an event by its name; the fields of the event are keyword arguments."""


class _Part(Protocol):
    """The result of the cases that were measured since the last report."""

    cases: Any

    def model_dump(self, *, mode: str) -> Any: ...


class Task(Model, ABC):
    """One request to a worker. A subclass adds the fields that only it needs."""

    library: str
    """The library to load."""
    sha256: str
    """Its hash; another file is refused."""
    harness: str
    """The harness to import."""
    interface: str | None = None
    """The Python face of the operators, imported after the library."""
    cases: list[tuple[str, dict[str, CaseValue]]]
    """(case set, case)."""
    device: str = "cpu"
    seed: int
    threads: int

    @abstractmethod
    def run(self, harness: Harness, send: Send) -> Any:
        """Do it, with the library loaded; what JSON can hold is returned."""

    @property
    def torch_device(self) -> torch.device:
        """Where to run."""
        import torch

        return torch.device(self.device)

    def progress(self, send: Send) -> Callable[[int, Any], None]:
        """Reports the number of cases that are done, and the result of the newest."""

        def on_case(done: int, part: _Part) -> None:
            send(
                "progress", done=done, total=len(self.cases), label=part.cases[-1].name,
                part=part.model_dump(mode="json"),
            )  # fmt: skip

        return on_case
