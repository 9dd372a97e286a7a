"""Leave out the findings that an excuse names, and report excuses that nothing needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbtool.checks.facts import Location, fact
from kbtool.checks.tree import Tree
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.excuses import Excuses


MACHINE_PATH = "machine-path"
"""The name of the rule that no file holds a path of a machine."""


CASE_BOUNDS = "case-bounds"
"""The name of the rule that the numbers of a run's cases are within the manifest's bounds."""

EXCUSABLE = frozenset((MACHINE_PATH, CASE_BOUNDS))
"""The rules of `kbtool check` that a run record may break for a reason."""


class Excused(NamedTuple):
    """What an excuse names."""

    location: Location
    run: str
    rule: str


@fact("excuses", Excused)
def excused(excuses: Excuses) -> Iterator[Excused]:
    """Every excuse."""
    for at, excuse in enumerate(excuses.excuses):
        yield Excused(["excuses", at], excuse.run, excuse.rule)


class Gone(NamedTuple):
    """A recipe that was deleted."""

    location: Location
    recipe: str
    patterns: list[str]
    kernels: list[str]


@fact("excuses", Gone)
def forgotten(excuses: Excuses) -> Iterator[Gone]:
    """Every recipe that was forgotten."""
    for at, one in enumerate(excuses.forgotten):
        yield Gone(["forgotten", at], one.recipe, one.patterns, one.kernels)


class Forgotten:
    """What records may name although it is gone, because a recipe of it was forgotten."""

    def __init__(self, tree: Tree) -> None:
        self.entries = [
            (facts, one)
            for facts in tree.facts
            if facts.kind == "excuses"
            for one in forgotten.of(facts)
        ]
        self.patterns = {pattern for _, one in self.entries for pattern in one.patterns}
        self.kernels = {kernel for _, one in self.entries for kernel in one.kernels}
        self._of_recipe = {
            (one.recipe, name)
            for _, one in self.entries
            for name in (*one.patterns, *(f"kernel {kernel}" for kernel in one.kernels))
        }

    def pattern_of(self, recipe: str, pattern: str) -> bool:
        """Whether the recipe was forgotten as one of this pattern."""
        return (recipe, pattern) in self._of_recipe

    def kernel_of(self, recipe: str, kernel: str) -> bool:
        """Whether the recipe was forgotten as one that runs this kernel."""
        return (recipe, f"kernel {kernel}") in self._of_recipe


def without_excused(
    tree: Tree, findings: Iterable[Finding], rules: Collection[str]
) -> Iterator[Finding]:
    """``findings`` without the excused ones, and one for each excuse that excuses nothing.

    Args:
        tree: the tree with the excuses.
        findings: everything found.
        rules: the rules that were applied. Excuses of others, those of the history, are left alone.
    """
    named = {
        (one.run, one.rule): (facts, one.location)
        for facts in tree.facts
        if facts.kind == "excuses"
        for one in excused.of(facts)
        if one.rule in rules
    }
    needed = set()
    for finding in findings:
        if (finding.path, finding.rule) in named:
            needed.add((finding.path, finding.rule))
        else:
            yield finding
    for (run, rule), (facts, location) in named.items():
        if (run, rule) not in needed:
            message = f"{run} breaks no rule {rule}: remove the excuse"
            yield tree.at(facts, location, "excuse", message)
