"""What the worker does for ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kbtool.gpu.harness import Harness, HarnessWithSettings
from kbtool.gpu.task import Send, Task


class Tune(Task):
    """Time the library's own choice of a setting beside every other."""

    of: list[str | None]
    """For each case the version to run; its own choice where there is none."""
    samples: int = 20

    def run(self, harness: Harness, send: Send) -> Any:
        """What was measured, and the table with it; no table where it stays as it is."""
        from kbtool.gpu.clock import clock_for
        from kbtool.gpu.tune import tune, tuned_table

        measured = tune(
            harness,
            list(zip(self.cases, self.of, strict=True)),
            clock_for(self.device, self.samples),
            sha256=self.sha256,
            threads=self.threads,
            seed=self.seed,
            on_case=self.progress(send),
        )
        table = tuned_table(harness, Path(self.harness).parent, measured.cases)
        path = cast("HarnessWithSettings", harness).TABLE
        return {"measured": measured.model_dump(mode="json"), "table": table, "path": path}
