"""Forget a recipe: take it out of its pattern, and record when and why in the excuses."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from kbtool.model.errors import NotFoundError, RecordError, UsageError
from kbtool.model.excuses import Excuses, Forgotten
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.store.document import Document, DocumentError, parse, read_bytes
from kbtool.store.dump import Data
from kbtool.store.load import validate
from kbtool.store.lock import lock
from kbtool.store.private import private_folder
from kbtool.store.scan import EXCUSES
from kbtool.store.schema import modeline
from kbtool.store.splice import Splice
from kbtool.store.tree import KnowledgeBase
from kbtool.store.write import write_atomic

NO_EXCUSES = f"""\
{modeline("excuses")}
# Faults of run records that stay, since a run record is never edited; recipes that were deleted.
"""


def forget_recipe(
    base: KnowledgeBase, name: str, reason: str, now: datetime | None = None
) -> tuple[Forgotten, int]:
    """Forget a recipe. It may be deleted already, as long as it has runs.

    The pattern is written first: a command that is killed between the two leaves a knowledge base
    without a fault, and a second call records what is missing.

    Args:
        base: the knowledge base.
        name: of the recipe.
        reason: why it is forgotten.
        now: when. Default: now.

    Returns:
        The record, and how many runs it had.

    Raises:
        NotFoundError: there is no such recipe, and no run of it.
        RecordError: a pattern or the excuses do not load.
        UsageError: it was forgotten before, or its file cannot be edited safely.
    """
    with lock(private_folder(base.root, "locks") / "forget.lock", timeout=30):
        return _forget(base, name, reason, now or datetime.now().astimezone())


def _forget(base: KnowledgeBase, name: str, reason: str, now: datetime) -> tuple[Forgotten, int]:
    known = base.recipes().get(name)
    unsound = next((f for f in base.findings if f.path.startswith("patterns/")), None)
    if known is None and unsound is not None:
        raise RecordError(f"a pattern does not load; correct it first:\n  {unsound}")
    path = base.root / "sessions" / EXCUSES
    document = _excuses(path, base.shown(path))
    runs = [entry.record for entry in base.runs if entry.record.recipe == name]
    before = [one for one in base.forgotten if one.recipe == name]
    if known is None and before and all(any(_covers(one, run) for one in before) for run in runs):
        raise UsageError(
            f"recipe {name!r} was forgotten on {before[-1].at.day}: {before[-1].reason}"
        )
    if known is None and not runs:
        there = ", ".join(base.recipes()) or "none"
        raise NotFoundError(f"there is no recipe {name!r}, and no run of one; there is {there}")
    patterns = dict.fromkeys(run.pattern for run in runs if run.pattern is not None)
    kernels = dict.fromkeys(run.kernel for run in runs if run.kernel is not None)
    item: dict[str, Data] = {"recipe": name}
    if known is not None:
        pattern, recipe = known
        patterns[pattern.id] = None
        item["title"] = recipe.title
        if recipe.kernel is not None:
            kernels[recipe.kernel] = None
    item["patterns"] = list(patterns)
    if kernels:
        item["kernels"] = list(kernels)
    item |= {"at": now.isoformat(timespec="seconds"), "reason": reason.strip()}
    edit = Splice(document)
    edit.append("forgotten", item, list(Excuses.model_fields))
    loaded = validate(parse(edit.text.encode(), base.shown(path)), Excuses)
    if isinstance(loaded, list):
        raise UsageError(loaded[0].message)
    if known is not None:
        _take_out(base.root / base.patterns[known[0].id].path, name)
    write_atomic(path, edit.text.encode())
    return loaded.forgotten[-1], len({run.id for run in runs})


def _covers(one: Forgotten, run: Run) -> bool:
    return run.pattern in one.patterns and (run.kernel is None or run.kernel in one.kernels)


def _excuses(path: Path, shown: str) -> Document:
    """The excuses; if there is no such file, what a new one begins with."""
    if not path.exists():
        return parse(f"{NO_EXCUSES}forgotten: []\n".encode(), shown)
    try:
        document = parse(read_bytes(path, shown), shown)
    except DocumentError as error:
        raise RecordError(f"{shown} is invalid; correct it first:\n  {error.finding}") from None
    loaded = validate(document, Excuses)
    if isinstance(loaded, list):
        raise RecordError(f"{shown} is invalid; correct it first:\n  {loaded[0]}")
    return document


def _take_out(path: Path, name: str) -> None:
    """Take the recipe out of the file of its pattern; the rest of it stays as it is."""
    shown = f"patterns/{path.name}"
    document = parse(read_bytes(path, shown), shown)
    edit = Splice(document)
    names = [recipe.get("name") for recipe in edit.data["recipes"]]
    edit.remove_item("recipes", names.index(name))
    after = validate(parse(edit.text.encode(), shown), Pattern)
    if isinstance(after, list):
        raise RecordError(f"{shown} would be invalid without the recipe:\n  {after[0]}")
    write_atomic(path, edit.text.encode())
