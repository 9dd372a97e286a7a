"""The table of runs, and the page of each: its results, and how to run it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.figures import UNKNOWN, instant, many, seconds
from kbtool.markdown.markup import (
    admonition,
    chip,
    clipped,
    facts,
    folded,
    join,
    nothing,
    optional,
    stacked_table,
    table,
)
from kbtool.model.kinds import declared
from kbtool.model.kinds.logged import ImportResult
from kbtool.model.run import Run
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import Index, has_section
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.times import meanings
from kbtool.site.parts import backlinks, compare_link, crumb, page_title, section, session_cell
from kbtool.steps import kind_of


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.RUNS, partial(listing, index))
    for (session, run), attempts in index.runs.items():
        yield Page(at.run_page(session, run), partial(page, index, attempts))


PAGES = Pages(_pages, at.RUNS, "Runs")


def listing(index: Index) -> str:
    """The runs, newest first."""
    runs = index.runs_of()
    body = rows(index, runs, at.RUNS) if runs else nothing(
        "No data because no recipe was run in this knowledge base."
    )  # fmt: skip
    about = (
        "Each execution of a recipe, with what it measured, newest first. kbtool writes these"
        " records; nobody types or edits one. Failed runs are kept."
    )
    return join([page_title("Runs"), about if runs else None, body])


def rows(index: Index, runs: Sequence[Run], here: str) -> str:
    """A table of runs."""
    header = ["Run", "Recipe", "Session", "Machine", "Status", "Result"]
    return stacked_table(
        header,
        [
            [
                index.run_link(run, here),
                index.made_by(run, here),
                _session(index, run, here),
                inline(run.made_on),
                chip(run.outcome),
                inline(clipped(headline(run))) or "–",
            ]
            for run in runs
        ],
    )


def _session(index: Index, run: Run, here: str) -> str:
    session = index.sessions.get(run.session)
    return session_cell(index, session, here) if session else inline(run.session)


def page(index: Index, attempts: Sequence[Run]) -> str:
    """One run. A resumed run has several attempts: the last is shown, the others are listed."""
    run = attempts[-1]
    here = at.run_page(run.session, run.id)
    told = "step-1" if run.origin == "file" else "machine"
    answer, checks, preparation = _results(index, run, here)
    return join(
        [
            page_title(index.titles[here]),
            crumb(here, at.RUNS, "Runs", run.id),
            f"{chip(run.outcome)} {inline(headline(run))}".rstrip(),
            *_warnings(run),
            facts(
                [
                    ("Recipe" if run.recipe else "From", index.made_by(run, here)),
                    ("Kernel", index.link(at.kernel_page(run.kernel), here) if run.kernel else ""),
                    ("Session", _session(index, run, here)),
                    ("Made in", code(run.taken_in.session) if run.taken_in else ""),
                    (
                        "Pattern",
                        index.link(at.pattern_page(run.pattern), here) if run.pattern else "",
                    ),
                    ("Began", instant(run.started)),
                    ("Took", seconds((run.ended - run.started).total_seconds())),
                    ("Machine", f"[{_where(run)}](#{told})"),
                    ("Commit", f"[{_commit(run)}](#{told})"),
                    ("Attempt", str(run.attempt) if run.attempt > 1 else ""),
                ]
            ),
            *answer,
            *checks,
            section("Steps", "steps", _steps(index, run, here)),
            section("Run it again", "again", _again(index, run)),
            *preparation,
            _machine(run),
            _identity(run),
            _attempts(attempts),
            backlinks(index, here),
        ]
    )


def _warnings(run: Run) -> Iterator[str]:
    """What a reader must know before the figures."""
    if run.repository.changed_during_run:
        yield admonition("warning", "Changed", "The code changed while the run was under way.")
    if run.recovered:
        yield admonition(
            "warning", "Stopped",
            "The record was written from the journal after kbtool was stopped.",
        )  # fmt: skip


def _where(run: Run) -> str:
    machine = run.machine
    if run.origin == "file":
        return inline(run.made_on)
    if machine.card is None:
        return f"{inline(machine.cpu)}, {many(machine.cores, 'core')}"
    return inline(machine.card) + (f", driver {inline(machine.driver)}" if machine.driver else "")


def _commit(run: Run) -> str:
    state = run.repository
    if (taken := run.last(ImportResult)) is not None:
        return code(taken.commit[:7]) if taken.commit else UNKNOWN
    if state.commit is None:
        return UNKNOWN
    return code(state.commit[:7]) + (", work tree changed" if state.dirty else "")


_BY_HAND = {
    "script": "Run the script again. The record keeps its hash and the commit, not its arguments.",
    "file": "Run the tool again, and take its new file in with <code>kbtool import-results</code>.",
}
"""Origin of a run that no recipe made → how to repeat it."""


def _again(index: Index, run: Run) -> str:
    if run.recipe is None:
        return _BY_HAND[run.origin]
    state = run.repository
    holder = index.holders.get((run.id, run.attempt))
    changed = ""
    if state.dirty and holder and holder != state.commit:
        changed = "The work tree differed from the stated commit. This one holds what was built."
    elif state.dirty:
        changed = (
            "The work tree differed from the commit, so the commit alone does not give this run."
        )
    return join([block("\n".join(index.commands(run))), changed])


def _steps(index: Index, run: Run, here: str) -> str:
    shown = [
        [
            str(number),
            f"[{inline(step.title)}](#step-{number})" if has_section(step) else inline(step.title),
            chip(step.outcome),
            seconds(step.seconds),
            f"{seconds(step.expected_seconds)} ({step.expected_from})",
            optional(step.message),
            ", ".join(index.link(at.pattern_page(p), here, inline(p)) for p in step.patterns),
        ]
        for number, step in enumerate(run.steps, 1)
    ]
    header = ["No.", "Step", "Status", "Took", "Expected", "Outcome", "Patterns that match"]
    return stacked_table(header, shown, {0, 3, 4})


def _results(index: Index, run: Run, here: str) -> tuple[list[str], list[str], list[str]]:
    """One section per step with a result: what the run was made for and what failed, the last
    first; then the validations; then what only prepares, folded."""
    links = RunLinks(index, run, here)
    answer: list[str] = []
    checks: list[str] = []
    preparation: list[str] = []
    for number, step in enumerate(run.steps, 1):
        if not has_section(step):
            continue
        error = block(step.error) if step.error else None
        shown = kind_of(step.result).page(step.result, links) if step.result else None
        prepared = declared(step.kind).prepares and step.outcome == "passed"
        if prepared and shown:
            shown = folded(inline(step.message or step.title), shown)
        made = section(inline(step.title), f"step-{number}", error, shown)
        if prepared:
            preparation.append(made)
        elif step.kind == "validate" and step.outcome == "passed":
            checks.append(made)
        else:
            answer.insert(0, made)
    return answer, checks, preparation


@dataclass(frozen=True)
class RunLinks:
    """The links of results on the page of their run."""

    index: Index
    run: Run
    here: str

    def json(self) -> str:
        """The same page as JSON."""
        return at.link("JSON", at.twin(self.here), self.here)

    def compare(self, arm: str) -> str:
        """The Compare page with the arm selected."""
        return compare_link(inline(arm), [self.run.id], arm, self.here)

    def meanings(self, shown: Iterable[str]) -> str:
        """What the kernel's manifest says of these implementations."""
        kernel = self.index.kernels.get(self.run.kernel or "")
        return meanings(kernel, shown) if kernel else ""

    def arms(self) -> Sequence[str]:
        """The implementations of the run's kernel, in the order of their colours."""
        return self.index.arms.get(self.run.kernel or "", [])

    def case_set(self, name: str) -> str:
        """The title of the case set, if the kernel still has it."""
        kernel = self.index.kernels.get(self.run.kernel or "")
        known = kernel.case_sets.get(name) if kernel else None
        return known.title if known else name

    def pattern(self, pattern: str) -> str:
        """The pattern by its id."""
        return self.index.link(at.pattern_page(pattern), self.here, inline(pattern))

    def bug(self, reference: str) -> str:
        """The bug by its title."""
        session, _, bug = reference.partition("#bugs.")
        return self.index.link(at.bug_page(session, bug), self.here)

    def mutant(self, bug: str, mutant: str) -> str:
        """The edit on the page of its bug, if the bug still has it."""
        session, _, id_ = bug.partition("#bugs.")
        case = self.index.bugs.get((session, id_))
        if case is None or mutant not in (one.id for one in case.bug.mutants):
            return code(mutant)
        page = at.bug_page(session, id_)
        return at.link(code(mutant), f"{page}#mutants.{at.fragment(mutant)}", self.here)


