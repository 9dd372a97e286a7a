"""What follows from the records taken together: backlinks, standings, what became of each bug."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.operands import references
from kbtool.ledger.claims.report import Item, Report
from kbtool.ledger.estimated import Costs, costs_of
from kbtool.ledger.fastest import measured
from kbtool.ledger.faults import BugFix, Faults, Key, Meeting, bug_at
from kbtool.ledger.headline import Verdict, verdict
from kbtool.ledger.measured import groups
from kbtool.ledger.patterns import Account, Edge, accounts
from kbtool.ledger.repeat import commands
from kbtool.ledger.rollup import Rollup
from kbtool.ledger.timings.conditions import timed
from kbtool.ledger.timings.courses import History, history
from kbtool.ledger.worth import Worth, worths
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import build, instant
from kbtool.markdown.markup import nowrap
from kbtool.model.address import split_reference
from kbtool.model.bug import Bug
from kbtool.model.claim import Claim
from kbtool.model.excuses import Forgotten
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.mutants import MutantResult, MutantsResult
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.run import Run, StepRecord
from kbtool.model.session import Session
from kbtool.model.session_costs import SessionCosts
from kbtool.model.sweep import Sweep
from kbtool.model.twin import MeasuredSet
from kbtool.runner.explain import Match, matching
from kbtool.site import addresses as at
from kbtool.site.sums import known, rollups
from kbtool.site.text.glossary import Terms
from kbtool.store.holders import RunKey, holders
from kbtool.store.prose import design, documents, notes
from kbtool.store.sources import kernel_hashes
from kbtool.store.sweeps import sweeps_in
from kbtool.store.tree import KnowledgeBase


class Mention(NamedTuple):
    """One record that refers to another."""

    source: str
    """The page of the record that refers, with the anchor of the place."""
    why: str
    """In what capacity."""


class Judged(NamedTuple):
    """What the newest run that put a bug back found."""

    run: Run
    result: MutantsResult
    one: MutantResult


OPEN = frozenset({"open", "fix unconfirmed"})
"""What a bug's status is while the fault may be there."""


class BugCase(NamedTuple):
    """A bug, and what other records say of it."""

    session: Session
    bug: Bug
    meetings: list[Meeting]
    """Every meeting of the same fault, this one too, in the order of the work."""
    recurrences: list[Meeting]
    """The later ones."""
    fixes: list[BugFix]
    status: str
    """What became of it."""

    @property
    def is_open(self) -> bool:
        """Whether the fault is still there, as far as this meeting has to say."""
        return self.status in OPEN

    @property
    def title(self) -> str:
        """Its title, told from those of other meetings by the session's label."""
        return f"{self.session.label}: {self.bug.title}"

    @property
    def page(self) -> str:
        """Its page."""
        return at.bug_page(self.session.id, self.bug.id)


def has_section(step: StepRecord) -> bool:
    """Whether a run's page has a section for a step."""
    return (step.result is not None and not step.result.empty) or bool(step.error)


NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def moment(session: Session) -> datetime | None:
    """When a session ended, began, or at least its day; ``None`` where no record says.

    A time whose zone nobody states is taken as UTC.
    """
    stated = session.ended or session.started
    if stated is None and session.day is None:
        return None
    found = stated.at if stated else datetime.fromisoformat(str(session.day))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@dataclass
