"""The tasks of a worker process.

Each kind of step defines its tasks in ``kbtool/steps/KIND/task.py``. The worker imports that file
before it has checked for torch, so tasks import torch inside ``run``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbtool.gpu.harness import Harness
from kbtool.model.base import Model
from kbtool.model.identity import Identity
from kbtool.model.kernel import CaseValue

if TYPE_CHECKING:
    import torch

Send = Callable[..., None]
"""Sends an event. Its fields are keyword arguments."""


class _Part(Protocol):
    """Results of the cases finished since the last report."""

    cases: Any

    def model_dump(self, *, mode: str) -> Any: ...


class Task(Model, ABC):
    """One request to a worker. Subclasses add their own fields."""

    library: str
    """The library to load, or a list of modules; see ``BuildPlan.library``."""
    modules: list[str] = []
    """The Python files to import after it, each under its name."""
    env: dict[str, str] = {}
    """Environment variables, set before anything is imported."""
    sha256: str
    """Expected hash of the library; another file is refused."""
    root: str
    """The knowledge base."""
    read_before: Identity
    """What earlier workers of the run have read; other content is refused."""
    closed: bool = False
    """Whether to refuse files that none of them has read."""
    harness: str
    """The harness to import."""
    interface: str | None = None
    """The Python interface of the operators, imported after the library."""
    cases: list[tuple[str, dict[str, CaseValue]]]
    """(case set, case) pairs."""
    device: str = "cpu"
    seed: int
    threads: int

    @abstractmethod
    def run(self, harness: Harness, send: Send) -> Any:
        """Run the task with the library loaded; returns data for JSON."""

    @property
    def torch_device(self) -> torch.device:
        """The device to run on."""
        import torch

        return torch.device(self.device)

    def progress(self, send: Send) -> Callable[[int, Any], None]:
        """A callback that reports the number of finished cases and the latest result."""

        def on_case(done: int, part: _Part) -> None:
            send(
                "progress", done=done, total=len(self.cases), label=part.cases[-1].name,
                part=part.model_dump(mode="json"),
            )  # fmt: skip

        return on_case
