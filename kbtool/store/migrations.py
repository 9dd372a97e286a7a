"""What each format changed, so that records of the one before it can be brought to it.

``MIGRATIONS`` holds, for each format, the functions that lead to the next. A function changes files
of a knowledge base, in memory, and yields a finding for each place that a person must change. It
leaves alone what is as the next format has it, so that a migration that was cut short can be run
again. Run records are never changed: they are sealed by their digest.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kbtool.model.errors import UsageError
from kbtool.model.finding import Finding
from kbtool.model.machine_path import machine_paths
from kbtool.store.document import Document, DocumentError, parse
from kbtool.store.scan import EXCUSES, inside
from kbtool.store.schema import modeline
from kbtool.store.splice import Splice


class Files:
    """The files of a knowledge base, and what a migration makes of them. Nothing is written."""

    def __init__(self, root: Path, instead: Mapping[str, bytes | None] | None = None) -> None:
        """Hold the files under ``root``.

        Args:
            root: the root of the knowledge base.
            instead: path → content to take instead of that on disk; ``None`` for no file.
        """
        self.root = root
        self.changed: dict[str, bytes] = {}
        self._instead = instead or {}

    def matching(self, pattern: str) -> list[str]:
        """The paths of the files that a glob matches; none of links out of the knowledge base."""
        real = str(self.root.resolve())
        found = (
            path.relative_to(self.root).as_posix()
            for path in self.root.glob(pattern)
            if path.name[0] != "." and path.is_file() and inside(real, str(path))
        )
        return sorted(path for path in found if self._instead.get(path, b"") is not None)

    def before(self, path: str) -> bytes | None:
        """The content of a file before the migration, or ``None``."""
        if path in self._instead:
            return self._instead[path]
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def read(self, path: str) -> bytes | None:
        """The content of a file as it is by now, or ``None``."""
        return self.changed[path] if path in self.changed else self.before(path)

    def put(self, path: str, content: bytes) -> None:
        """Change a file."""
        if content != self.before(path):
            self.changed[path] = content


Migration = Callable[[Files], Iterable[Finding]]
Place = list[str | int]


_STEP_KEYS: Mapping[str, Mapping[str, str | None]] = {
    "benchmark": {"case_set": "case_sets"},
    "sanitise": {"tool": "tools", "exclude": None, "exclude_races": None},
    "mutants": {"sources": None, "where": None},
    "tune": {"write": None},
}
"""Kind of step → old key → its name now; ``None`` for one that kbtool has no use for."""


def keys_of_steps(files: Files) -> Iterator[Finding]:
    """Keys of steps have other names, or are gone, and so are parameters only for those."""
    for path in files.matching("patterns/*.yaml"):
        yield from _edited(files, path, _change_steps)


def _change_steps(edit: Splice) -> Iterator[Finding]:
    for at, recipe in _mappings(edit.data, "recipes"):
        for number, step in _mappings(recipe, "steps"):
            for old, new in _STEP_KEYS.get(str(step.get("kind")), {}).items():
                place: Place = ["recipes", at, "steps", number, old]
                if new is not None:
                    yield from _rename(edit, step, place, new)
                elif old in step:
                    value = step[old]
                    edit.remove(place)
                    _remove_parameter(edit, at, recipe, value)


def _remove_parameter(edit: Splice, at: int, recipe: Any, value: Any) -> None:
    """Remove the parameter that ``value`` stood for, unless something else uses it."""
    named = re.fullmatch(r"\$\{(\w+)\}", str(value))
    if named and named[0] not in json.dumps(recipe):
        edit.remove(["recipes", at, "parameters", named[1]])


def reasons_to_supersede(files: Files) -> Iterator[Finding]:
    """``supersedes`` says since which session, which only a person knows."""
    for path in files.matching("patterns/*.yaml"):
        document = _parsed(files, path)
        for at, older in enumerate(_list(document.data.get("supersedes")) if document else ()):
            if isinstance(older, str):
                assert document is not None
                yield document.finding(
                    ["supersedes", at], "migrate",
                    f"must say since which session: {{pattern: {older}, since: SESSION}}",
                )  # fmt: skip


def days_of_rates(files: Files) -> Iterator[Finding]:
    """``on`` of a rate is called ``day``: YAML 1.1 takes ``on`` for a truth value."""
    for path in files.matching("sessions/ledger.yaml"):
        yield from _edited(files, path, _change_days)


def _change_days(edit: Splice) -> Iterator[Finding]:
    for at, rate in _mappings(edit.data, "rates"):
        yield from _rename(edit, rate, ["rates", at, "on"], "day")
        for number, again in _mappings(rate, "stated_again"):
            yield from _rename(edit, again, ["rates", at, "stated_again", number, "on"], "day")


def schema_of_cheats(files: Files) -> Iterable[Finding]:
    """The first line of a catalogue of cheats names its schema, as in every record."""
    wanted = modeline("cheats").encode()
    for path in files.matching("kernels/*/cheats.yaml"):
        raw = files.read(path) or b""
        first = raw.split(b"\n", 1)[0]
        if first.startswith((b"# yaml-language-server:", codecs.BOM_UTF8)):
            continue  # it names one, and `kbtool check` says whether it is the right one
        files.put(path, wanted + (b"\r\n" if first.endswith(b"\r") else b"\n") + raw)
    return ()


def name_of_error_scale(files: Files) -> Iterator[Finding]:
    """``terms`` of a harness is called ``error_scale``."""
    for manifest in files.matching("kernels/*/kernel.yaml"):
        try:
            name = parse(files.read(manifest) or b"", manifest).data.get("harness")
        except DocumentError as error:
            yield error.finding
            continue
        folder = manifest.removesuffix("kernel.yaml")
        if not isinstance(name, str) or folder + name not in files.matching(f"{folder}**/*.py"):
            continue  # `kbtool check` reports it
        raw = files.read(folder + name) or b""
        try:
            defined = _names_in(raw)
        except (SyntaxError, ValueError) as error:
            yield Finding(folder + name, 1, "migrate", f"is no Python that can be read: {error}")
            continue
        line = defined.get("terms")
        if line is None or "error_scale" in defined:
            continue
        lines = raw.splitlines(keepends=True)
        renamed, count = re.subn(rb"^(\s*def\s+)terms\b", rb"\1error_scale", lines[line - 1])
        if count and not _uses_terms(raw, files, folder):
            lines[line - 1] = renamed
            files.put(folder + name, b"".join(lines))
        else:
            said = "terms is called error_scale now; rename it, and what uses it"
            yield Finding(folder + name, line, "migrate", said)


def _names_in(raw: bytes) -> dict[str, int]:
    """What a module defines: name → line."""
    defined = {}
    for node in ast.parse(raw).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, ast.Name)]
            defined.update((target.id, node.lineno) for target in targets)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update((name.asname or name.name, node.lineno) for name in node.names)
    return defined


def _uses_terms(harness: bytes, files: Files, folder: str) -> bool:
    """Whether the harness, or a module beside it, may use its ``terms``."""
    names = {node.id for node in ast.walk(ast.parse(harness)) if isinstance(node, ast.Name)}
    if "terms" in names:
        return True
    others = (files.read(path) or b"" for path in files.matching(f"{folder}**/*.py"))
    return any(re.search(rb"^\s*from\b.*\bimport\b.*\bterms\b|\bharness\.terms\b", text, re.M)
               for text in others)  # fmt: skip


def machine_paths_in_runs(files: Files) -> Iterator[Finding]:
    """Runs hold no paths of a machine; those that do are excused, since runs are never changed."""
    path = f"sessions/{EXCUSES}"
    for run in files.matching("sessions/*/runs/*.json"):
        text = (files.read(run) or b"").decode("utf-8", "replace")
        if any(machine_paths(text)):
            yield from _edited(files, path, partial(_excuse, run=run), _NO_EXCUSES)


def _excuse(edit: Splice, run: str) -> Iterable[Finding]:
    excused = {
        (excuse.get("run"), excuse.get("rule")) for _, excuse in _mappings(edit.data, "excuses")
    }
    if (run, "machine-path") not in excused:
        edit.append("excuses", {"run": run, "rule": "machine-path", "reason": _REASON}, ["excuses"])
    return ()


_NO_EXCUSES = f"""\
{modeline("excuses")}
# Faults of run records that stay, since a run record is never edited.
excuses: []
"""

_REASON = (
    "kbtool wrote paths of the machine into run records when this run was made. Remove the run if"
    " nobody may see the path."
)


def _edited(
    files: Files, path: str, change: Callable[[Splice], Iterable[Finding]], new: str | None = None
) -> Iterator[Finding]:
    """Change a record in YAML; a finding if that cannot be done.

    Args:
        files: the files.
        path: the record.
        change: what changes it, and yields what is left.
        new: what the record is if there is none.
    """
    try:
        edit = Splice(parse(files.read(path) or (new or "").encode(), path))
        yield from change(edit)
    except DocumentError as error:
        yield error.finding
    except UsageError as error:
        yield Finding(path, 1, "migrate", str(error))
    else:
        files.put(path, edit.text.encode())


def _parsed(files: Files, path: str) -> Document | None:
    """A record, if it is YAML."""
    try:
        return parse(files.read(path) or b"", path)
    except DocumentError:
        return None


def _rename(edit: Splice, holder: Any, place: Place, new: str) -> Iterator[Finding]:
    """Rename the key at ``place``, if ``holder`` has it and not the new one too."""
    old = place[-1]
    if old in holder and new in holder:
        document = parse(edit.text.encode(), edit.path)
        said = f"{old} is called {new} now, and both are here: keep one"
        yield document.finding(place, "migrate", said)
    elif old in holder:
        edit.rename(place, new)


def _mappings(data: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The items of a list that are mappings, with their indices."""
    held = data.get(key) if isinstance(data, dict) else None
    return ((at, item) for at, item in enumerate(_list(held)) if isinstance(item, dict))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


MIGRATIONS: Mapping[int, tuple[Migration, ...]] = {
    1: (
        keys_of_steps, reasons_to_supersede, days_of_rates, schema_of_cheats, name_of_error_scale,
        machine_paths_in_runs,
    ),
}  # fmt: skip
"""Format → what leads to the next one."""
