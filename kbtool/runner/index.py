"""What can be found by words, made of each file once and kept until the file changes.

With nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.model.finding import Finding
from kbtool.model.prose import plain
from kbtool.runner.resemble import Words, counted
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.order import in_order
from kbtool.store.packaged import SYMPTOMS, other_symptoms
from kbtool.store.scan import FileKind, files_at, folders_in, yaml_in

if TYPE_CHECKING:
    from kbtool.model.pattern import Pattern
    from kbtool.store.document import Document


class Record(NamedTuple):
    """A record that can be found by its words."""

    kind: str
    id: str
    title: str
    text: str | None
    """What it says first."""
    path: str
    tool: str | None = None
    """The tool that a symptom is of."""


class Index(NamedTuple):
    """The records of a knowledge base, by their words."""

    words: Words[Record]
    demanded: Mapping[str, Sequence[str]]
    """Expression of a symptom → the texts that it demands; see ``demanded``."""
    findings: list[Finding]
    """Against the files that do not load."""

    def search(self, query: str) -> dict[str, Any]:
        """What ``kbtool search --json`` prints: a ``Search`` as data."""
        hits = [
            {
                "rank": rank,
                "kind": hit.item.kind,
                "id": hit.item.id,
                "title": hit.item.title,
                "score": round(hit.score, 3),
                "shared": hit.shared,
                "text": hit.item.text and plain(hit.item.text),
                "path": hit.item.path,
            }
            for rank, hit in enumerate(self.words.find(query), 1)
        ]
        return {"version": 1, "hits": hits, "unknown": self.words.unknown(query)}


class _Session(NamedTuple):
    """A session as far as its place among all sessions goes; see ``Ordered``."""

    path: str
    found: list[Any]
    id: str
    label: str
    day: str | None
    follows: str | None
    seconds: float | None

    def began(self) -> float | None:
        """See ``Session.began``."""
        return self.seconds


def index_of(root: Path, *, sessions: bool = True) -> Index:
    """The index of the knowledge base at ``root``; without sessions, of patterns and symptoms."""
    findings: list[Finding] = []
    patterns = {
        made["id"]: (path, made)
        for path, made in _made(root, yaml_in(root, "patterns"), "pattern", findings)
    }
    own = {
        made["id"]: (path, made)
        for path, made in _made(root, yaml_in(root, SYMPTOMS), "symptoms", findings)
    }
    others = {made["id"]: made for made in _packaged(root)}
    found = [
        *(_record(path, *made["found"]) for path, made in patterns.values()),
        *_symptoms(others, own),
    ]
    if sessions:
        recipes = {
            one[1]: _record(path, *one)
            for path, made in patterns.values()
            for one in made["recipes"]
        }
        found += recipes.values()
        paths = [f"{folder}/session.yaml" for folder in folders_in(root, "sessions")]
        by_id = {
            made["place"][0]: _Session(path, made["found"], *made["place"])
            for path, made in _made(root, paths, "session", findings)
        }
        for session in in_order(list(by_id.values())):
            found += (_record(session.path, *one) for one in session.found)
    every = [*others.values(), *(made for _, made in (*own.values(), *patterns.values()))]
    demanded = {match: texts for made in every for match, texts in made["demanded"].items()}
    return Index(Words(found), demanded, findings)


def _record(
    path: str, kind: str, id_: str, title: str, text: str | None, counts: Mapping[str, float]
) -> tuple[Record, Mapping[str, float]]:
    return Record(kind, id_, title, text, path), counts


def _symptoms(
    others: Mapping[str, Any], own: Mapping[str, tuple[str, Any]]
) -> Iterator[tuple[Record, Mapping[str, float]]]:
    """The symptoms of each tool; see ``merged``."""
    for tool in {**others, **own}:
        path, added = own.get(tool, (f"{SYMPTOMS}/{tool}.yaml", {"found": []}))
        other = others.get(tool, {"found": []})
        names = {one[0] for one in added["found"]}
        kept = (one for one in other["found"] if one[0] not in names)
        title = added.get("title") or other["title"]
        of_tool = counted([(f"{title} {tool}", 0.5)])
        for name, of_symptom, text, of_own in (*kept, *added["found"]):
            counts = dict(of_own)
            for stem, weight in of_tool.items():
                counts[stem] = counts.get(stem, 0.0) + weight
            yield Record("symptom", f"{tool}/{name}", of_symptom, text, path, tool), counts


_CODE = ("model", "store", "runner")


def _made(
    root: Path, paths: Sequence[str], kind: FileKind, findings: list[Finding]
) -> Iterator[tuple[str, Any]]:
    """Path of each file that loads, and what was made of it."""
    made = derive_all(str(root), files_at(root, paths, kind), _MAKE[kind], f"words-{kind}", _CODE)
    for path, value in zip(paths, made, strict=True):
        if is_unsound(value):
            findings += value
        else:
            yield path, value


def _packaged(root: Path) -> list[Any]:
    """What is made of kbtool's own catalogue, if ``root`` does not hold it."""
    files = other_symptoms(root)
    if not files:
        return []
    folder = files[0].parents[1]
    paths = [path.relative_to(folder).as_posix() for path in files]
    made = derive_all(
        str(folder), files_at(folder, paths, "symptoms"), _of_tool, "words-packaged", _CODE,
        kept_in=str(root),
    )  # fmt: skip
    return [value for value in made if not is_unsound(value)]


