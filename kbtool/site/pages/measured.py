"""The measurements of a kernel: its times beside those of its peers, and over size.

Each has the validation of the same run beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median

from kbtool.ledger.headline import COLUMNS, Headline, Standing, Verdict, headlines
from kbtool.ledger.measured import (
    UNSAID,
    Group,
    Machine,
    groups,
    missing,
    newer_than,
    of_another_problem,
    of_one_problem,
    read_ceiling,
    widest_field,
)
from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.figures import many, share_text, significant
from kbtool.markdown.markup import (
    anchor,
    bullets,
    chip,
    folded,
    heading,
    join,
    muted,
    narrow,
    no_ratio,
    nowrap,
    slim_table,
    stacked_table,
)
from kbtool.markdown.plot import Axis, Mark, Point, Row, Series, plot, rows, timed
from kbtool.model.kernel import Kernel, case_label
from kbtool.model.kinds.benchmark import BenchmarkCase
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.roofline import rooflines
from kbtool.site.pages.times import (
    HOW_TO_READ,
    OLDER,
    against,
    commit_text,
    meanings,
    passed_text,
    results_anchor,
    standing,
)
from kbtool.site.parts import compare_link, newer_noisy

_MOST_POINTS = 400
"""The most points in one chart; with more, peers other than the baseline are only in the table."""

_CEILING = (
    "Share of ceiling: the least time that memory reads and arithmetic allow, at the rates that the"
    " same run measured, ÷ our time; median over the cases, the largest below it. It can pass 100 %"
    " where the rate was measured too low. Of reading: that run measured no rate of arithmetic."
)
_ANOTHER = (
    "Another problem: the harness, or a file that it reads, was another one than in the newest run;"
    " such a row is in no chart beside the others."
)

_RELATIVE = Axis("time ÷ ours, log scale; right of 1 is slower than ours", "log2")


def results(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """One part per machine: headlines, each peer, times over size, how to measure again."""
    here, arms = at.topic_page(kernel.id, "results"), index.arms[kernel.id]
    parts = []
    for machine, every in found.items():
        shown = headlines(every)
        peers = _peers(shown)
        charted, others = _charted(shown)
        apart = [one for one in shown if one not in charted]
        parts += [
            heading(2, f"{inline(machine.name)}, {code(machine.target)}", results_anchor(machine)),
            _standings(index, every, shown, here, apart),
            _against(shown, peers),
            meanings(kernel, _arms([one.newest for one in shown], peers)),
            _relative(machine, charted, peers, arms),
            *_over_size(kernel, machine, charted, peers, arms),
            f"Not in the charts: {of_another_problem(others)}." if others else "",
            _figures(shown),
            *_again(index, shown, here),
        ]
    return parts


def _charted(shown: Sequence[Headline]) -> tuple[list[Headline], int]:
    """Those of one problem, and how many runs solve another."""
    newest = max((one.newest for one in shown), key=lambda group: group.run.started)
    drawn, others = of_one_problem((one.newest for one in shown), newest)
    return [one for one in shown if one.newest in drawn], others


def verdict_line(kernel: Kernel, verdict: Verdict, here: str, more: str = "") -> str:
    """A verdict in words, set off from the text around it, with the way to its commands."""
    run = verdict.headlines[0].newest.run
    results = f"{at.topic_page(kernel.id, 'results')}#{_again_anchor(run)}"
    again = at.link("Measure it again", results, here)
    told = f"{inline(verdict.stands(kernel.title))}{more} {again}."
    scope = muted(inline(verdict.scope))
    return f'<div class="kb-verdict" markdown="block">\n\n{told}\n\n{scope}\n\n</div>'


def beside_peers(index: Index, kernel: Kernel, verdict: Verdict) -> list[str]:
    """The figures of a verdict: a table of the peers, their ratios drawn, and times over size."""
    charted, _ = _charted(verdict.headlines)
    lines = [
        [
            f"{inline(one.newest.set_title)} <br>{muted(many(len(one.cases), 'case'))}",
            *(_beside(one, peer) for peer in (None, *verdict.peers)),
        ]
        for one in verdict.headlines
    ]
    header = ["Case set", "Best peer", *map(narrow, verdict.peers)]
    return [
        slim_table(header, lines, range(1, len(header))),
        muted(
            "Time of the peer ÷ ours, geometric mean over the cases: above 1 ours is faster. Below"
            " it the least and the largest, and in how many cases ours lost, if in any."
        ),
        meanings(kernel, verdict.peers),
        drawn(verdict, index.arms[kernel.id]),
        muted(
            "Below: time of a call in a chain of its own calls, over the bytes that it has to move."
            " The dashed line is the time that the bytes take at the read rate measured on the"
            " machine."
        ),
        _over_size(kernel, verdict.machine, charted, verdict.peers, index.arms[kernel.id])[0],
    ]


def drawn(verdict: Verdict, arms: Sequence[str]) -> str:
    """The means of a verdict, a row for each case set.

    Args:
        verdict: the verdict.
        arms: the kernel's, in the order of their colours.
    """
    cases = []
    for one in verdict.headlines:
        found = ((peer, one.beside(peer)) for peer in verdict.peers)
        marks = {
            peer: Mark(of.mean, f"{peer}: {significant(of.mean)} × our time")
            for peer, of in found
            if of is not None
        }
        cases.append(Row(one.newest.set_title, marks, None))
    title = f"Time of each peer ÷ ours on {verdict.machine.name}, by case set"
    return rows(title, _RELATIVE, arms, cases, 1.0)


def _beside(one: Headline, peer: str | None) -> str:
    """A cell: how ours stands beside a peer, or beside the best of each case."""
    of = one.beside(peer) if peer else one.leading
    if of is None:
        return ""
    told = [f"{significant(of.least)}–{significant(of.most)}"]
    if of.lost:
        told.append(f"{of.lost} lost")
    if len(of.best) < of.of:
        told.append(f"{len(of.best)} of {many(of.of, 'case')}")
    return f"{significant(of.mean)} <br>{muted(' <br>'.join(told))}"


def _standings(
    index: Index,
    every: Sequence[Group],
    shown: Sequence[Headline],
    here: str,
    apart: Sequence[Headline],
) -> str:
    """The headlines: our time against the best peers; ``apart`` are of another problem."""
    lines = []
    for one in shown:
        group, newer = one.newest, newer_than(every, one.newest)
        shares = group.ceiling_shares
        of = "" if group.result.arithmetic_gflop_s else " of reading"
        lines.append(
            [
                inline(group.title)
                + (f" {chip('noisy')}" if group.noise_reason else "")
                + (f" {chip('another problem')}" if one in apart else "")
                + (f" <br>{muted(newer_noisy(index, newer.run, here))}" if newer else ""),
                str(len(one.cases)),
                passed_text(group.run),
                *standing(one),
                nowrap(f"{significant(100 * median(shares))} %{of}")
                + f" <br>{muted(nowrap(f'up to {significant(100 * max(shares))} %'))}"
                if shares
                else no_ratio(group.result),
                f"{index.run_link(group.run, here)} <br>{commit_text(group.run)}",
            ]
        )
    header = [
        "Case set", "Timed", "Right in the same run", *COLUMNS, "Share of ceiling", "Measured",
    ]  # fmt: skip
    return join(
        [
            HOW_TO_READ,
            stacked_table(header, lines, range(1, 5)),
            muted(_CEILING),
            muted(_ANOTHER) if apart else None,
        ]
    )


def _against(shown: Sequence[Headline], peers: Sequence[str]) -> str:
    """Our time against each peer, in the newest run of the build that timed it."""
    lines = [
        [inline(one.newest.title), *(against(one.with_peer(peer), peer) for peer in peers)]
        for one in shown
    ]
    header = ["Case set", *map(narrow, peers)]
    ours = sorted({one.newest.subject for one in shown})
    newest = [one.newest for one in shown]
    why = _missing(shown, peers)
    return join(
        [
            "Time of each peer ÷ time of "
            + ", ".join(code(subject) for subject in ours)
            + " in a chain, in the newest run of the build that timed the peer: geometric mean"
            " over the cases, smallest and largest in small type. A dash: no run of the build"
            " timed the peer there, unless another reason is below.",
            slim_table(header, lines, range(1, len(header))),
            bullets(_noisy(newest)),
            folded(f"Other reasons for a dash: {len(why)}", bullets(why)) if why else None,
        ]
    )


def _noisy(newest: Iterable[Group]) -> list[str]:
    """Why a case set has no ratio, if all its runs were noisy."""
    return [
        f"{inline(group.title)}: no ratio because the run is {inline(noise)}"
        for group in newest
        if (noise := group.noise_reason)
    ]


def _missing(shown: Iterable[Headline], peers: Sequence[str]) -> list[str]:
    """Why a peer has no figure in some cases, where a run says so; each reason once."""
    counted: dict[tuple[str, str], dict[str, int]] = {}
    for peer in peers:
        for one in shown:
            for reason, counts in missing([one.with_peer(peer)], [peer]).items():
                counted.setdefault(reason, {}).update(counts)
    return [
        f"{inline(arm)}: {inline(why)}: "
        + inline(", ".join(f"{title} ({many(n, 'case')})" for title, n in counts.items()))
        for (arm, why), counts in counted.items()
        if why != UNSAID
    ]


def _relative(
    machine: Machine, shown: Sequence[Headline], peers: Sequence[str], arms: Sequence[str]
) -> str:
    cases = []
    for one in shown:
        group = one.newest
        ratios = {peer: one.with_peer(peer).ratio_to(peer) for peer in peers}
        marks = {
            peer: Mark(r.mean, f"{peer}: {significant(r.mean)} × our time", r.low, r.high)
            for peer, r in ratios.items()
            if r is not None
        }
        shares = group.ceiling_shares
        if not shares:
            continue
        least = geometric_mean(shares)
        limit = Mark(least, f"ceiling: {significant(least)} × our time")
        cases.append(Row(one.label, marks, limit))
    title = (
        f"Time of each peer against ours on {machine.name}, by case set, with the quartiles of"
        " both; the table above has the figures"
    )
    return rows(title, _RELATIVE, arms, cases, 1.0)


def _arms(newest: Iterable[Group], peers: Iterable[str]) -> list[str]:
    """Ours, then the peers, always in the same order, so that an arm keeps its colour."""
    return list(dict.fromkeys([*(group.subject for group in newest), *peers]))


def _over_size(
    kernel: Kernel,
    machine: Machine,
    shown: Sequence[Headline],
    peers: Sequence[str],
    arms: Sequence[str],
) -> list[str]:
    """Times over the bytes to move, and over the field of the cases that varies most."""
    newest, cases = [one.newest for one in shown], [case for one in shown for case in one.cases]
    few = _few_arms(shown, peers)
    rate = significant(newest[0].result.read_gb_s)
    ceiling = read_ceiling(newest)
    limit = (f"read ceiling, {rate} GB/s", ceiling) if ceiling else None
    charts = [
        _over(
            f"the bytes that it has to move, on {machine.name}",
            Axis("least bytes to move, log scale", "log10"),
            [(case, float(case.bytes)) for case in cases],
            arms,
            few,
            limit,
        )
    ]
    field = widest_field(cases)
    if field:
        known = kernel.case_fields.get(field)
        words = f"{field}, {known.help.rstrip('.').lower()}" if known and known.help else field
        axis = Axis(f"{words}, log scale", "log2")
        sized = [
            (case, float(size))
            for case in cases
            if isinstance(size := case.case.get(field), int | float)
        ]
        charts.append(_over(f"{words}, on {machine.name}", axis, sized, arms, few, None))
    return charts


def _few_arms(shown: Sequence[Headline], peers: Sequence[str]) -> list[str]:
    """The arms of a chart with a point per case: with too many points ours and the baseline."""
    newest = [one.newest for one in shown]
    arms = _arms(newest, peers)
    if len(arms) * sum(len(one.cases) for one in shown) > _MOST_POINTS:
        arms = _arms(newest, [group.result.baseline for group in newest])
    return arms


def roofs(index: Index, kernel: Kernel, here: str) -> list[str]:
    """The rooflines of each machine; none where no arithmetic ceiling was measured."""
    parts = []
    for machine, every in groups(index.runs_of(kernel=kernel.id), kernel).items():
        shown = headlines(every)
        charted, _ = _charted(shown)
        few = _few_arms(charted, _peers(shown))
        parts += rooflines(machine, charted, index.arms[kernel.id], few, here)
    return parts


def _peers(shown: Iterable[Headline]) -> list[str]:
    """The peers of any of the runs, the newest first."""
    found = (peer for one in shown for group in one.pooled for peer in group.peers)
    return list(dict.fromkeys(found))


def _over(
    what: str,
    axis: Axis,
    sized: Sequence[tuple[BenchmarkCase, float]],
    arms: Sequence[str],
    few: Sequence[str],
    limit: tuple[str, Sequence[tuple[float, float]]] | None,
) -> str:
    """The time over one size of the cases: of ``few`` of the ``arms``."""
    series = [
        Series(
            arm,
            [_point(arm, case, size) for case, size in sized if arm in case.arms and arm in few],
        )
        for arm in arms
    ]
    return plot(
        f"Time of a call over {what}, both on log scales, with quartiles; the figures are folded up"
        " below",
        axis,
        Axis("µs a call, log scale", "log10"),
        series,
        limit,
    )


def _point(arm: str, case: BenchmarkCase, size: float) -> Point:
    one = case.arms[arm]
    mark = timed(arm, one.median_us, one.low_us, one.high_us)
    return Point(size, mark.value, f"{case_label(case)}, {mark.tooltip}", mark.low, mark.high)


def _figures(shown: Sequence[Headline]) -> str:
    """The figures of the charts, folded up."""
    lines = []
    apart = any(one.between for one in shown)
    for one in shown:
        group = one.newest
        for case in one.cases:
            ours, share = case.arms[group.subject], share_text(group.result, case)
            needs, none = case.workspace_bytes.get(group.subject), no_ratio(group.result)
            lines.append(
                [
                    inline(case_label(case)),
                    _best(one.chain, case.name) or none,
                    *([_best(one.between, case.name)] if apart else []),
                    f"{significant(ours.median_us)}"
                    f" {muted(f'{significant(ours.low_us)}–{significant(ours.high_us)}')}",
                    share or none,
                    f"{case.bytes:,}",
                    significant(case.intensity) if case.intensity else "",
                    f"{needs:,}" if needs is not None else "",
                ]
            )
    header = [
        "Case", "Best peer ÷ ours", *(["The same, between plain kernels"] if apart else []),
        "Ours (µs)", "Share of ceiling", "Least bytes", "FLOP per byte", "Workspace (bytes)",
    ]  # fmt: skip
    return folded("The figures, case by case", slim_table(header, lines, range(1, len(header))))


def _best(standing: Standing | None, case: str) -> str:
    """The best peer of a case, and its time ÷ ours; empty if there is none."""
    if standing is None or case not in standing.best:
        return ""
    peer, ratio = standing.best[case]
    return f"{significant(ratio)} {muted(inline(peer))}"


def _again_anchor(run: Run) -> str:
    return f"again.{at.fragment(run.id)}"


def _again(index: Index, shown: Sequence[Headline], here: str) -> list[str]:
    """The runs that the figures are from, each with its commands."""
    parts = []
    every = [group for one in shown for group in one.pooled]
    for run_id in dict.fromkeys(group.run.id for group in every):
        of_run = [group for group in every if group.run.id == run_id]
        run, subject = of_run[0].run, of_run[0].result.subject
        titles = inline(", ".join(group.title for group in of_run))
        comparison = compare_link("compare it", [run.id], subject, here)
        changed = " and uncommitted changes" if run.repository.dirty else ""
        changed += f", {OLDER}" if index.is_older(run) else ""
        parts += [
            f"{anchor(_again_anchor(run))}{titles}: run of {index.run_link(run, here)},"
            f" commit {commit_text(run)}{changed}, {comparison}. To measure it again:",
            block("\n".join(index.commands(run))),
        ]
    return parts
