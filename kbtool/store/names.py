"""The names in a knowledge base, for a shell that completes them.

They are read from the names and the text of files, without models and YAML: a shell waits for them
at each press of the key. A file that cannot be read, or that holds something else, gives no names.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

Name = tuple[str, str]
"""A name, and what it is; empty if that is not known."""

_MOST = 1_000
"""The most files of a kind that are opened, the newest first: more would take too long."""
_LONGEST = 1 << 20
"""The most bytes of a file that are read."""
_WIDTH = 60
"""The most letters of what a name is."""

_ID = re.compile(r"[\w.+~@-]+", re.ASCII)
"""What a name may hold: nothing that a shell could take for more than a word."""


def recipes(root: Path) -> Iterator[Name]:
    """Every recipe with its title, and what is forgotten is not among them."""
    for text in _texts(_files(root / "patterns", ".yaml")):
        for item in _items(text, "recipes"):
            yield from _named(item, "name")


def patterns(root: Path) -> Iterator[Name]:
    """Every pattern with its title."""
    for text in _texts(_files(root / "patterns", ".yaml")):
        yield from _named(text, "id")


def kernels(root: Path) -> Iterator[Name]:
    """Every kernel with its title."""
    manifests = [folder / "kernel.yaml" for folder in _folders(root / "kernels")]
    for text in _texts(manifests):
        yield from _named(text, "id")


def sessions(root: Path) -> Iterator[Name]:
    """Every session by its id, and by its label if that is another name; the newest first."""
    folders = _newest(root)
    for place, folder in enumerate(folders):
        text = _text(folder / "session.yaml") if place < _MOST else None
        title = _value(text or "", "title")
        yield folder.name, title
        label = _value(text or "", "label")
        if label and label != folder.name[11:]:
            yield label, title


def runs(root: Path) -> Iterator[Name]:
    """Every run with its session; the newest first."""
    found = {}
    for folder in _folders(root / "sessions"):
        for file in _files(folder / "runs", ".json"):
            found[file.name.partition(".")[0]] = folder.name
    yield from sorted(found.items(), reverse=True)


def bugs(root: Path) -> Iterator[Name]:
    """Every bug with its title, those of the newest session first."""
    for text in _texts([folder / "session.yaml" for folder in _newest(root)]):
        for item in _items(text, "bugs"):
            yield from _named(item, "id")


def is_plain(name: str) -> bool:
    """Whether a shell takes it for one word, and for nothing but a word."""
    return len(name) <= 200 and _ID.fullmatch(name) is not None and name[0] not in "-~"


def _named(text: str, key: str) -> Iterator[Name]:
    name = _value(text, key)
    if name:
        yield name, _value(text, "title")


def _value(text: str, key: str) -> str:
    """The value of a key: of a line of its own, or in braces."""
    found = re.search(rf"(?:^[ \t]*|[{{,][ \t]*){key}:[ \t]+(\S[^\n]*)", text, re.M)
    if found is None:
        return ""
    value, in_braces = found[1], found[0].lstrip()[0] in "{,"
    quoted = re.match(r"""(["'])(.*?)\1""", value)
    if quoted:
        value = quoted[2]
    else:
        value = re.split(r"[,}]" if in_braces else r"[ \t]#", value, maxsplit=1)[0].strip()
    return "".join(one if one.isprintable() else " " for one in value)[:_WIDTH]


def _items(text: str, key: str) -> Iterator[str]:
    """The items of a top-level list: each the text from its dash on."""
    begun = re.search(rf"^{key}:[ \t]*(?:#.*)?\n", text, re.M)
    if begun is None:
        return
    end = re.compile(r"^[^\s#-]", re.M).search(text, begun.end())
    part = text[begun.end() : end.start() if end else len(text)]
    first = re.search(r"^([ \t]*)- ", part, re.M)
    if first is None:
        return
    pieces = re.split(rf"^{first[1]}- ", part[first.start() :], flags=re.M)
    yield from pieces[1:]


def _texts(files: list[Path]) -> Iterator[str]:
    for file in files[:_MOST]:
        text = _text(file)
        if text is not None:
            yield text


def _text(file: Path) -> str | None:
    """The text of a regular file; ``None`` if it cannot be read."""
    try:
        # A pipe would wait for a writer.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.read(handle, _LONGEST).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(handle)


def _files(folder: Path, suffix: str) -> list[Path]:
    return [path for path in _inside(folder) if path.name.endswith(suffix)]


def _folders(folder: Path) -> list[Path]:
    return [path for path in _inside(folder) if path.is_dir()]


def _newest(root: Path) -> list[Path]:
    """The folders of the sessions, the newest first, those without a date last."""
    folders = _folders(root / "sessions")
    return sorted(folders, key=lambda one: (one.name[0].isdigit(), one.name), reverse=True)


def _inside(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - twice as fast
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name[0] not in "._" and is_plain(name)]
