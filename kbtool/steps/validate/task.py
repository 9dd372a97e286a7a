"""What the worker does for ``validate`` and ``mutants``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.task import Send, Task


class Validate(Task):
    """Compare the outputs of every case with the reference."""

    variant: str | None = None
    """The variant of the operator; ``None``: the operator's own choice."""
    profiled: list[int] = []
    """Numbers of cases whose errors are reported by index along ``profile_axis``."""
    profile_axis: int = 0

    def run(self, harness: Harness, send: Send) -> Any:
        """The validation, as a run records it."""
        from kbtool.gpu.validate import error_profile, validate

        settings: dict[str, Any] = {
            "device": self.torch_device, "seed": self.seed, "variant": self.variant,
        }  # fmt: skip
        result = validate(
            harness, self.cases, sha256=self.sha256, on_case=self.progress(send),
            on_begin=lambda place: send("at", label=place), **settings,
        )  # fmt: skip
        for number in self.profiled:
            errors = error_profile(harness, *self.cases[number], axis=self.profile_axis, **settings)
            send("profile", case=number, errors=errors)
        return result.model_dump(mode="json")
