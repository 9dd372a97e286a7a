"""What the worker does for ``sanitise``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.task import Send, Task


class Run(Task):
    """Call the operator once on each case, without checking the output."""

    of: list[str | None]
    """For each case, the variant to run; ``None``: the operator's own choice."""

    def run(self, harness: Harness, send: Send) -> Any:
        """How many cases there were."""
        from kbtool.gpu.calls import run_cases

        return run_cases(
            harness,
            list(zip(self.cases, self.of, strict=True)),
            device=self.torch_device,
            seed=self.seed,
            on_case=lambda done, name: send(
                "progress", done=done, total=len(self.cases), label=name
            ),
        )
