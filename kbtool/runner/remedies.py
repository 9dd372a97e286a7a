"""What a knowledge base says of a text or of a question: its records, the best first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from kbtool.model.bug import Bug
from kbtool.model.explanation import (
    Explanation,
    Fit,
    FittingBug,
    FittingPattern,
    LikelyCause,
    Search,
)
from kbtool.model.expression import found_in
from kbtool.model.pattern import Pattern
from kbtool.model.session import Session
from kbtool.model.symptom import KnownSymptom, Symptoms, filled
from kbtool.runner.ask import ask
from kbtool.runner.explain import (
    Match,
    Seen,
    Told,
    fits_cards,
    printed_by,
    reports_error,
    says_just_this,
    seen,
)
from kbtool.runner.field import ELSEWHERE, is_about_cards, is_of_the_field, tells_trouble
from kbtool.runner.index import Index, Record, index_of
from kbtool.runner.resemble import Found
from kbtool.store.tree import KnowledgeBase

LEAST_SHARE = 0.5
"""A record resembles a question of which it has so much, by weight of the words."""
LEAST_SHARE_OF_ERROR = 0.15
"""The same of a symptom, for a line that reports an error or a text that tells of trouble with a
card: lines have names of one's own, which no record has, and people say a thing in many ways."""
LEAST_WORDS = 2
LEAST_SCORE_OF_ERROR = 8.0
"""A symptom that shares only common words with such a line (failed, kernel, error) has less."""
LEAST_SHARE_ELSEWHERE, LEAST_SCORE_ELSEWHERE = 0.4, 25.0
"""The same for a line that has no name of the field: the wording alone has to show it."""
OF_ANOTHER_TOOL = 0.8
"""Of what a text resembles, the best names a tool. A record that is not of that tool needs so much
of its score: messages of two tools seldom have one cause."""
FIRST = 3
"""So many are shown first. A line that matched keeps a place there."""
LONGEST_QUESTION = 600
"""A text of at most so many characters may be a question; of a longer one only lines that report an
error are compared with records."""
_LINES = 20


def explain(
    base: KnowledgeBase,
    text: Iterable[bytes],
    architectures: Iterable[str] = (),
    file: str | None = None,
    program: str | None = None,
) -> Explanation:
    """What fits a text: symptoms that it shows; if none of them says just this cause, also records
    that it resembles.

    Args:
        base: the knowledge base.
        text: in blocks.
        architectures: of the card that it is known to be about.
        file: where it stands, for the command that records it.
        program: a program that is asked too; see ``ask``.

    Raises:
        UsageError: ``program`` names none.
    """
    patterns = [entry.record for entry in base.patterns.values()]
    beginning: list[bytes] = []
    demands = indexed(base, sessions=False).demanded
    noted = _noting(text, beginning)
    found = seen(patterns, base.catalogue.values(), noted, architectures, demands)
    bugs = list(_bugs_with_errors(base)) if found.matches else []
    fits = [_matched(base, match, bugs) for match in found.matches]
    if not any(map(says_just_this, found.matches)):
        start = b"".join(beginning).decode("utf-8", "replace")
        known = {fit.name for fit in fits}
        near = [fit for fit in _resembling(base, start, found) if fit.name not in known]
        ahead = [fit for fit in fits if fit.role != "consequence"]
        behind = fits[len(ahead) :]
        fits = [*ahead, *near[: max(0, FIRST - len(ahead) - bool(behind))], *behind]
    asked = ask(program, _passage(found), fits) if program else None
    if asked is not None and asked.problem is None and not asked.remedies:
        fits = [fit for fit in fits if fit.how == "match"]  # a likeness alone says less than that
    ranked = [fit.model_copy(update={"rank": rank}) for rank, fit in enumerate(fits, 1)]
    return Explanation(
        fits=ranked,
        lines=found.lines,
        architectures=[f"sm_{one}" for one in sorted(found.architectures, key=int)],
        record=None if ranked else _recording(found, file),
        asked=asked,
    )


def _passage(found: Seen) -> list[str]:
    """The beginning of a text, and what it reports further down."""
    further = [line for line in found.errors if not any(line in one for one in found.first)]
    return [*found.first, *further]


