"""Pages of earlier builds, reused while nothing that they depend on has changed.

A page depends on its Markdown, on kbtool, the libraries and mkdocs.yml, on the titles in the
navigation, and on whether the files that it links to exist. A page is kept with all four, and used
again only if all are the same. What can depend on more is never reused: see ``digest_of``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kbtool.site.html.pieces import Piece
from kbtool.store.cache import code_digest
from kbtool.store.private import private_folder

SHAREABLE = frozenset({"search", "tags", "offline"})
"""Plugins whose state from page to page the engine handles; without the prefix ``material/``."""

_PURE = frozenset(
    {"admonition", "attr_list", "fenced_code", "md_in_html", "tables", "toc", "pymdownx.highlight",
     "pymdownx.superfences"}
)  # fmt: skip
"""Markdown extensions that read nothing but the page."""

_KINDS = ("map", "seq", "str", "bool", "int", "float", "null")
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in _KINDS}

_LIBRARIES = ("mkdocs", "material", "markdown", "pymdownx", "pygments", "jinja2", "yaml")


class Made(NamedTuple):
    """A page as it was built, with what it was built from."""

    source: str
    """The digest of its Markdown, of kbtool, the libraries and mkdocs.yml."""
    around: str
    """The digest of the navigation."""
    asked: dict[str, str | None]
    """Path of a file that it links to → the file's address; ``None`` if there was no such file."""
    output: str
    """The page's HTML, with a mark for each of its pieces."""
    title: str | None
    """The title that its Markdown gives it."""
    anchors: list[str]
    links: dict[str, dict[str, str]]
    """Path of a page → anchor → the link as written."""
    entries: list[dict[str, Any]]
    """Its entries in the search index, with marks too."""
    logged: list[tuple[int, str]]
    """Level and text of mkdocs's log messages."""
    pieces: dict[str, Piece]
    """Mark → a piece of a long table."""


class Recorder:
    """The files of the site, for rendering one page: notes which of them it asks for.

    It has only the method that rendering uses: a page that asks for anything else fails.
    """

    def __init__(self, files: Any) -> None:
        self._files = files
        self.asked: dict[str, str | None] = {}

    def get_file_from_path(self, path: str) -> Any:
        """The file of this path, or ``None``."""
        self.asked[path] = address_in(self._files, path)
        return self._files.get_file_from_path(path)


def address_in(files: Any, path: str) -> str | None:
    """Where the file of this path is on the site, and whether that is left out; or ``None``."""
    file = files.src_uris.get(path) or files.get_file_from_path(path)  # the latter takes its time
    return f"{file.dest_uri} {file.inclusion.name}" if file is not None else None


def digest_of(config: Any, overrides: Path) -> str | None:
    """A digest of kbtool, the libraries and mkdocs.yml; ``None`` if pages may depend on more.

    Other plugins, extensions and templates may read anything, and so may tags of mkdocs.yml.

    Args:
        config: mkdocs's loaded configuration.
        overrides: the folder of kbtool's own templates.
    """
    settings = Path(config.config_file_path).read_bytes()
    tags = config.plugins.get("material/tags") or config.plugins.get("tags")
    if (
        not {name.rpartition("/")[2] for name in config.plugins} <= SHAREABLE
        or not set(config.markdown_extensions) <= _PURE
        or config.theme.name != "material"
        or config.theme.custom_dir
        or (tags is not None and (tags.config.tags_file or tags.config.tags_extra_files))
        or not _is_plain(yaml.compose(settings, yaml.CSafeLoader))
    ):
        return None
    digest = hashlib.sha256(settings)
    digest.update(code_digest({"kbtool": Path(__file__).parents[2]}, _LIBRARIES).encode())
    for path in sorted(overrides.rglob("*.html")):
        digest.update(f"{path.relative_to(overrides)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _is_plain(node: yaml.Node | None) -> bool:
    """Whether YAML holds only plain values, and takes no others from another file."""
    if node is None:
        return True
    parts = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
        if any(key.value == "INHERIT" for key, _ in node.value):
            return False
    return node.tag in _PLAIN and all(map(_is_plain, parts))


class Store:
    """The pages of the last build, in a database under ``.kbtool``. Losing it costs only time."""

    def __init__(self, root: Path) -> None:
        self._new: dict[str, Made] = {}
        self._path = private_folder(root, "cache") / "site.sqlite"
        self._database: sqlite3.Connection | None = None
        with _ignored():
            self._database = _opened(self._path)

    def get(self, path: str, source: str | None = None) -> Made | None:
        """The page of this path as it was last made; if from this source, where one is given."""
        if path in self._new:
            made = self._new[path]
            return made if source in (None, made.source) else None
        if self._database is None:
            return None
        with _ignored(), contextlib.suppress(sqlite3.DatabaseError):
            query = "SELECT sum, data FROM made WHERE path = ? AND source = ifnull(?, source)"
            row = self._database.execute(query, (path, source)).fetchone()
            if row is not None and row[0] == _sum(row[1]):
                made = Made(*json.loads(row[1]))
                pieces = {mark: Piece(*piece) for mark, piece in made.pieces.items()}
                return made._replace(pieces=pieces)
        return None

    def put(self, path: str, made: Made) -> None:
        """Keep a page; ``save`` writes it."""
        self._new[path] = made

    def save(self, paths: Iterable[str]) -> None:
        """Write what is new, and drop all pages but those of ``paths``."""
        new, self._new = self._new, {}
        if self._database is None:
            return
        try:
            with _ignored(), self._database as database:
                _write(database, new, set(paths))
        except sqlite3.DatabaseError:  # it is damaged: the next build begins another
            self.close()
            self._database = None
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()


def _write(database: sqlite3.Connection, new: dict[str, Made], wanted: set[str]) -> None:
    there = {path for (path,) in database.execute("SELECT path FROM made")}
    gone = [(path,) for path in there - wanted]
    database.executemany("DELETE FROM made WHERE path = ?", gone)
    rows = (_row(*one) for one in new.items())
    database.executemany("INSERT OR REPLACE INTO made VALUES (?, ?, ?, ?)", rows)


def _row(path: str, made: Made) -> tuple[str, str, str, str]:
    data = json.dumps(made, separators=(",", ":"))
    return path, made.source, _sum(data), data


def _opened(path: Path) -> sqlite3.Connection:
    if path.is_symlink():
        path.unlink()  # its target is not ours
    try:
        return _with_table(path)
    except sqlite3.OperationalError:  # another process holds it
        raise
    except sqlite3.DatabaseError:  # it is damaged
        path.unlink()
        return _with_table(path)


def _with_table(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    # Requests come in threads of their own, one at a time.
    database = sqlite3.connect(path, timeout=1, check_same_thread=False)
    database.execute("PRAGMA synchronous = OFF")  # each row has a sum
    database.execute(
        "CREATE TABLE IF NOT EXISTS made (path TEXT PRIMARY KEY, source TEXT, sum TEXT, data TEXT)"
    )
    return database


def _sum(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()


@contextlib.contextmanager
def _ignored() -> Iterator[None]:
    """What goes wrong with the store, another process that holds it, say, costs only time."""
    with contextlib.suppress(sqlite3.OperationalError, OSError, ValueError, TypeError):
        yield
