"""What the worker does for ``validate`` and ``mutants``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.neighbours import NONE_DEFINED, Neighbour, draw_neighbours
from kbtool.gpu.task import Send, Task
from kbtool.model.kernel import CaseValue, Kernel

if TYPE_CHECKING:
    from kbtool.gpu.validate import Wanted


class Validate(Task):
    """Compare the outputs of every case with the reference."""

    variants: list[str | None] = [None]
    """The variants of the operator; ``None``: the operator's own choice. A case is run with those
    that take it."""
    profiled: list[int] = []
    """Numbers of cases whose errors are reported by index along ``profile_axis``."""
    profile_axis: int = 0
    neighbours: int = 0
    """How many cases to draw beside each case set."""
    kernel: Kernel | None = None
    """The manifest, which tells what a variant takes. Default: every variant takes every case."""
    target: str = ""
    """The target that was built."""

    def run(self, harness: Harness, send: Send) -> Any:
        """The validation, as a run records it."""
        from kbtool.gpu.validate import Wanted, error_profile, validate

        send("at", label="the function neighbours of the harness")
        drawn, why_none = self._drawn(harness)
        if drawn:
            send("neighbours", count=sum(len(one.variants) for one in drawn))
        listed = [Wanted(name, case, self._taking(case)) for name, case in self.cases]
        result = validate(
            harness, [*listed, *drawn], sha256=self.sha256, device=self.torch_device,
            seed=self.seed, no_neighbours=why_none, on_case=self.progress(send),
            on_begin=lambda place: send("at", label=place),
        )  # fmt: skip
        for number in self.profiled:
            errors = error_profile(
                harness, *self.cases[number], axis=self.profile_axis, device=self.torch_device,
                seed=self.seed, variant=self.variants[0],
            )  # fmt: skip
            send("profile", case=number, errors=errors)
        return result.model_dump(mode="json")

    def _taking(self, case: Mapping[str, CaseValue]) -> list[str | None]:
        """The variants that take a case."""
        if self.kernel is None:
            return self.variants
        target = self.kernel.targets[self.target]
        return [variant for variant in self.variants if target.takes(case, variant)]

    def _drawn(self, harness: Harness) -> tuple[list[Wanted], str | None]:
        """The cases beside the listed ones, or why there are none. As many are drawn for each
        variant; most are the same."""
        from kbtool.gpu.validate import Wanted

        if self.kernel is None or not self.neighbours:
            return [], "the step asks for none"
        target = self.kernel.targets[self.target]
        drawn: dict[str, tuple[Neighbour, list[str | None]]] = {}
        for variant in self.variants:
            takes = partial(target.takes, variant=variant)
            listed = [(name, case) for name, case in self.cases if takes(case)]
            for one in draw_neighbours(
                harness, self.kernel, listed, self.neighbours, seed=self.seed, takes=takes
            ):
                drawn.setdefault(f"{one.case_set}/{one.case['name']}", (one, []))[1].append(variant)
        if drawn:
            return [Wanted(*one[:2], some, one.beside) for one, some in drawn.values()], None
        if not hasattr(harness, "neighbours"):
            return [], NONE_DEFINED
        return [], "the harness makes none that this target takes"