def _noting(text: Iterable[bytes], beginning: list[bytes]) -> Iterator[bytes]:
    """The blocks of a text; its beginning is kept in ``beginning``."""
    for block in text:
        if not beginning:
            beginning.append(block[: LONGEST_QUESTION + 1])
        yield block


def _matched(base: KnowledgeBase, match: Match, bugs: list[tuple[Session, Bug]]) -> Fit:
    symptom = match.symptom
    known = isinstance(symptom, KnownSymptom)
    return Fit(
        rank=1,
        how="match",
        name=match.name,
        title=match.title,
        line=match.number,
        text=match.part,
        shared=[],
        role=symptom.role if isinstance(symptom, KnownSymptom) else "cause",
        values=dict(match.values),
        architectures=symptom.architectures if isinstance(symptom, KnownSymptom) else [],
        causes=_likely(match.causes, match.values),
        advice=match.advice,
        command=match.command,
        source=symptom.source if known else None,
        patterns=_patterns(base, match.patterns),
        bugs=[
            _bug(session, bug)
            for session, bug in bugs
            if any(found_in(symptom.match, line) for line in (bug.error_text or "").splitlines())
        ],
    )


def _likely(told: Iterable[Told], values: Mapping[str, str]) -> list[LikelyCause]:
    return [
        LikelyCause(
            text=one.part,
            advice=filled(one.cause.advice, values),
            command=one.cause.command and filled(one.cause.command, values),
        )
        for one in told
    ]


def _patterns(base: KnowledgeBase, ids: Iterable[str]) -> list[FittingPattern]:
    return [
        FittingPattern(id=id_, title=base.patterns[id_].record.title)
        for id_ in ids
        if id_ in base.patterns
    ]


def _bugs_with_errors(base: KnowledgeBase) -> Iterator[tuple[Session, Bug]]:
    """Every bug with an error message. Reads no session that holds none."""
    paths = [
        base.shown(path)
        for path in base.session_files()
        if path.is_file() and b"error_text:" in path.read_bytes()
    ]
    for entry in base.with_sessions(paths).sessions.values():
        for bug in entry.record.bugs:
            if bug.error_text:
                yield entry.record, bug


def _bug(session: Session, bug: Bug) -> FittingBug:
    own = {f"#bugs.{bug.id}", f"{session.id}#bugs.{bug.id}"}
    return FittingBug(
        session=session.id,
        id=bug.id,
        title=bug.title,
        status=bug.status,
        fixes=[fix.change for fix in session.fixes if fix.bug in own],
    )


def _resembling(base: KnowledgeBase, start: str, found: Seen) -> list[Fit]:
    """Records that a text resembles, the best first."""
    short = len(start) <= LONGEST_QUESTION
    lines = [line for line in found.errors if reports_error(line)]
    questions = list(dict.fromkeys([start, *lines] if short else lines))[:_LINES]
    about = start if short else "\n".join(lines)
    if ELSEWHERE.search(about):
        return []
    tools = base.catalogue.values()
    is_known = is_of_the_field(about) or bool(printed_by(tools, about))
    names_card = bool(found.architectures) or is_about_cards(start) or is_about_cards(about)
    in_trouble = is_about_cards(about) and tells_trouble(about)
    index = indexed(base, sessions=False)
    best: dict[str, Found[Record]] = {}
    for question in questions:
        signed = about if is_known else question  # a line of no known field has to say it itself
        candidates = {tool.id for tool in tools if in_trouble or _may_be_of(tool, signed)}
        if printed := printed_by(tools, question):
            candidates &= printed
        is_error = in_trouble or reports_error(question)
        for hit in index.words.find(question):
            if hit.item.tool and hit.item.tool not in candidates:
                continue
            if not _is_near(hit, is_error=is_error, is_known=is_known):
                continue
            if not names_card and is_about_cards(f"{hit.item.title} {hit.item.text}"):
                continue
            known = best.get(hit.item.id)
            if known is None or known.score < hit.score:
                best[hit.item.id] = hit
    ordered = sorted(best.values(), key=lambda hit: -hit.score)
    fits = [
        _fit_of(base, hit.item, found).model_copy(update={"shared": hit.shared})
        for hit in ordered
        if hit.item.tool == ordered[0].item.tool or hit.score >= OF_ANOTHER_TOOL * ordered[0].score
    ]
    return [fit for fit in fits if fits_cards(fit.architectures, found.architectures)]


