"""What the worker does for ``tune``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.task import Send, Task


class Tune(Task):
    """Time the library's own choice of a setting and all others."""

    of: list[str | None]
    """For each case, the variant to run; ``None``: the operator's own choice."""
    samples: int = 20

    def run(self, harness: Harness, send: Send) -> Any:
        """The result."""
        from kbtool.gpu.clock import clock_for
        from kbtool.gpu.tune import tune

        measured = tune(
            harness,
            list(zip(self.cases, self.of, strict=True)),
            clock_for(self.device, self.samples),
            sha256=self.sha256,
            threads=self.threads,
            seed=self.seed,
            on_case=self.progress(send),
        )
        return measured.model_dump(mode="json")
