"""Histories of run records, drawn from a seed and made by one ``git fast-import``."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from knowledge import RUN

from kbtool.model.run import digest_of_record, taken_into

State = dict[str, str]
"""Path → text of every file of a commit."""


def path_of(run: dict[str, Any]) -> str:
    return f"sessions/{run['session']}/runs/{run['id']}.json"


def text_of(run: dict[str, Any]) -> str:
    return json.dumps(run, indent=1) + "\n"


def resealed(run: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changed = {**run, **changes}
    return {**changed, "digest": digest_of_record(changed)}


class Importer:
    """Commits to a repository without a work tree, at some thousands a second."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)
        self._process = subprocess.Popen(
            ["git", "fast-import", "--quiet", "--force"], cwd=root,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.made = 0
        self.states: dict[str, State] = {}
        """Commit → its files."""
        self._marks: dict[str, str] = {}

    def commit(self, ref: str, parents: Iterable[str], state: State, author: str = "") -> str:
        """Commit ``state``; the id of the commit. ``author`` makes it the twin of another."""
        self.made += 1
        parents = list(parents)
        before = self.states[parents[0]] if parents else {}
        lines = [f"commit refs/heads/{ref}", f"mark :{self.made}"]
        author = author or f"author A <a@example.org> {1_700_000_000 + self.made} +0000"
        lines += [author, f"committer C <c@example.org> {1_700_000_000 + self.made} +0000"]
        subject = f"commit of {author.split()[3]}"
        lines += [f"data {len(subject)}", subject]
        lines += [
            f"{'merge' if at else 'from'} {self._marks[one]}" for at, one in enumerate(parents)
        ]
        for path in before.keys() - state.keys():
            lines.append(f"D {path}")
        for path, text in state.items():
            if before.get(path) != text:
                lines += [f"M 100644 inline {path}", f"data {len(text.encode())}", text]
        self._send([*lines, "", f"get-mark :{self.made}"])
        assert self._process.stdout is not None
        id_ = self._process.stdout.readline().decode().strip()
        self.states[id_] = dict(state)
        self._marks[id_] = f":{self.made}"
        return id_

    def remove(self, ref: str) -> None:
        """Take the name of a branch away; its commits stay behind without one."""
        self._send([f"reset refs/heads/{ref}", f"from {'0' * 40}", ""])

    def reset(self, ref: str, commit: str) -> None:
        self._send([f"reset refs/heads/{ref}", f"from {self._marks[commit]}", ""])

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def head(self, ref: str) -> None:
        """Make HEAD name a branch."""
        (self.root / ".git" / "HEAD").write_text(f"ref: refs/heads/{ref}\n")

    def _send(self, lines: list[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join([*lines, ""]).encode())
        self._process.stdin.flush()


class Drawn:
    """A history that grows by what is drawn."""

    def __init__(self, importer: Importer, rng: random.Random, ref: str) -> None:
        self.importer = importer
        self.rng = rng
        self.ref = ref
        self.runs = 0
        self.tip = importer.commit(ref, [], {"README.md": ref})
        self.ancestors = [self.tip]
        """Commits that the tip is made of."""
        self.sound: dict[str, dict[str, Any]] = {}
        """Path → run, of those that the tip has and nobody touched."""
        self.expected: set[tuple[str, str, str]] = set()
        """Path, rule and commit of what is to be found."""

    def new_run(self, stated: str | None = None) -> dict[str, Any]:
        """A new run, made at one of the last commits if none is given."""
        self.runs += 1
        run = {
            **RUN,
            "id": f"20250101T090000Z-{self.ref}-{self.runs:04x}",
            "session": f"2025-01-01-{self.rng.choice('abcde')}",
            "repository": {"commit": stated or self.rng.choice(self.ancestors[-6:])},
            "parameters": {"seconds": str(self.rng.random())},
        }
        return resealed(run)

    def advance(self, commit: str, *others: str) -> None:
        self.tip = commit
        self.ancestors += [*others, commit]

    @property
    def state(self) -> State:
        return dict(self.importer.states[self.tip])

    def on_main(self, state: State) -> str:
        self.advance(self.importer.commit(self.ref, [self.tip], state))
        return self.tip

    def add(self, count: int = 1) -> None:
        """Commit new runs, and a note of the session that anybody may edit."""
        state = self.state
        for _ in range(count):
            run = self.new_run()
            self.sound[path_of(run)] = run
            state[path_of(run)] = text_of(run)
            state[f"sessions/{run['session']}/session.yaml"] = f"title: {self.rng.random()}\n"
        self.on_main(state)

    def branch(self, state: State | None = None, ref: str = "side") -> str:
        """A commit beside the tip, from one of the commits that the tip is made of."""
        start = self.tip
        return self.importer.commit(ref, [start], state or self.state)

    def merge(self, side: str, state: State, *, swapped: bool = False) -> str:
        parents = [side, self.tip] if swapped else [self.tip, side]
        self.advance(self.importer.commit(self.ref, parents, state), side)
        self.importer.remove("side")
        return self.tip


# Tampers: each changes a state, and says what is to be found.

Tamper = Callable[[Drawn, State, str, dict[str, Any]], str]


def _edit(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    """One digit of a measured figure."""
    figure = run["parameters"]["seconds"]
    at = drawn.rng.randrange(2, len(figure))
    other = str((int(figure[at]) + 1) % 10) if figure[at].isdigit() else "7"
    state[path] = state[path].replace(figure, figure[:at] + other + figure[at + 1 :])
    return "run-edited"


def _reseal(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    state[path] = text_of(resealed(run, parameters={"seconds": str(drawn.rng.random())}))
    return "run-resealed"


def _delete(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    del state[path]
    return "run-deleted"


def _rename(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    state[path.replace(".json", "-b.json")] = state.pop(path)
    return "run-renamed"


def _rename_and_reseal(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    other = resealed(run, id=f"{run['id']}-b")
    del state[path]
    state[path_of(other)] = text_of(other)
    return "run-deleted"


def _move(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    state[path.replace(run["session"], "2025-01-02-z")] = state.pop(path)
    return "run-moved"


def _move_and_reseal(drawn: Drawn, state: State, path: str, run: dict[str, Any]) -> str:
    other = taken_into(run, "2025-01-02-z")
    del state[path]
    state[path_of(other)] = text_of(other)
    return "run-moved"


_CHANGES: tuple[Tamper, ...] = (
    _edit, _reseal, _delete, _rename, _rename_and_reseal, _move, _move_and_reseal
)  # fmt: skip


def tamper(drawn: Drawn) -> None:
    """Draw one tamper: of which kind, and in which sort of commit."""
    rng = drawn.rng
    drawn.add(rng.choice((1, 1, 2)))
    kind = rng.randrange(len(_CHANGES) + 3)
    if kind == len(_CHANGES):
        _false_commit(drawn)
    elif kind == len(_CHANGES) + 1:
        _dropped_by_a_merge(drawn)
    elif kind == len(_CHANGES) + 2:
        _another_in_its_place(drawn)
    else:
        _changed(drawn, _CHANGES[kind], rng.choice(("commit", "side", "merge")))


def _changed(drawn: Drawn, change: Tamper, where: str) -> None:
    path = drawn.rng.choice(sorted(drawn.sound))
    run = drawn.sound.pop(path)
    state = drawn.state
    if where == "commit":
        rule = change(drawn, state, path, run)
        by = drawn.on_main(state)
    elif where == "side":
        rule = change(drawn, state, path, run)
        by = drawn.branch(state)
        drawn.add()
        drawn.merge(by, {**_without(drawn.state, path), **_new(state, path, drawn.state)})
    else:
        other = drawn.new_run()
        drawn.sound[path_of(other)] = other
        side = drawn.branch({**drawn.state, path_of(other): text_of(other)})
        state = {**drawn.state, path_of(other): text_of(other)}
        rule = change(drawn, state, path, run)
        by = drawn.merge(side, state, swapped=drawn.rng.random() < 0.5)
    drawn.expected.add((path, rule, by))


def _without(state: State, path: str) -> State:
    return {name: text for name, text in state.items() if name != path}


def _new(state: State, path: str, tip: State) -> State:
    """What a tampered state has instead of ``path``, for a merge with what came meanwhile."""
    return {n: t for n, t in state.items() if n == path or (n not in tip and "/runs/" in n)}


def _false_commit(drawn: Drawn) -> None:
    """A run that names a commit beside the line that it is added to, or merged later."""
    later = drawn.rng.random() < 0.5
    ref = "side" if later else f"kept-{drawn.importer.made}"
    side = drawn.branch({**drawn.state, "notes.md": str(drawn.rng.random())}, ref)
    run = drawn.new_run(side)
    path = path_of(run)
    by = drawn.on_main({**drawn.state, path: text_of(run)})
    drawn.expected.add((path, "run-commit", by))
    if later:
        drawn.merge(side, drawn.state)


def _dropped_by_a_merge(drawn: Drawn) -> None:
    run = drawn.new_run()
    side = drawn.branch({**drawn.state, path_of(run): text_of(run)})
    drawn.add()
    by = drawn.merge(side, drawn.state, swapped=drawn.rng.random() < 0.5)
    drawn.expected.add((path_of(run), "run-deleted", by))


def _another_in_its_place(drawn: Drawn) -> None:
    """Beside the line that a run is added to, another one of its name, which a merge takes."""
    run = drawn.new_run()
    path = path_of(run)
    other = text_of(resealed(run, parameters={"seconds": str(drawn.rng.random())}))
    side = drawn.branch({**drawn.state, path: other})
    drawn.on_main({**drawn.state, path: text_of(run)})
    by = drawn.merge(side, {**drawn.state, path: other}, swapped=drawn.rng.random() < 0.5)
    drawn.expected.add((path, "run-resealed", by))


# What is honest.


def honest(drawn: Drawn) -> None:
    """Draw one step of honest work."""
    step = drawn.rng.choice((_add, _edit_sessions, _merge, _octopus, _rebase, _import, _same_twice))
    step(drawn)


def _add(drawn: Drawn) -> None:
    drawn.add(drawn.rng.choice((1, 3)))


def _edit_sessions(drawn: Drawn) -> None:
    state = drawn.state
    for path in [name for name in state if "/runs/" not in name and name != "README.md"]:
        if drawn.rng.random() < 0.2:
            del state[path]
        else:
            state[path] = f"title: {drawn.rng.random()}\n"
    drawn.on_main(state)


def _side(drawn: Drawn, ref: str, start: str, count: int) -> tuple[str, State]:
    """A branch of some commits, each with a run made at the commit before it."""
    tip, new = start, {}
    for _ in range(count):
        run = drawn.new_run(tip)
        new[path_of(run)] = text_of(run)
        tip = drawn.importer.commit(ref, [tip], {**drawn.importer.states[start], **new})
    return tip, new


def _merge(drawn: Drawn) -> None:
    start = drawn.rng.choice(drawn.ancestors[-4:])
    side, new = _side(drawn, "side", start, drawn.rng.choice((1, 2, 3)))
    if drawn.rng.random() < 0.7:
        drawn.add()
    if drawn.rng.random() < 0.3:  # the branch merges the line first
        both = {**drawn.state, **new}
        side = drawn.importer.commit("side", [side, drawn.tip], both)
        drawn.add()
    drawn.merge(side, {**drawn.state, **new}, swapped=drawn.rng.random() < 0.5)


def _octopus(drawn: Drawn) -> None:
    sides = [_side(drawn, f"side-{at}", drawn.tip, 1) for at in range(3)]
    state = {**drawn.state, **{path: text for _, new in sides for path, text in new.items()}}
    tips = [tip for tip, _ in sides]
    drawn.advance(drawn.importer.commit(drawn.ref, [drawn.tip, *tips], state), *tips)
    for at in range(3):
        drawn.importer.remove(f"side-{at}")


def _rebase(drawn: Drawn) -> None:
    """Commits that were made beside the line and never published are put on top of it."""
    start, old = drawn.tip, drawn.tip
    replayed = []
    for _ in range(drawn.rng.choice((1, 2, 3))):
        run = drawn.new_run(old)
        replayed.append((run, f"author B <b@example.org> {1_800_000_000 + drawn.importer.made} +0"))
        runs = {path_of(one): text_of(one) for one, _ in replayed}
        old = drawn.importer.commit(
            "side", [old], {**drawn.importer.states[start], **runs}, replayed[-1][1]
        )
    if drawn.rng.random() < 0.5:  # the name of the old branch is kept
        drawn.importer.reset(f"old-{drawn.importer.made}", old)
    drawn.importer.remove("side")
    drawn.add()
    for run, author in replayed:
        state = {**drawn.state, path_of(run): text_of(run)}
        drawn.advance(drawn.importer.commit(drawn.ref, [drawn.tip], state, author))


def _import(drawn: Drawn) -> None:
    """A run of another machine, into another session, at a commit that may not be here."""
    stated = drawn.rng.choice((f"{drawn.rng.getrandbits(160):040x}", drawn.tip))
    run = taken_into(drawn.new_run(stated), "2025-01-03-y")
    drawn.on_main({**drawn.state, path_of(run): text_of(run)})


def _same_twice(drawn: Drawn) -> None:
    """A commit that is picked onto another line; the merge finds both alike."""
    run = drawn.new_run()
    side = drawn.branch({**drawn.state, path_of(run): text_of(run)})
    drawn.on_main({**drawn.state, path_of(run): text_of(run)})
    drawn.merge(side, drawn.state)
