"""What the worker does for ``minimise``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.shrink import Search, Verdict
from kbtool.gpu.task import Send, Task


class Minimise(Task):
    """Search for the smallest case that fails."""

    search: Search
    """The limits of the search, and the results of earlier processes."""
    variant: str | None = None
    """The variant of the operator; ``None``: the operator's own choice."""

    def run(self, harness: Harness, send: Send) -> Any:
        """The result; ``None`` if another process has to continue from what was reported so far."""
        from kbtool.gpu.minimise import ContextLostError, Prober, minimise

        def on_probe(key: str, label: str, verdict: Verdict | None) -> None:
            send("probe", key=key, label=label, verdict=verdict and verdict.model_dump())

        prober = Prober(
            harness,
            self.search,
            device=self.torch_device,
            seed=self.seed,
            variant=self.variant,
            on_probe=on_probe,
        )
        try:
            return minimise(prober, self.cases, self.sha256).model_dump(mode="json")
        except ContextLostError:
            return None