class Index:
    """The knowledge base with every link readable from both ends."""

    base: KnowledgeBase
    glossary: str = ""
    """The page whose terms prose links to; nothing is linked without it."""
    before: InitVar[Index | None] = None
    """The same of an earlier time: what follows from one record is taken from it where the record
    is the same."""
    sessions: dict[str, Session] = field(init=False)
    patterns: dict[str, Pattern] = field(init=False)
    kernels: dict[str, Kernel] = field(init=False)
    recipes: dict[str, tuple[Pattern, Recipe]] = field(init=False)
    forgotten: dict[str, list[Forgotten]] = field(init=False)
    """Recipe → when it was deleted, and why; oldest first."""
    runs: dict[tuple[str, str], list[Run]] = field(init=False)
    """(session, run id) → its attempts, oldest first; newest run first."""
    sweeps: dict[str, Sweep] = field(init=False)
    """Sweep → its record, newest first."""
    bugs: dict[Key, BugCase] = field(init=False)
    accounts: dict[str, Account] = field(init=False)
    """Pattern → what sessions say of it and what follows, in the order of their ranks."""
    followers: dict[str, list[Session]] = field(init=False)
    """Session → those that follow it."""
    mentions: dict[str, list[Mention]] = field(init=False)
    """Page → who refers to it."""
    titles: dict[str, str] = field(init=False)
    """Page → its title, escaped."""

    def __post_init__(self, before: Index | None) -> None:
        base = self.base
        self.sessions = {key: entry.record for key, entry in base.sessions.items()}
        self.patterns = {key: entry.record for key, entry in base.patterns.items()}
        self.kernels = {key: entry.record for key, entry in base.kernels.items()}
        self.recipes = base.recipes()
        self.forgotten = {}
        for one in base.forgotten:
            self.forgotten.setdefault(one.recipe, []).append(one)
        self.runs = _runs(base)
        self.sweeps = {one.id: one for one in reversed(sweeps_in(base))}
        self._session_of = {run: session for session, run in self.runs}
        self._anchors: dict[str, at.Anchors] = {
            id_: made
            for id_, made in (before._anchors if before else {}).items()
            if made.record is self.record(id_)
        }
        patterns = list(self.patterns.values())
        same = before is not None and patterns == list(before.patterns.values())
        self._matches: dict[str, list[Match]] = before._matches if before and same else {}
        self._known: dict[str, tuple[SessionCosts, str]] = dict(before._known) if before else {}
        self.bugs = self._bugs()
        ranked = accounts(
            self.patterns.values(),
            list(self.sessions.values()),
            [entry.record for entry in base.runs],
        )
        self.accounts = {account.pattern.id: account for account in ranked}
        self._evidence = {
            (edge.session.id, edge.place): edge for account in ranked for edge in account.edges
        }
        self.followers = defaultdict(list)
        for session in self.sessions.values():
            if session.follows:
                self.followers[session.follows].append(session)
        self.titles = dict(self._titles())
        self.mentions = self._mentions()

    @cached_property
    def newest(self) -> list[Session]:
        """The sessions, those that ended or began last first; then those without a date, each
        before the one that it follows."""
        last_first = reversed(self.sessions.values())
        return sorted(last_first, key=lambda session: moment(session) or NEVER, reverse=True)

    @cached_property
    def newest_bugs(self) -> list[BugCase]:
        """The bugs, those of the newest session first."""
        place = {session.id: at for at, session in enumerate(self.newest)}
        last_first = reversed(self.bugs.values())
        return sorted(last_first, key=lambda case: place[case.session.id])

    def evidence(self, session: Session) -> list[Edge]:
        """What a session says of patterns, in its order; of one that is not here, as stated."""
        return [
            self._evidence.get((session.id, place)) or Edge(session, place, evidence)
            for place, evidence in enumerate(session.evidence)
        ]

    @cached_property
    def costs(self) -> Costs:
        """What sessions cost, with the GPU estimated where no record states it."""
        return costs_of(self.base)

    @cached_property
    def sums(self) -> list[Rollup]:
        """The costs of all sessions, a row each; a table a currency."""
        return rollups(list(self.costs.sessions.values()), "session")

    @cached_property
    def _spelled(self) -> dict[str, str]:
        """Tag → its spelling on the site: of two that differ in a final s alone, the one that more
        records have."""
        records: list[Session | Pattern] = [*self.sessions.values(), *self.patterns.values()]
        count = Counter(tag for record in records for tag in record.tags)
        return {
            tag: max(tag.removesuffix("s"), f"{tag.removesuffix('s')}s", key=count.__getitem__)
            for tag in count
        }

    def tags_of(self, record: Session | Pattern) -> list[str]:
        """The tags of a record, as the site spells them."""
        return list(dict.fromkeys(self._spelled[tag] for tag in record.tags))

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Kernel → how it stands beside its peers, if a quiet run says."""
        found = {
            kernel.id: verdict(groups(self.runs_of(kernel=kernel.id), kernel))
            for kernel in self.kernels.values()
        }
        return {kernel: one for kernel, one in found.items() if one is not None}

    @cached_property
    def measured(self) -> dict[str, list[MeasuredSet]]:
        """Kernel → the case sets that a quiet run timed, by machine and element type."""
        return {
            name: measured(
                kernel,
                self.runs_of(kernel=name),
                at.published(at.topic_page(name, "results")),
                self.commands,
            )
            for name, kernel in self.kernels.items()
        }

    @cached_property
    def histories(self) -> dict[str, History]:
        """Kernel → each of its cases, commit by commit."""
        every = [one for run in self.runs_of() if (one := timed(run))]
        return {
            name: history([one for one in every if one.run.kernel == name]) for name in self.kernels
        }

    @cached_property
    def arms(self) -> dict[str, list[str]]:
        """Kernel → ours, its peers and its variants, each in the order in which runs came to time
        them: the order of their colours and marks, so that an arm has the same on every chart."""
        found = {}
        for name, kernel in self.kernels.items():
            oldest_first = self.runs_of(kernel=name)[::-1]
            every = [one for of in groups(oldest_first, kernel).values() for one in of]
            every.sort(key=lambda one: one.run.started)
            ours = [one.subject for one in every]
            peers = [peer for one in every for peer in one.peers]
            variants = [variant for one in every for variant in one.result.variants]
            found[name] = list(dict.fromkeys([*ours, *peers, *variants]))
        return found

    @cached_property
    def decisions(self) -> dict[int, tuple[str, str]]:
        """Number of a decision → its page, and its title, escaped."""
        found: dict[int, tuple[str, str]] = {}
        for path, text in documents(self.base).items():
            number = re.fullmatch(r"adr/(\d{4})-[^/]+\.md", path)
            if number:
                title = re.search(r"^# +(.+)", text, re.MULTILINE)
                found.setdefault(int(number[1]), (path, inline(title[1] if title else path)))
        return found

    @cached_property
    def became(self) -> dict[str, list[Pattern]]:
        """Page of a bug or of a decision, or place of a lesson → the patterns that it became."""
        found: dict[str, list[Pattern]] = defaultdict(list)
        for pattern in self.patterns.values():
            for reference in pattern.bugs:
                found[at.bug_page(*bug_at(reference, ""))].append(pattern)
            for place in self.lessons_of(pattern):
                found[place].append(pattern)
            for number in pattern.decisions:
                if number in self.decisions:
                    found[self.decisions[number][0]].append(pattern)
        return found

    def lessons_of(self, pattern: Pattern) -> dict[str, tuple[Session, str]]:
        """The place of each lesson that became a pattern → its session, and the lesson."""
        return {
            at.lesson_place(session.id, number): (session, lesson)
            for one in pattern.lessons
            if (session := self.sessions.get(one.session))
            for number, lesson in enumerate(session.lessons, 1)
            if one.is_in(lesson)
        }

    @cached_property
    def terms(self) -> Terms:
        """The terms of the glossary."""
        return Terms(self.glossary)

    @cached_property
    def holders(self) -> dict[RunKey, str]:
        """Run → a commit that holds what it was built from."""
        return holders(self.base.root, (entry.record for entry in self.base.runs))

    def commands(self, run: Run) -> list[str]:
        """The commands that repeat a run of a recipe."""
        return commands(run, self.holders.get((run.id, run.attempt)))

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """Mutant → its newest run; runs that did not come to judge it do not count."""
        found: dict[str, Judged] = {}
        for run in self.runs_of():
            for step in run.steps:
                if isinstance(step.result, MutantsResult):
                    for one in step.result.mutants:
                        found.setdefault(one.mutant.id, Judged(run, step.result, one))
        return found

    @cached_property
    def worths(self) -> dict[str, list[Worth]]:
        """Pattern → what its ablations measured, the newest run first."""
        return worths(entry.record for entry in self.base.runs)

    @cached_property
    def audit(self) -> Report:
        """Every claim recomputed."""
        return audit(self.base)

    @cached_property
    def turning(self) -> dict[str, list[Item]]:
        """Reference to a decision, a plan, an outcome → the inconsistent claims that turn it."""
        found: dict[str, list[Item]] = defaultdict(list)
        for item in self.audit.items:
            for place in item.turns:
                found[place].append(item)
        return found

    @cached_property
    def audited(self) -> dict[tuple[str, str], Item]:
        """(record, path of the claim in it) → what the audit makes of it."""
        return {(item.record, item.where): item for item in self.audit.items}

    def record(self, name: str) -> Session | Pattern | None:
        """The session or the pattern of this id."""
        return self.sessions.get(name) or self.patterns.get(name)

    def anchors(self, record: Session | Pattern) -> at.Anchors:
        """The anchors of a record; made once."""
        if record.id not in self._anchors:
            self._anchors[record.id] = at.Anchors(record)
        return self._anchors[record.id]

    def money(self, session: str) -> str:
        """What is known of the money of a session."""
        costs = self.costs.sessions[session]
        made = self._known.get(session)
        if made is None or made[0] != costs:
            made = self._known[session] = costs, str(known([costs]))
        return made[1]

    def place(self, reference: str, own: str) -> str | None:
        """The page and the anchor that a reference names; ``None`` where there is no such record.

        Args:
            reference: ``RECORD#path``, or ``#path`` in the record that it stands in.
            own: the id of that record.
        """
        name, path = split_reference(reference)
        name = name or own
        if name in self._session_of:
            return self._place_in_run(self._session_of[name], name, path)
        record = self.record(name)
        if record is None:
            return None
        anchor = self.anchors(record).find(path)
        return page_of(record) + (f"#{anchor}" if anchor else "")

    def cited_run(self, session: Session, cited: str | None) -> Run | None:
        """The run whose record a citation in ``session`` names, if it names one."""
        source = session.sources.get((cited or "").partition(":")[0])
        return self._run_files.get(source.file) if source else None

    @cached_property
    def _run_files(self) -> dict[str, Run]:
        return {posixpath.basename(entry.path): entry.record for entry in self.base.runs}

    def searches(self, case: BugCase) -> list[Run]:
        """The runs that hypotheses about a fault cite, over all its meetings."""
        cited = (
            self.cited_run(session, item.source)
            for session, bug in case.meetings
            for item in bug.hypotheses
        )
        return list({run.id: run for run in cited if run}.values())

    @cached_property
    def recognised(self) -> dict[Key, list[Match]]:
        """Bug → the symptoms of patterns that its error message shows."""
        return {key: self._matching(case.bug.error_text or "") for key, case in self.bugs.items()}

    def _matching(self, text: str) -> list[Match]:
        if text not in self._matches:
            self._matches[text] = matching(self.patterns.values(), text)
        return self._matches[text]

    def showing(self, pattern: Pattern) -> list[tuple[BugCase, Match]]:
        """The bugs whose error message shows a symptom of a pattern, in the order of the work."""
        return [
            (self.bugs[key], match)
            for key, matches in self.recognised.items()
            for match in matches
            if match.pattern is not None and match.pattern.id == pattern.id
        ]

    def run_page(self, run: str) -> str | None:
        """The page of a run, if there is such a run."""
        session = self._session_of.get(run)
        return at.run_page(session, run) if session else None

    def page_of_file(self, path: str) -> str | None:
        """The page of a record, a session's notes, a kernel's README or DESIGN, or a document.

        Args:
            path: of the file, relative to the root.
        """
        return self._pages_of_files.get(path)

    @cached_property
    def _pages_of_files(self) -> dict[str, str]:
        base = self.base
        pages = {f"docs/{path}": path for path in documents(base)}
        for run in base.runs:
            pages[run.path] = at.run_page(run.record.session, run.record.id)
        for pattern in base.patterns.values():
            pages[pattern.path] = at.pattern_page(pattern.record.id)
        for session in base.sessions.values():
            page = at.session_page(session.record.id)
            pages[session.path] = page
            if notes(base, session.record.id) is not None:
                pages[f"{posixpath.dirname(session.path)}/notes.md"] = f"{page}#notes"
        for kernel in base.kernels.values():
            pages[kernel.path] = at.kernel_page(kernel.record.id)
            page, folder = at.kernel_page(kernel.record.id), posixpath.dirname(kernel.path)
            pages[f"{folder}/README.md"] = page
            if design(base, kernel.record.id) is not None:
                about = at.topic_page(kernel.record.id, "about")
                pages[f"{folder}/DESIGN.md"] = f"{about}#design"
        return pages

    def _place_in_run(self, session: str, run: str, path: str) -> str:
        """The page of a run, at the step that ``path`` leads into."""
        for number, step in enumerate(self.runs[session, run][-1].steps, 1):
            if has_section(step) and f"{path}.".startswith(f"steps.{step.id}."):
                return f"{at.run_page(session, run)}#step-{number}"
        return at.run_page(session, run)

    def link(self, target: str, page: str, text: str | None = None) -> str:
        """A link to a page by its title, or plain text where there is no such page."""
        bare = target.partition("#")[0]
        if bare not in self.titles:
            return text or inline(bare.rpartition("/")[2].removesuffix(".md"))
        return at.link(text or self.titles[bare], target, page)

    @cached_property
    def run_at(self) -> dict[str, Run]:
        """The page of a run → its last attempt."""
        return {at.run_page(*key): attempts[-1] for key, attempts in self.runs.items()}

    def run_title(self, run: Run) -> str:
        """What ran, on which machine, and when; not escaped."""
        what = run.source
        if what in self.recipes:
            what = self.recipes[what][1].title
        elif what in self.forgotten:
            what = self.forgotten[what][-1].title or what
        return f"{what} ({run.made_on}, {instant(run.started)})"

    def run_link(self, run: Run, page: str) -> str:
        """A link to a run by its start; the title of the link is the run's id."""
        target = at.run_page(run.session, run.id)
        return nowrap(at.link(instant(run.started), target, page, run.id))

    def made_by(self, run: Run, page: str) -> str:
        """The recipe of a run, linked; else the script or the file that it is from."""
        if run.recipe is None:
            return f"{run.origin} {code(run.source)}"
        return self.link(at.recipe_page(run.recipe), page, inline(run.recipe))

    def runs_of(self, **wanted: str) -> list[Run]:
        """The last attempt of each run whose fields have these values, newest first."""
        return [
            attempts[-1]
            for attempts in self.runs.values()
            if all(getattr(attempts[-1], name) == value for name, value in wanted.items())
        ]

    @cached_property
    def _hashes(self) -> dict[str, dict[str, str]]:
        """Kernel → its files as they are in the tree, hashed."""
        return {name: kernel_hashes(self.base, kernel) for name, kernel in self.kernels.items()}

    def is_older(self, run: Run) -> bool:
        """Whether a run built other sources than the tree has. Of a run that recorded no hashes,
        nothing is known, and of a kernel that is gone."""
        built = build(run)
        if built is None or not built.sources or built.kernel not in self.kernels:
            return False
        now = self._hashes[built.kernel]
        target = self.kernels[built.kernel].targets.get(built.target)
        if target and built.specialisation in target.specialisations:
            target = target.specialised(built.specialisation)
        new = (
            {posixpath.normpath(path) for path in [*target.sources, *target.headers]}
            if target
            else ()
        )
        return any(now.get(path) != built.sources.get(path) for path in [*built.sources, *new])

    def _bugs(self) -> dict[Key, BugCase]:
        faults = Faults(list(self.sessions.values()))
        return {
            key: BugCase(
                session, bug, faults.meetings(key), faults.again(key), faults.fixes(key),
                faults.became(key),
            )
            for key, (session, bug) in faults.bugs.items()
        }  # fmt: skip

    def _titles(self) -> Iterator[tuple[str, str]]:
        for session in self.sessions.values():
            yield at.session_page(session.id), inline(f"{session.label}: {session.title}")
        for pattern in self.patterns.values():
            yield at.pattern_page(pattern.id), inline(f"{pattern.id} {pattern.title}")
        for kernel in self.kernels.values():
            yield at.kernel_page(kernel.id), inline(kernel.title)
        for name, (_, recipe) in self.recipes.items():
            yield at.recipe_page(name), inline(recipe.title)
        for name, entries in self.forgotten.items():
            if name not in self.recipes:
                yield at.recipe_page(name), inline(entries[-1].title or name)
        alike = Counter(case.bug.title for case in self.bugs.values())
        for case in self.bugs.values():
            title = case.bug.title
            yield case.page, inline(case.title if alike[title] > 1 else title)
        for page, run in self.run_at.items():
            yield page, inline(self.run_title(run))
        for sweep in self.sweeps.values():
            yield at.sweep_page(sweep.session, sweep.id), inline(sweep.id)

    def _mentions(self) -> dict[str, list[Mention]]:
        found: dict[str, dict[Mention, None]] = defaultdict(dict)
        for source, target, why in self._edges():
            page = target.partition("#")[0]
            if page in self.titles and source.partition("#")[0] != page:
                found[page][Mention(source, why)] = None
        return {page: list(mentions) for page, mentions in found.items()}

    def _edges(self) -> Iterator[tuple[str, str, str]]:
        for sweep in self.sweeps.values():
            for named in {cell.run for cell in sweep.cells if cell.run}:
                page = self.run_page(named)
                if page is not None:
                    yield at.sweep_page(sweep.session, sweep.id), page, "cell of a sweep"
        for session in self.sessions.values():
            yield from self._session_edges(session)
        for pattern in self.patterns.values():
            yield from self._pattern_edges(pattern)
        for (session_id, run_id), attempts in self.runs.items():
            page, run = at.run_page(session_id, run_id), attempts[-1]
            yield page, at.session_page(run.session), "run"
            if run.recipe:
                yield page, at.recipe_page(run.recipe), "run"
            if run.kernel:
                yield page, at.kernel_page(run.kernel), "run"

    def _session_edges(self, session: Session) -> Iterator[tuple[str, str, str]]:
        page, anchors = at.session_page(session.id), self.anchors(session)
        if session.follows:
            yield page, at.session_page(session.follows), "next session"
        for kernel in session.kernels:
            yield page, at.kernel_page(kernel), "worked on this kernel"
        for edge in self.evidence(session):
            target = at.pattern_page(edge.evidence.pattern)
            yield f"{page}#evidence", target, f"evidence: {edge.verdict.replace('_', ' ')}"
        for fix in session.fixes:
            bug = bug_at(fix.bug, session.id)
            yield f"{page}#fixes", at.bug_page(*bug), "fix"
            yield f"{page}#fixes", at.session_page(bug[0]), "fix of a bug met here"
            for reference in fix.shown_by:
                place = self.place(reference, session.id)
                if place:
                    yield f"{page}#fixes", place, "confirmed a fix"
        for bug_met in session.bugs:
            own = at.bug_page(session.id, bug_met.id)
            yield own, page, "bug"
            if bug_met.recurrence_of:
                before = bug_at(bug_met.recurrence_of, session.id)
                yield own, at.bug_page(*before), "recurrence"
                yield own, at.session_page(before[0]), "recurrence of a bug met here"
            yield from self._bug_edges(own, session, bug_met)
        for claim in session.claims:
            place = anchors.get(claim)
            yield from self._claim_edges(claim, f"{page}#{place or 'claims'}", session.id)

    def _bug_edges(self, own: str, session: Session, bug: Bug) -> Iterator[tuple[str, str, str]]:
        """Between a bug and what judged its hypotheses; from it to what knows its error."""
        for item in bug.hypotheses:
            run = self.cited_run(session, item.source)
            if run:
                yield own, at.run_page(run.session, run.id), "hypotheses judged by it"
                recipes = [at.recipe_page(run.recipe)] if run.recipe else []
                for page in (at.session_page(run.session), *recipes):
                    yield own, page, "hypotheses judged by it"
                    yield page, own, "judged its hypotheses"
        for match in self.recognised.get((session.id, bug.id), []):
            if match.pattern is not None:
                yield own, at.pattern_page(match.pattern.id), "error with its symptoms"

    def _pattern_edges(self, pattern: Pattern) -> Iterator[tuple[str, str, str]]:
        page, anchors = at.pattern_page(pattern.id), self.anchors(pattern)
        for older in pattern.supersedes:
            yield page, at.pattern_page(older.pattern), "supersedes this one"
        for other in pattern.related:
            yield page, at.pattern_page(other), "related"
        for other in pattern.needs:
            yield page, at.pattern_page(other), "needs this one"
        for other in pattern.conflicts:
            yield page, at.pattern_page(other), "does not go together with it"
        for reference in pattern.bugs:
            yield page, at.bug_page(*bug_at(reference, "")), "pattern that it became"
            yield at.bug_page(*bug_at(reference, "")), page, "fault that taught it"
        for lesson in self.lessons_of(pattern):
            yield page, lesson, "pattern that a lesson became"
            yield lesson, page, "lesson that taught it"
        for session_id in pattern.stated_in:
            yield page, at.session_page(session_id), "pattern described here"
        for recipe in pattern.recipes:
            yield at.recipe_page(recipe.name), page, "recipe"
            if recipe.kernel:
                yield at.recipe_page(recipe.name), at.kernel_page(recipe.kernel), "recipe"
        for claim in pattern.claims:
            place = anchors.get(claim)
            yield from self._claim_edges(claim, f"{page}#{place or 'claims'}", pattern.id)

    def _claim_edges(self, claim: Claim, source: str, own: str) -> Iterator[tuple[str, str, str]]:
        for reference in references(claim.of):
            place = self.place(reference, own)
            if place:
                yield source, place, "claim derived from here"


def page_of(record: Session | Pattern) -> str:
    """The page of a session or a pattern."""
    if isinstance(record, Session):
        return at.session_page(record.id)
    return at.pattern_page(record.id)


def _runs(base: KnowledgeBase) -> dict[tuple[str, str], list[Run]]:
    grouped: dict[tuple[str, str], list[Run]] = {}
    for entry in base.runs:
        grouped.setdefault((entry.record.session, entry.record.id), []).append(entry.record)
    for attempts in grouped.values():
        attempts.sort(key=lambda run: run.attempt)
    newest = sorted(grouped.items(), key=lambda item: item[1][-1].started, reverse=True)
    return dict(newest)
