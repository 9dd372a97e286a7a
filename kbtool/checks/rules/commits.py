"""Commits that sessions name are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbtool.checks.facts import Location, fact
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.session import Session


class CheckedOut(NamedTuple):
    """The commit that a session began at, and its branch."""

    location: Location
    commit: str
    branch: str


@fact("session", CheckedOut)
def checked_out(session: Session) -> Iterator[CheckedOut]:
    """It, where both are known."""
    state = session.repository
    if state is not None and state.commit is not None and state.branch is not None:
        yield CheckedOut(["repository", "commit"], state.commit, state.branch)


def sessions_name_commits_of_their_branch(tree: Tree) -> Iterator[Finding]:
    """Where the repository has the branch that a session names, a branch or tag has the commit.

    Nothing is said of a branch that is not here, in a shallow clone, and without git. A commit that
    a rewritten history left behind may still lie in this repository, but no clone has it. Of runs,
    whose records nobody can correct, `kbtool check --history` says which commits are missing.
    """
    named = [(facts, one) for facts in tree.sessions.values() for one in checked_out.of(facts)]
    if not named:
        return
    from kbtool.store.history import branches, commits_known

    known = commits_known(tree.root, (one.commit for _, one in named))
    missing = [(facts, one) for facts, one in named if known.get(one.commit) is False]
    here = branches(tree.root) if missing else ()
    for facts, one in missing:
        if one.branch in here:
            yield tree.at(
                facts, one.location, "commit",
                f"no branch or tag of this repository has commit {one.commit[:12]}, although branch"
                f" {one.branch} is here: correct it, or fetch it; if the history was rewritten,"
                " name the commit that it became",
            )  # fmt: skip


RULES: tuple[Rule, ...] = (sessions_name_commits_of_their_branch,)
