"""Names are unique: ids, labels, names of recipes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from kbtool.checks.facts import Facts, fact
from kbtool.checks.rules.kernels import recipes
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.session import Session


@fact("session", empty="")
def label(session: Session) -> str:
    """A session's label."""
    return session.label or ""


def ids_are_unique(tree: Tree) -> Iterator[Finding]:
    """No two records of one kind have one id; no two files hold one attempt of a run."""
    seen: dict[Hashable, str] = {}
    for facts in tree.facts:
        if facts.kind in {"notes", "text"} or (facts.kind == "run" and not facts.run):
            continue
        key = (facts.kind, facts.id, facts.run.get("attempt"))
        if key in seen:
            message = f"{facts.id} stands in {seen[key]} already"
            yield tree.at(facts, ["id"], "unique", message)
        else:
            seen[key] = facts.path


def labels_are_unique(tree: Tree) -> Iterator[Finding]:
    """Labels that people chose are unique. The default label is the name in the session's id."""
    seen: dict[str, list[Facts]] = {}
    for facts in tree.sessions.values():
        if not label.of(facts):
            continue
        others = seen.setdefault(label.of(facts), [])
        if others and any(_chose_label(one) for one in (facts, *others)):
            message = f"session {others[0].id} has the label {label.of(facts)!r} already"
            yield tree.at(facts, ["label"], "unique", message)
        others.append(facts)


def recipe_names_are_unique(tree: Tree) -> Iterator[Finding]:
    """A recipe's name belongs to one recipe in the whole knowledge base."""
    seen: dict[str, str] = {}
    for facts in tree.patterns.values():
        for recipe in recipes.of(facts):
            if recipe.name in seen:
                yield tree.at(
                    facts, [*recipe.location, "name"], "unique",
                    f"{seen[recipe.name]} already has a recipe {recipe.name!r}; rename one of them",
                )  # fmt: skip
            else:
                seen[recipe.name] = facts.path


def _chose_label(facts: Facts) -> bool:
    """Whether a session's label is more than the name in its id, ``DATE-NAME``."""
    name = facts.id.split("-", 1 if facts.id.startswith("undated-") else 3)[-1]
    return bool(label.of(facts) != name)


RULES: tuple[Rule, ...] = (ids_are_unique, labels_are_unique, recipe_names_are_unique)
