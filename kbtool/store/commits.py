"""Walk the commits of a repository: how each changed the run records.

Asks the git program in a handful of processes, however many commits there are. Replacements and
grafts (`git replace`), which can show another history than the one that is published, are not used.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from kbtool.model.errors import MachineError, UsageError

RUNS = ":(glob)sessions/*/runs/*.json"
"""The run records, below the root."""

_GIT = ("git", "--no-replace-objects", "--no-optional-locks", "-c", "core.fsmonitor=false")
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_GRAFT_FILE": f"{os.devnull}/none", "LC_ALL": "C"}
_NOTHING = frozenset("0")


class Change(NamedTuple):
    """What a commit did to a file, seen from one of its parents."""

    old: str | None
    """The id of the content in the parent; ``None`` where the file is not there."""
    new: str | None
    """The id of the content in the commit."""


@dataclass(frozen=True)
class Commit:
    """A commit and its changes of run records."""

    id: str
    parents: tuple[str, ...]
    changes: tuple[Mapping[str, Change], ...]
    """For each parent: path → change. Of a commit without parents, one: everything is new."""


class Signature(NamedTuple):
    """What git says of the signature of a commit or a tag."""

    verdict: str
    """good, bad, expired, revoked, or unchecked: the key is not known here."""
    key: str
    """The id of the key."""
    fingerprint: str


_VERDICTS = {
    "G": "good", "U": "good", "B": "bad", "X": "expired", "Y": "expired", "R": "revoked",
    "E": "unchecked",
}  # fmt: skip


class History:
    """The commits that HEAD is made of, of the repository around a knowledge base.

    Raises:
        MachineError: there is no git, or no repository that it can read.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._objects: subprocess.Popen[bytes] | None = None
        try:
            self._ask("rev-parse", "--git-dir")
        except FileNotFoundError:
            raise MachineError(
                f"the history of {root} cannot be read: there is no git program on the PATH"
            ) from None
        except (OSError, LookupError) as error:
            raise MachineError(
                f"git cannot read the history of {root}: {str(error).strip() or 'no repository'}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._objects is not None:
            self._objects.communicate()

    @cached_property
    def shallow(self) -> frozenset[str]:
        """Commits whose parents a shallow clone does not have."""
        path = Path(self._root, self._ask("rev-parse", "--git-path", "shallow").strip("\n"))
        try:
            return frozenset(path.read_text().split())
        except FileNotFoundError:
            return frozenset()

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """Commit → its parents; each commit after its parents."""
        if self.commit("HEAD") is None:
            return {}
        said = self._ask("rev-list", "--topo-order", "--reverse", "--parents", "HEAD")
        lines = (line.split() for line in said.splitlines())
        return {commit: tuple(parents) for commit, *parents in lines}

    @cached_property
    def _place(self) -> dict[str, int]:
        return {commit: place for place, commit in enumerate(self.parents)}

    def commit(self, name: str) -> str | None:
        """The id of the commit that ``name`` names; ``None`` where there is none."""
        return self._maybe("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or None

    def after(self, since: str | None) -> list[str]:
        """The commits since ``since``, each after its parents; all of them without it.

        Raises:
            UsageError: there is no such commit.
        """
        if since is None or not self.parents:
            return list(self.parents)
        start = self.commit(since)
        if start is None:
            raise UsageError(f"{since} is no commit of this repository")
        new = set(self._ask("rev-list", "HEAD", f"^{start}").split())
        return [commit for commit in self.parents if commit in new]

    def walk(self, commits: Iterable[str]) -> Iterator[Commit]:
        """The changes of run records in ``commits``, in their order."""
        wanted = list(commits)
        pairs = [f"{c} {p}".strip() for c in wanted for p in self.parents[c] or ("",)]
        with tempfile.TemporaryFile() as given:
            given.write("".join(f"{pair}\n" for pair in pairs).encode())
            given.seek(0)
            process = self._start(
                "diff-tree", "--stdin", "--root", "-r", "--raw", "--always", "--no-renames", "-z",
                "--no-abbrev", "--ignore-submodules", "--relative", "--", RUNS, stdin=given,
            )  # fmt: skip
            with process:
                assert process.stdout is not None
                read = partial(os.read, process.stdout.fileno(), 1 << 16)
                diffs = _diffs(_fields(iter(read, b"")))
                for commit in wanted:
                    parents = self.parents[commit]
                    changes = tuple(next(diffs) for _ in parents or ("",))
                    yield Commit(commit, parents, changes)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``older`` is ``newer`` or one of the commits that it is made of."""
        place = self._place
        if older not in place or newer not in place:
            return False
        least = place[older]
        waiting, seen = [newer], {newer}
        while waiting:
            commit = waiting.pop()
            if commit == older:
                return True
            for parent in self.parents[commit]:
                # No ancestor of what stands before ``older`` can be it.
                if parent not in seen and place[parent] >= least:
                    seen.add(parent)
                    waiting.append(parent)
        return False

    def is_published(self, commit: str) -> bool:
        """Whether a branch or a tag still has ``commit``."""
        return bool(self._maybe("for-each-ref", "--count=1", f"--contains={commit}"))

    def twins(self, commit: str) -> list[str]:
        """The commits of HEAD by the same author, of the same second and with the same subject:
        what a rebase makes of a commit."""
        own = self._maybe("log", "-1", f"--format={_TWIN}", commit)
        return self._by_author.get(own, [])

    @cached_property
    def _by_author(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self._ask("log", f"--format=%H {_TWIN}", "HEAD").split("\n"):
            commit, _, author = line.partition(" ")
            found.setdefault(author, []).append(commit)
        return found

    def about(self, commit: str) -> str:
        """A commit in words: id, day and subject."""
        said = self._maybe("log", "-1", "--date=short", "--format=%ad, %s", commit)
        return f"{commit[:12]} ({said})"

    def at_bases(self, one: str, other: str, path: str) -> list[str]:
        """The contents of a file in the commits where two lines of commits parted."""
        bases = self._maybe("merge-base", "--all", one, other).split()
        found = (self._maybe("rev-parse", "--verify", "--quiet", f"{b}:./{path}") for b in bases)
        return [content for content in found if content]

    def differing(self, one: str, other: str) -> dict[str, Change]:
        """The run records that both commits have, with different content."""
        said = self._ask(
            "diff-tree", "-r", "--raw", "--no-renames", "-z", "--no-abbrev", "--relative",
            "--diff-filter=MT", one, other, "--", RUNS,
        )  # fmt: skip
        return next(_diffs(iter(["", *said.split("\0")])), {})

    def added(self, path: str) -> set[str]:
        """The contents with which a file was added, in any commit of HEAD."""
        said = self._ask(
            "log", "--full-history", "-m", "--raw", "--no-renames", "--no-abbrev", "--format=",
            "--diff-filter=A", "HEAD", "--", f":(literal){path}",
        )  # fmt: skip
        return {line.split()[3] for line in said.splitlines() if line.startswith(":")}

    def folder(self, commit: str, path: str) -> dict[str, str]:
        """The files of a folder in a commit, relative to it → the ids of their contents."""
        said = self._maybe("ls-tree", "-r", "-z", f"{commit}:./{path}")
        entries = (entry.partition("\t") for entry in said.split("\0") if entry)
        return {name: about.split(" ")[2] for about, _, name in entries}

    def touching(self, path: str) -> list[str]:
        """The commits of HEAD that change a file or folder, oldest first."""
        said = self._maybe("log", "--reverse", "--topo-order", "--format=%H", "HEAD", "--", path)
        return said.split()

    def content(self, id_: str) -> bytes | None:
        """The bytes of an object; ``None`` where a partial clone does not have it."""
        if self._objects is None or self._objects.poll() is not None:
            self._objects = self._start("cat-file", "--batch", stdin=subprocess.PIPE)
        given, said = self._objects.stdin, self._objects.stdout
        assert given is not None and said is not None
        try:
            given.write(f"{id_}\n".encode())
            given.flush()
        except BrokenPipeError:  # it ended when it could not fetch the object before
            self._objects = None
            return None
        _, _, size = said.readline().decode().strip().partition(" blob ")
        return said.read(int(size) + 1)[:-1] if size else None

    def signatures(self, commits: Iterable[str]) -> dict[str, Signature]:
        """Commit → its signature, of those that are signed."""
        said = self._maybe(
            "log", "--no-walk=unsorted", "--no-show-signature", "--format=%H %G? %GK %GF",
            "--stdin", given="".join(f"{commit}\n" for commit in commits),
        )  # fmt: skip
        found = {}
        for line in said.splitlines():
            commit, code, key, fingerprint = f"{line}   ".split(" ")[:4]
            if code in _VERDICTS:
                found[commit] = Signature(_VERDICTS[code], key, fingerprint)
        return found

    def tag_signatures(self) -> dict[str, Signature]:
        """Tag of a commit of HEAD → its signature, of those that are signed."""
        form = "%(refname:strip=2) %(if)%(contents:signature)%(then)signed%(end)"
        said = self._maybe("for-each-ref", "--merged=HEAD", f"--format={form}", "refs/tags")
        names = [
            line.removesuffix(" signed") for line in said.splitlines() if line[-7:] == " signed"
        ]
        return {name: self._tag_signature(name) for name in names}

    def _tag_signature(self, name: str) -> Signature:
        done = self._run("verify-tag", "--raw", f"refs/tags/{name}")
        words = [line.split()[1:] for line in done.stderr.splitlines() if line[:9] == "[GNUPG:] "]
        said = {line[0]: line[1:] for line in words if line}
        key = next((said[code][0] for code in _GNUPG if said.get(code)), "")
        verdict = next((verdict for code, verdict in _GNUPG.items() if code in said), "unchecked")
        fingerprint = (said.get("VALIDSIG") or [""])[0]
        if "SHA256:" in done.stderr:  # of ssh
            key = fingerprint = "SHA256:" + done.stderr.partition("SHA256:")[2].split()[0]
            verdict = "good" if done.returncode == 0 else "unchecked"
        return Signature(verdict, key, fingerprint)

    def _ask(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode != 0:
            raise LookupError(done.stderr)
        return done.stdout

    def _maybe(self, *arguments: str, given: str = "") -> str:
        done = self._run(*arguments, given=given)
        return done.stdout.strip("\n") if done.returncode == 0 else ""

    def _run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_GIT, *arguments], cwd=self._root, input=given, capture_output=True, check=False,
            encoding="utf-8", errors="surrogateescape", env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip

    def _start(self, *arguments: str, stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*_GIT, *arguments], cwd=self._root, stdin=stdin, stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip


_TWIN = "%an %ae %at %s"
_GNUPG = {
    "GOODSIG": "good", "BADSIG": "bad", "EXPSIG": "expired", "EXPKEYSIG": "expired",
    "REVKEYSIG": "revoked", "ERRSIG": "unchecked",
}  # fmt: skip


def _fields(chunks: Iterable[bytes]) -> Iterator[str]:
    """The fields of a stream, which NUL divides."""
    rest = b""
    for chunk in chunks:
        *fields, rest = (rest + chunk).split(b"\0")
        for field in fields:
            yield field.decode("utf-8", "surrogateescape")


def _diffs(fields: Iterator[str]) -> Iterator[dict[str, Change]]:
    """The changes after each name of a commit."""
    found: dict[str, Change] | None = None
    for field in fields:
        if not field.startswith(":"):
            if found is not None:
                yield found
            found = {}
            continue
        assert found is not None
        _, _, old, new, _ = field.split(" ")
        found[next(fields)] = Change(_content(old), _content(new))
    if found is not None:
        yield found


def _content(id_: str) -> str | None:
    return None if _NOTHING.issuperset(id_) else id_
