"""What the worker does for ``validate`` and ``mutants``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.neighbours import NONE_DEFINED, Neighbour, draw_neighbours
from kbtool.gpu.task import Send, Task
from kbtool.model.kernel import Kernel


class Validate(Task):
    """Compare the outputs of every case with the reference."""

    variant: str | None = None
    """The variant of the operator; ``None``: the operator's own choice."""
    profiled: list[int] = []
    """Numbers of cases whose errors are reported by index along ``profile_axis``."""
    profile_axis: int = 0
    neighbours: int = 0
    """How many cases to draw beside each case set."""
    kernel: Kernel | None = None
    """The manifest, by which they are checked."""
    target: str = ""
    """The target that was built."""

    def run(self, harness: Harness, send: Send) -> Any:
        """The validation, as a run records it."""
        from kbtool.gpu.validate import error_profile, validate

        settings: dict[str, Any] = {
            "device": self.torch_device, "seed": self.seed, "variant": self.variant,
        }  # fmt: skip
        send("at", label="the function neighbours of the harness")
        drawn, why_none = self._drawn(harness)
        if drawn:
            send("neighbours", count=len(drawn))
        result = validate(
            harness, self.cases, sha256=self.sha256, on_case=self.progress(send),
            neighbours=drawn, no_neighbours=why_none,
            on_begin=lambda place: send("at", label=place), **settings,
        )  # fmt: skip
        for number in self.profiled:
            errors = error_profile(harness, *self.cases[number], axis=self.profile_axis, **settings)
            send("profile", case=number, errors=errors)
        return result.model_dump(mode="json")

    def _drawn(self, harness: Harness) -> tuple[list[Neighbour], str | None]:
        """The cases beside the listed ones, or why there are none."""
        if self.kernel is None or not self.neighbours:
            return [], "the step asks for none"
        target = self.kernel.targets[self.target]
        drawn = draw_neighbours(
            harness, self.kernel, self.cases, self.neighbours, seed=self.seed,
            takes=lambda case: target.takes(case, self.variant),
        )  # fmt: skip
        if drawn:
            return drawn, None
        if not hasattr(harness, "neighbours"):
            return [], NONE_DEFINED
        return [], "the harness makes none that this target takes"