def _of_pattern(document: Document) -> Any:
    from kbtool.model.pattern import Pattern
    from kbtool.store.load import validate

    pattern = validate(document, Pattern)
    if isinstance(pattern, list):
        return pattern
    return {
        "id": pattern.id,
        "found": ["pattern", pattern.id, pattern.title, pattern.summary,
                  counted(_texts(pattern))],
        "recipes": [
            ["recipe", recipe.name, recipe.title, recipe.about,
             counted([(recipe.title, 3), (recipe.name, 2), (recipe.about or "", 1)])]
            for recipe in pattern.recipes
        ],
        "demanded": _demanded(one.match for one in pattern.symptoms),
    }  # fmt: skip


def _texts(pattern: Pattern) -> list[tuple[str, float]]:
    return [
        (pattern.title, 3),
        (pattern.summary, 2),
        (" ".join(pattern.tags), 2),
        (pattern.problem or "", 1),
        (pattern.solution or "", 1),
        (" ".join([*(pattern.when_to_use or ()), *pattern.signs]), 1),
        *((f"{one.example} {one.advice or ''}", 1) for one in pattern.symptoms),
        *((rule.text, 0.5) for rule in pattern.rules),
        *((f"{recipe.title} {recipe.about or ''}", 0.5) for recipe in pattern.recipes),
    ]


def _of_tool(document: Document) -> Any:
    from kbtool.model.expression import words_in
    from kbtool.model.symptom import UNCHECKED, Symptoms
    from kbtool.store.load import validate

    tool = validate(document, Symptoms, UNCHECKED)
    if isinstance(tool, list):
        return tool
    return {
        "id": tool.id,
        "title": tool.title,
        "found": [
            [one.id, one.title, one.advice,
             counted([(one.title, 3), (one.words or "", 2), (one.advice, 0.5),
                      (one.example, 1.5), (words_in(one.match), 1.5)])]
            for one in tool.symptoms
        ],
        "demanded": _demanded(one.match for one in tool.symptoms),
    }  # fmt: skip


def _of_session(document: Document) -> Any:
    from kbtool.model.session import Session
    from kbtool.store.load import validate

    session = validate(document, Session)
    if isinstance(session, list):
        return session
    return {
        "place": [session.id, session.label, session.day, session.follows, session.began()],
        "found": [
            ["session", session.id, f"{session.label}: {session.title}", session.outcome,
             counted([(session.title, 3), (session.label, 2), (session.outcome or "", 1)])],
            *(
                ["bug", f"{session.id}#bugs.{bug.id}", bug.title, bug.symptom or bug.cause,
                 counted([(bug.title, 3), (bug.symptom or "", 1.5), (bug.cause or "", 1),
                          (bug.error_text or "", 1)])]
                for bug in session.bugs
            ),
        ],
    }  # fmt: skip


def _demanded(expressions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    from kbtool.model.expression import demanded

    return {expression: demanded(expression) for expression in expressions}


_MAKE = {"pattern": _of_pattern, "symptoms": _of_tool, "session": _of_session}
