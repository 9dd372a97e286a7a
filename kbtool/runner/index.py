"""What can be found by words, made of each file once and kept until the file changes.

With nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.model.finding import Finding
from kbtool.model.prose import plain
from kbtool.runner.resemble import Found, Words, counted, named
from kbtool.store.derived import Make, derive_all, is_unsound
from kbtool.store.order import in_order
from kbtool.store.packaged import SYMPTOMS, other_symptoms
from kbtool.store.read import MAX_BYTES
from kbtool.store.scan import FileKind, files_at, folders_in, named_in

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
    names: tuple[str, ...] = ()
    """What it is called, as ``named``: a search for one of them is for this record."""


WEIGHTS = {
    "pattern": 1.2, "bug": 1.2, "kernel": 1.2, "term": 1.1, "decision": 0.8, "guide": 0.6,
}  # fmt: skip
"""What the score of a record counts by its kind: what happened here comes before what is general,
and prose about kbtool, whose examples hold words of everything, comes last."""
_HOW_TO = r"(?:how|where) (?:do|can|should) (?:i|we|you) |how to |can (?:i|we) "
"""How a question begins that the guide answers, in the words of ``named``."""
_HOW_TO_WEIGHTS = {"guide": 1.2}
_WHAT_IS = r"what (?:is|are|was|were|does|do) (?:the |an? )?(.*?)(?: means?| stands? for)?$"
"""A question for what is called so."""


def ranking() -> dict[str, object]:
    """What ``Index.ranked`` goes by, for ``search.js``, which ranks in the same way."""
    return {
        "weights": WEIGHTS,
        "howTo": _HOW_TO,
        "howToWeights": _HOW_TO_WEIGHTS,
        "whatIs": _WHAT_IS,
    }


class Index(NamedTuple):
    """The records of a knowledge base, by their words."""

    words: Words[Record]
    demanded: Mapping[str, Sequence[str]]
    """Expression of a symptom → the texts that it demands; see ``demanded``."""
    findings: list[Finding]
    """Against the files that do not load."""

    def ranked(self, query: str) -> list[Found[Record]]:
        """Every record that a search finds: those of this name, then the best first.

        Of several of one name, those come first whose kind the search says: in "bug 4" a bug.
        """
        name = named(query)
        weights = WEIGHTS | (_HOW_TO_WEIGHTS if re.match(_HOW_TO, name) else {})
        if asked := re.match(_WHAT_IS, name):
            name = asked[1]
        kind, _, called = name.partition(" ")
        found = [
            hit._replace(score=hit.score * math.sqrt(hit.share) * weights.get(hit.item.kind, 1.0))
            for hit in self.words.find(query, loose=True)
        ]

        def place(hit: Found[Record]) -> tuple[bool, bool, float]:
            is_other = hit.item.kind != kind
            names = hit.item.names
            no = name not in names and (is_other or called not in names)
            return no, no or is_other, -hit.score

        return sorted(found, key=place)

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
            for rank, hit in enumerate(self.ranked(query), 1)
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
        for path, made in _made(root, named_in(root, "patterns", ".yaml"), "pattern", findings)
    }
    own = {
        made["id"]: (path, made)
        for path, made in _made(root, named_in(root, SYMPTOMS, ".yaml"), "symptoms", findings)
    }
    others = {made["id"]: made for made in _packaged(root)}
    found = [
        *(_record(path, *made["found"]) for path, made in patterns.values()),
        *_symptoms(others, own),
    ]
    if sessions:
        kernels = [
            path
            for folder in folders_in(root, "kernels")
            if (root / (path := f"{folder}/kernel.yaml")).is_file()
        ]
        written: list[tuple[FileKind, list[str]]] = [
            ("kernel", kernels),
            ("text", _documents(root)),
        ]
        for kind, files in written:
            for path, made in _made(root, files, kind, findings):
                found += (_record(path, *one) for one in made)
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
    path: str,
    kind: str,
    id_: str,
    title: str,
    text: str | None,
    counts: Mapping[str, float],
    names: Sequence[str] = (),
) -> tuple[Record, Mapping[str, float]]:
    return Record(kind, id_, title, text, path, None, tuple(map(named, names))), counts


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
            record = Record("symptom", f"{tool}/{name}", of_symptom, text, path, tool)
            yield record._replace(names=(named(name),)), counts


_CODE = ("model", "store", "runner")


def _made(
    root: Path, paths: Sequence[str], kind: FileKind, findings: list[Finding]
) -> Iterator[tuple[str, Any]]:
    """Path of each file that loads, and what was made of it."""
    made = derive_all(
        str(root), files_at(root, paths, kind), _MAKE[kind], f"words-{kind}", _CODE,
        opened=(_as_text, MAX_BYTES) if kind == "text" else None,
    )  # fmt: skip
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
                  counted(_texts(pattern)), [pattern.id, pattern.title]],
        "recipes": [
            ["recipe", recipe.name, recipe.title, recipe.about,
             counted([(recipe.title, 3), (recipe.name, 2), (recipe.about or "", 1)]),
             [recipe.name, recipe.title]]
            for recipe in pattern.recipes
        ],
        "demanded": _demanded(one.match for one in pattern.symptoms),
    }  # fmt: skip


def _texts(pattern: Pattern) -> list[tuple[str, float]]:
    return [
        (pattern.title, 3),
        (pattern.id, 2),
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
    kernels = " ".join(session.kernels)
    fixed = {fix.bug.rpartition(".")[2]: fix.kernel for fix in session.fixes if fix.kernel}
    return {
        "place": [session.id, session.label, session.day, session.follows, session.began()],
        "found": [
            ["session", session.id, f"{session.label}: {session.title}", session.outcome,
             counted([(session.title, 3), (session.label, 2), (session.outcome or "", 1),
                      (" ".join(session.lessons), 0.5)]),
             [session.id, session.label, session.title]],
            *(
                ["bug", f"{session.id}#bugs.{bug.id}", bug.title, bug.symptom or bug.cause,
                 counted([(bug.title, 3), (bug.id, 2), (bug.symptom or "", 1.5),
                          (bug.cause or "", 1), (bug.error_text or "", 1),
                          (fixed.get(bug.id, kernels), 0.5)]),
                 [bug.id, bug.title]]
                for bug in session.bugs
            ),
        ],
    }  # fmt: skip


_PAGES_OF_A_KERNEL = "fastest for a shape, results beside peers, history, correctness"
"""What the pages of a kernel answer, in words."""


def _of_kernel(document: Document) -> Any:
    from kbtool.model.kernel import Kernel
    from kbtool.store.load import validate

    kernel = validate(document, Kernel)
    if isinstance(kernel, list):
        return kernel
    sets = " ".join(case_set.title for case_set in kernel.case_sets.values())
    return [
        ["kernel", kernel.id, kernel.title, kernel.summary,
         counted([(kernel.title, 3), (kernel.id, 2), (kernel.summary, 2), (sets, 0.5),
                  (_PAGES_OF_A_KERNEL, 2)]),
         [kernel.id, kernel.title]],
    ]  # fmt: skip


def _documents(root: Path) -> list[str]:
    """The hand-written pages under ``docs/``."""
    found = (path.relative_to(root) for path in (root / "docs").rglob("*.md"))
    return sorted(p.as_posix() for p in found if not any(part[0] in "._" for part in p.parts))


def _as_text(raw: bytes, path: str) -> tuple[str, str]:
    return raw.decode("utf-8", "replace"), path


_HEADING = re.compile(r"^#{1,3} +(.+?)(?: +\{#([^}]+)\})? *$", re.MULTILINE)
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"<!-- linked as: (.*?) -->")


def _of_text(opened: tuple[str, str]) -> Any:
    """The sections of a hand-written page; a decision is one."""
    from kbtool.markdown.markup import slug

    text, path = opened
    page = path.removeprefix("docs/")
    heads = list(_HEADING.finditer(_FENCED.sub(lambda code: " " * len(code[0]), text)))
    is_decision = page.startswith("adr/")
    found: list[Any] = []
    anchors: Counter[str] = Counter()
    for head, after in zip(heads[:1] if is_decision else heads, [*heads[1:], None], strict=False):
        end = len(text) if after is None or is_decision else after.start()
        body, title = text[head.end() : end].strip(), head[1]
        names = [title, *(one for line in _NAMES.findall(body) for one in line.split("; "))]
        kind = "decision" if is_decision else "term" if page == _TERMS else "guide"
        body = _NAMES.sub("", body).strip()
        weights = [(title, 3), (" ".join(names), 1), (body, 0.5 if is_decision else 1)]
        anchor = slug(title)  # as the site makes it, where the heading states none
        anchors[anchor] += 1
        if (before := anchors[anchor] - 1) > 0:
            anchor += f"_{before}"
        first = head is heads[0] and not head[2]
        found.append(
            [kind, page if first else f"{page}#{head[2] or anchor}", title,
             body.partition("\n\n")[0], counted(weights), names]
        )  # fmt: skip
    return found


_TERMS = "guide/glossary.md"


def _demanded(expressions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    from kbtool.model.expression import demanded

    return {expression: demanded(expression) for expression in expressions}


_MAKE: dict[FileKind, Make] = {
    "pattern": _of_pattern, "symptoms": _of_tool, "session": _of_session, "kernel": _of_kernel,
    "text": _of_text,
}  # fmt: skip
