"""The commands that repeat a run."""

from __future__ import annotations

from shlex import quote

from kbtool.model.run import Run


def commands(run: Run, holder: str | None) -> list[str]:
    """The checkout of a commit with the sources that were built, and the recipe.

    Args:
        run: of a recipe.
        holder: such a commit (``kbtool.store.holders``); ``None`` if none is known.
    """
    settings = [f"--set {quote(f'{name}={value}')}" for name, value in run.parameters.items()]
    checkout = f"git checkout {holder}" if holder else "# No known commit holds what was measured."
    return [checkout, " ".join([f"kbtool run-recipe {run.recipe}", *settings])]
