"""The first page: what this is, the verdict on each kernel, where to look, what is current."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import partial

from kbtool.ledger.claims.report import WRONG
from kbtool.ledger.headline import COLUMNS, Headline
from kbtool.ledger.measured import (
    Group,
    Machine,
    newer_than,
    of_another_problem,
    of_one_problem,
)
from kbtool.markdown.chart import sparkline
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import UNKNOWN, many, significant
from kbtool.markdown.markup import (
    admonition,
    bullets,
    cards,
    chip,
    clipped,
    join,
    muted,
    nothing,
    stacked_table,
)
from kbtool.model.kernel import Kernel
from kbtool.model.session_costs import SessionCosts
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import Index, moment
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.bug import is_edit_alone
from kbtool.site.pages.measured import drawn, verdict_line
from kbtool.site.pages.times import HOW_TO_READ, results_anchor, standing
from kbtool.site.parts import latest_results, newer_noisy, page_title, section, session_cell
from kbtool.site.sums import Known, known, known_in, time_in


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.HOME, partial(page, source.index, source.today))


PAGES = Pages(_pages, at.HOME, "Home")


NEWEST = 5
RESULTS = 6
LEFT_OUT = 20
_LONG_PAUSED = timedelta(days=30)
"""Sessions that paused so long before the newest run are counted, not listed."""

_ABOUT = (
    "Records of work on GPU kernels: what was measured, what went wrong, and what it cost. Every"
    " figure leads to the record that it is from."
)


def page(index: Index, today: date | None) -> str:
    """The home page; every figure leads to what it is made of."""
    return join(
        [
            page_title("GPU kernels, measured"),
            _ABOUT,
            _left_out(index),
            *_verdicts(index),
            _questions(index),
            *_chart(index),
            section("Running or paused", "running", _running(index), _stands(index)),
            section("Latest results", "results", *_results(index)),
            section("Open bugs", "open-bugs", _bugs(index)),
            section("What the audit finds", "audit", _audit(index)),
            section("Newest runs", "runs", _runs(index)),
            section("In all", "in-all", _figures(index, today)),
        ]
    )


def _verdicts(index: Index) -> Iterator[str]:
    for name, one in index.verdicts.items():
        link = at.link("All its figures", at.kernel_page(name), at.HOME)
        yield verdict_line(index.kernels[name], one, at.HOME, f" {link}.")


def _chart(index: Index) -> Iterator[str]:
    """The first verdict, drawn."""
    for kernel, one in [*index.verdicts.items()][:1]:
        title = index.link(at.kernel_page(kernel), at.HOME)
        yield muted(f"{title}: time of each peer ÷ ours, as in the verdict.")
        yield drawn(one, index.arms[kernel])


def _questions(index: Index) -> str:
    """A column for whoever has a problem, a kernel, or a bill."""
    wrong = [
        f"[It misbehaves, and no message says why]({at.WRONG}): symptoms in plain words, with what"
        " to do, the bugs that had them and what they cost",
        f"[A tool printed an error or a warning]({at.SYMPTOMS}): what it means, and what to do;"
        " `kbtool explain build.log` looks for all of them",
        f"[You want a technique, or to avoid a mistake]({at.PATTERNS}): the patterns, with the"
        " evidence for and against",
        f"[You want to know whether it happened before]({at.BUGS}): symptom, cause and fix of every"
        " bug",
    ]
    fast = [
        *(
            f"[Fastest for your shape]({at.topic_page(name, 'fastest')}), {inline(kernel.title)}"
            for name, kernel in index.kernels.items()
            if index.measured[name]
        ),
        *(
            f"{index.link(at.kernel_page(name), at.HOME)} beside its peers"
            for name in index.kernels
        ),
        f"[What became slower or faster]({at.REGRESSIONS}) at the newest commit",
        f"[Compare two runs]({at.COMPARE})",
        f"[Build, validate and time it]({at.RECIPES}) with a recipe",
        "[Attach a kernel of your own](guide/attach.md)",
    ]
    cost = [
        f"[What was spent]({at.COSTS}), by month, session and pattern",
        f"[What was done for it]({at.SESSIONS}), session by session",
        f"[Which claims hold]({at.AUDIT})",
    ]
    return cards(
        f"**{title}**\n\n" + "\n".join(f"    {line}" for line in bullets(lines).split("\n"))
        for title, lines in (
            ("What went wrong?", wrong),
            ("How fast is it?", fast),
            ("What did it cost?", cost),
        )
    )


def _left_out(index: Index) -> str:
    findings = index.base.findings
    if not findings:
        return ""
    lines = [inline(finding) for finding in findings[:LEFT_OUT]]
    if len(findings) > LEFT_OUT:
        lines.append(f"and {len(findings) - LEFT_OUT} more")
    body = "These records could not be read, so nothing on this site counts them:\n\n"
    return admonition("danger", "Records are missing", body + bullets(lines))


def _figures(index: Index, today: date | None) -> str:
    sessions = list(index.sessions.values())
    bugs = [case for case in index.bugs.values() if not is_edit_alone(case)]
    is_open = sum(case.is_open for case in bugs)
    kept = len(index.patterns)
    pieces = many(sum(len(account.edges) for account in index.accounts.values()), "piece")
    spent = time_in(index.sums) if sessions else "none yet"
    costs = list(index.costs.sessions.values())
    money = known_in(index.sums) if any(one.costs for one in costs) else Known("none", ())

    def noun(count: int, word: str) -> str:
        return many(count, word).partition(" ")[2]

    def figure(value: object, target: str, about: str) -> str:
        return f"[**{value}**]({target}){{ .kb-figure }}<br>{about}"

    return cards(
        [
            figure(len(sessions), at.SESSIONS, f"{noun(len(sessions), 'session')}, {spent}"),
            figure(money.money, at.COSTS, "; ".join([*money.coverage, _month(index, today)])),
            figure(is_open, at.BUGS, f"{noun(is_open, 'unresolved bug')}, of {len(bugs)} met"),
            figure(_wrong(index), at.AUDIT, "claims that do not hold"),
            figure(kept, at.PATTERNS, f"{noun(kept, 'pattern')}, {pieces} of evidence"),
        ]
    )


def _wrong(index: Index) -> int:
    return sum(index.audit.counts[grade] for grade in WRONG)


def _month(index: Index, today: date | None) -> str:
    every = index.costs.sessions.values()
    if not any(session.costs for session in every):
        return "no cost is recorded"
    if today is None:
        return "known in all"
    months: dict[str, list[SessionCosts]] = {}
    for session in every:
        if session.day:
            months.setdefault(session.day[:7], []).append(session)
    this = f"{today:%Y-%m}"
    if this in months:
        spent, covered = known(months[this])
        if spent == UNKNOWN:
            spent = f"not known of its {many(len(months[this]), 'session')}"
        told = ", ".join([f"[{spent}]({at.COSTS}#by-month)", *covered])
        return f"known in all; this month: {told}"
    if not months:
        return "known in all; nothing this month"
    last = max(months)
    spent = f"[{known(months[last]).money}]({at.COSTS}#by-month)"
    return f"known in all; nothing this month; last in {last}: {spent}"


def _running(index: Index) -> str:
    going = [
        s
        for s in index.sessions.values()
        if s.status == "running" or (s.status == "paused" and s.id not in index.followers)
    ]
    runs = index.runs_of()
    long = [
        s
        for s in going
        if s.status == "paused"
        and runs
        and (since := moment(s)) is not None
        and runs[0].started - since > _LONG_PAUSED
    ]
    lines = [
        f"{index.link(at.session_page(s.id), at.HOME)} {chip(s.status)}"
        + (f" begun {inline(s.started)}" if s.started else "")
        for s in going
        if s not in long
    ]
    if long:
        have = "has" if len(long) == 1 else "have"
        lines.append(
            f"[{many(len(long), 'session')}]({at.SESSIONS}) {have} been paused since more than"
            f" {_LONG_PAUSED.days} days before the newest run"
        )
    if not lines:
        return nothing("No session is running, and none waits to be resumed.")
    return bullets(lines)


def _results(index: Index) -> list[str]:
    """How each kernel stands on each machine, case set and dtype, and how it stood before."""
    found = latest_results(index)
    if not found:
        return [nothing("No data because no run in this knowledge base has a benchmark.")]
    rows = [_result(index, *one) for one in found[:RESULTS]]
    header = ["Kernel", "Machine", "Cases", "Ours (µs)", *COLUMNS, "History", "When"]
    about = (
        f"{HOW_TO_READ} History: the baseline's time ÷ ours, in a chain, in every quiet run of the"
        " same cases, the last one marked; its height is 10 % at least. Of a noisy run no ratio is"
        " told: other processes were busy meanwhile. What was timed had passed validation in the"
        " same run."
    )
    rest = (
        f"The newest {RESULTS} of {len(found)}; [the pages of the kernels]({at.KERNELS}) have all."
    )
    more = rest if len(found) > RESULTS else None
    return [stacked_table(header, rows, {3, 4, 5}), muted(about), *([more] if more else [])]


def _result(
    index: Index, kernel: Kernel, machine: Machine, one: Headline, every: Sequence[Group]
) -> list[str]:
    results = at.topic_page(kernel.id, "results")
    newest = one.newest
    run, newer = newest.run, newer_than(every, newest)
    same, others = of_one_problem(
        (
            group
            for group in reversed(every)
            if group.key == newest.key and group.result.baseline == newest.result.baseline
        ),
        newest,
    )
    alike = [value for group in same if (value := group.speed) is not None]
    baseline = newest.result.baseline
    label = f"Speed against {baseline} on {machine.name}: {', '.join(map(significant, alike))}"
    return [
        index.link(at.kernel_page(kernel.id), at.HOME),
        at.link(inline(machine.name), f"{results}#{results_anchor(machine)}", at.HOME),
        inline(one.label),
        significant(newest.ours_us),
        *standing(one),
        (sparkline(label, alike) if len(alike) > 1 else muted(_so_far(same, alike)))
        + (f" <br>{muted(f'without {of_another_problem(others)}')}" if others else ""),
        index.run_link(run, at.HOME)
        + _cut_short(newest)
        + (f" <br>{muted(newer_noisy(index, newer.run, at.HOME))}" if newer else ""),
    ]


def _so_far(every: Sequence[Group], speeds: Sequence[float]) -> str:
    """Why there is no course: so few runs of the same cases, so few quiet ones, or no baseline."""
    quiet = [group for group in every if not group.noise_reason]
    if quiet and not speeds:
        return f"{inline(quiet[-1].result.baseline)} was not timed"
    if len(speeds) == len(every):
        return "one run so far"
    return "one quiet run so far" if speeds else "no quiet run so far"


def _cut_short(group: Group) -> str:
    """That the run did not come to its end, and how many cases it left beside those it timed."""
    run, missed = group.run, group.result.not_reached
    if run.status in {"passed", "noisy"}:  # that it was noisy stands where the ratio would
        return ""
    left = muted(f"{missed} more not reached") if missed else ""
    return f" <br>{chip(run.status)} {left}".rstrip()


def _audit(index: Index) -> str:
    counts = index.audit.counts
    if not index.audit.items:
        return nothing("No record makes a claim yet.")
    lines = [
        f"[{counts[grade]}]({at.AUDIT}#{place}) {words}"
        for grade, place, words in (
            ("decision", "decision", "claims do not hold and change a decision"),
            ("inconsistent", "inconsistent", "do not hold"),
            ("undetermined", "undetermined", "are undetermined by the records"),
            ("consistent", "by-record", "hold"),
        )
    ]
    wrong = _wrong(index)
    known = f"For {counts['acknowledged']} of the {wrong} the record says why it keeps the figure."
    return join([bullets(lines), known if wrong else None])


def _runs(index: Index) -> str:
    runs = index.runs_of()[:NEWEST]
    if not runs:
        return nothing("No recipe was run in this knowledge base yet.")
    rows = [
        [
            index.run_link(run, at.HOME),
            index.made_by(run, at.HOME),
            inline(run.made_on),
            chip(run.outcome),
            inline(clipped(headline(run), 160)) or "–",
        ]
        for run in runs
    ]
    more = f"\n\n[Every run]({at.RUNS})"
    return stacked_table(["Run", "Recipe", "Machine", "Status", "Result"], rows) + more


def _bugs(index: Index) -> str:
    found = [case for case in index.newest_bugs if case.is_open]
    if not found:
        return nothing("No bug is open." if index.bugs else "No session's record names a bug.")
    return bullets(
        f"{index.link(case.page, at.HOME)} {chip(case.status)} recorded in "
        + session_cell(index, case.session, at.HOME)
        for case in found
    )


def _stands(index: Index) -> str:
    """The session that began last: the list is grouped by line of work, so it may not end there."""
    if not index.sessions:
        return ""
    began = {s.started.at: s for s in index.sessions.values() if s.started and s.started.zoned}
    last = began[max(began)] if began else list(index.sessions.values())[-1]
    return f"Where the work stands: {index.link(at.session_page(last.id), at.HOME)}"