_UNITS = {"bytes": "bytes", "mhz": "MHz", "w": "W"}
"""What the name of a field of a machine ends in → the unit."""

_WORDS = {
    "cpu": "CPU", "cuda": "CUDA", "l2": "L2 cache", "os": "operating system", "python": "Python",
    "sm": "SM",
}  # fmt: skip


def _spelt(field: str, value: str) -> tuple[str, str]:
    """A field of a machine as words, and its value with the unit."""
    name, _, end = field.rpartition("_")
    if end in _UNITS:
        field, value = name, f"{value} {_UNITS[end]}"
    return " ".join(_WORDS.get(word, word) for word in field.split("_")), value


def _machine(run: Run) -> str:
    lines = [
        [*_spelt(name, f"{value:,}" if isinstance(value, int) else inline(value))]
        for name in type(run.machine).model_fields
        if (value := getattr(run.machine, name)) is not None
    ]
    state = run.repository
    if state.commit:
        lines.append(["commit", code(state.commit)])
    if state.branch:
        lines.append(["branch", code(state.branch)])
    if state.dirty is not None:
        lines.append(["work tree", "changed" if state.dirty else "clean"])
    box = None
    if run.origin == "file":
        box = admonition(
            "note", "Not where it was measured",
            "This is the machine that read the file. What the file says of its own stands above.",
        )  # fmt: skip
    shown = folded(f"{_where(run)}; commit {_commit(run)}", table(["What", "Value"], lines))
    return section("Machine and code", "machine", box, shown)


def _identity(run: Run) -> str:
    """What took part besides the built library."""
    if run.identity is None:
        return ""
    packages = [f"{name} {version}" for name, version in run.identity.packages.items()]
    files = [
        [part, code(name), code(digest[:12])]
        for part in ("problem", "solution", "libraries")
        for name, digest in getattr(run.identity, part).items()
    ]
    return section(
        "What took part", "identity",
        f"Problem: {code(run.identity.problem_digest[:12])}, one hash of its files without the"
        " manifest; runs with another one are never ranked together with this.",
        folded(
            f"Every file of the knowledge base that its steps read, by SHA-256: {len(files)}",
            stacked_table(["Part", "File", "Content"], files),
        ),
        f"Packages: {inline(', '.join(packages))}" if packages else None,
    )  # fmt: skip


def _attempts(attempts: Sequence[Run]) -> str:
    if len(attempts) < 2:
        return ""
    lines = [
        [str(run.attempt), instant(run.started), chip(run.outcome), inline(headline(run)) or "–"]
        for run in attempts
    ]
    header = ["Attempt", "Began", "Status", "Result"]
    return section("Attempts", "attempts", stacked_table(header, lines, {0}))