def _is_near(hit: Found[Record], *, is_error: bool, is_known: bool) -> bool:
    """Whether a record has enough of a question.

    Args:
        hit: the record, and what it has.
        is_error: the question is a line that reports an error, or tells of trouble with a card.
        is_known: it is of the field, or a tool of the catalogue printed it.
    """
    if len(set(hit.shared)) < LEAST_WORDS:
        return False
    if not (is_error and hit.item.tool):
        return is_known and hit.share >= LEAST_SHARE
    if not is_known:
        return hit.share >= LEAST_SHARE_ELSEWHERE and hit.score >= LEAST_SCORE_ELSEWHERE
    return hit.share >= LEAST_SHARE_OF_ERROR and hit.score >= LEAST_SCORE_OF_ERROR


def _may_be_of(tool: Symptoms, text: str) -> bool:
    """Whether a text has a sign of a tool; one that states no signs may have printed anything."""
    return tool.signs is None or found_in(tool.signs, text)


def _recording(found: Seen, file: str | None) -> str:
    """The command that records the case."""
    title = next((line for line in found.errors if is_of_the_field(line)), None)
    title = title or next(iter(found.errors), None)
    words_of = " ".join((title or "what is wrong, in a few words").split())[:80]
    return f"kbtool session bug {shlex.quote(words_of)}" + (
        f" --from-explain {shlex.quote(file)}" if file and found.errors else ""
    )


def error_lines(base: KnowledgeBase, text: Iterable[bytes]) -> list[str]:
    """The lines of a text that say what is wrong: those with symptoms of causes, or else the first
    that report an error."""
    patterns = [entry.record for entry in base.patterns.values()]
    found = seen(patterns, base.catalogue.values(), text)
    causes = {
        match.number: match.part
        for match in found.matches
        if not isinstance(match.symptom, KnownSymptom) or match.symptom.role == "cause"
    }
    lines = [causes[number] for number in sorted(causes)] or found.errors
    return list(dict.fromkeys(line[:_LONGEST_LINE] for line in lines))[:_LINES]


_LONGEST_LINE = 400


def search(base: KnowledgeBase, query: str) -> Search:
    """Every record that has words of ``query``, the best first."""
    return Search.model_validate(indexed(base).search(query))


@lru_cache(maxsize=2)
def indexed(base: KnowledgeBase, *, sessions: bool = True) -> Index:
    """The index of all records; kept, for a server that answers many questions."""
    index = index_of(base.root, sessions=sessions)
    base.report(index.findings)
    return index


def _fit_of(base: KnowledgeBase, record: Record, found: Seen) -> Fit:
    if record.tool is None:
        return _pattern_fit(base.patterns[record.id].record)
    name = record.id.removeprefix(f"{record.tool}/")
    symptoms = base.catalogue[record.tool].symptoms
    symptom = next(one for one in symptoms if one.id == name)
    return _symptom_fit(base, record.tool, symptom, found)


def command_of(pattern: Pattern) -> str:
    """The command that does what a pattern says, or that shows it."""
    recipe = pattern.recipes[0] if pattern.recipes else None
    return f"kbtool run-recipe {recipe.name}" if recipe else f"kbtool patterns {pattern.id}"


def _pattern_fit(pattern: Pattern) -> Fit:
    return Fit(
        rank=1, how="resemblance", name=pattern.id, title=pattern.title, line=None, text=None,
        shared=[], role="cause", values={}, architectures=[],
        causes=[],
        advice=pattern.solution or pattern.summary,
        command=command_of(pattern),
        source=None, patterns=[FittingPattern(id=pattern.id, title=pattern.title)], bugs=[],
    )  # fmt: skip


def _symptom_fit(base: KnowledgeBase, tool: str, symptom: KnownSymptom, found: Seen) -> Fit:
    numbers = dict.fromkeys(symptom.values, "N")
    return Fit(
        rank=1, how="resemblance", name=f"{tool}/{symptom.id}", title=symptom.title, line=None,
        text=None, shared=[], role=symptom.role, values={}, architectures=symptom.architectures,
        causes=_likely(found.causes(symptom), numbers),
        advice=filled(symptom.advice, numbers),
        command=symptom.command and filled(symptom.command, numbers),
        source=symptom.source, patterns=_patterns(base, symptom.patterns), bugs=[],
    )  # fmt: skip
