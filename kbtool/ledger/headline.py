"""The one rule for headlines: how a kernel stands against its peers (ADR 0038).

A headline is of one machine, one case set and one dtype. Of each case the best peer counts, over
all quiet runs of one build: of the same sources, at one commit or several. A peer's time is divided
by our time of the same run. The peers are named, and those that are missing. Ratios have no unit;
above 1 ours is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import geometric_mean
from typing import Any, NamedTuple

from kbtool.ledger.measured import Group, Machine, groups, newest_of_sets
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkCase
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.run import Run, another_problem
from kbtool.model.words import listed, many, significant

NOT_TIMED = "not timed on this build"
NOT_BETWEEN = "not timed between plain kernels"
NOISY = "timed by noisy runs alone"
WRONG = "wrong on this build"

COLUMNS = ("Between plain kernels", "In a chain", "Peers")
"""What tables of headlines call the two means and the peers."""

NO_BETWEEN = "not measured"
"""What stands for the time between plain kernels where no run of the build has it."""


class Against(NamedTuple):
    """A peer's time ÷ ours in one case, geometric mean over the runs that timed both."""

    ratio: float
    low: float | None
    """The same with the quartiles that make it least …"""
    high: float | None
    """… and most; ``None`` where a run has no quartiles."""


Ratios = dict[str, dict[str, Against]]
"""Case → peer → its time ÷ ours."""


class Standing(NamedTuple):
    """The best peer's time ÷ ours over the cases, by one measure."""

    best: dict[str, tuple[str, float]]
    """Case → its best peer, and that peer's time ÷ ours."""
    of: int
    """Cases in all; some may have no peer."""

    @property
    def mean(self) -> float:
        """Geometric, over the cases that have a peer."""
        return geometric_mean(ratio for _, ratio in self.best.values())

    @property
    def least(self) -> float:
        """The ratio of the case where ours is worst."""
        return min(ratio for _, ratio in self.best.values())

    @property
    def lost(self) -> int:
        """Cases in which the best peer is faster than ours."""
        return sum(ratio < 1 for _, ratio in self.best.values())

    @property
    def most(self) -> float:
        """The ratio of the case where ours is best."""
        return max(ratio for _, ratio in self.best.values())

    @property
    def spread(self) -> str:
        """What stands beside the mean: ``least 0.91; 2 of 7 lost``."""
        known = len(self.best)
        part = f"; {known} of {many(self.of, 'case')} have a peer" if known < self.of else ""
        return f"least {significant(self.least)}; {self.lost} of {known} lost{part}"


class Headline(NamedTuple):
    """How ours stands on the cases of one set and dtype, on one machine."""

    newest: Group
    """The newest group of the build that the headline is of."""
    pooled: list[Group]
    """It and the other quiet groups of that build, newest first."""
    between: Standing | None
    """By the times between plain kernels, which leads; ``None`` where no run has them."""
    chain: Standing | None
    """By the times in a chain of an arm's own calls."""
    peers: list[str]
    """The peers that were timed and right, by the measure that leads."""
    missing: dict[str, str]
    """Peer that was timed before → why it is not among them, or in how many cases not."""
    not_taken: list[str]
    """Peers that were timed on such cases of another dtype and never of this one."""

    @property
    def cases(self) -> list[BenchmarkCase]:
        """The cases as the newest run timed them, with the arms that only older ones timed."""
        found: dict[str, BenchmarkCase] = {}
        for group in self.pooled:
            for case in group.cases:
                newer = found.get(case.name)
                arms = {**case.arms, **newer.arms} if newer else case.arms
                found[case.name] = (newer or case).model_copy(update={"arms": arms})
        return list(found.values())

    @property
    def label(self) -> str:
        """The case set, the dtype and how many cases."""
        return f"{self.newest.title} ({many(len(self.cases), 'case')})"

    def with_peer(self, peer: str) -> Group:
        """The newest group of the build in which a peer was timed and right, else one that says
        why it was not, else the newest."""
        right = (group for group in self.pooled if group.against(peer))
        says_why = (
            group
            for group in self.pooled
            if any(peer in case.absent or peer in case.peers for case in group.cases)
        )
        return next(right, None) or next(says_why, self.newest)

    @property
    def leading(self) -> Standing | None:
        """Between plain kernels, or in a chain where no run has that."""
        return self.between or self.chain

    @property
    def ratios(self) -> Ratios:
        """Every right peer's time ÷ ours, case by case, by the measure that leads."""
        return _ratios(self.pooled, between=self.between is not None)

    def beside(self, peer: str) -> Standing | None:
        """How ours stands beside one peer, by the measure that leads."""
        ratios = self.ratios
        alone = {case: {peer: peers[peer]} for case, peers in ratios.items() if peer in peers}
        return _standing(alone, len(self.cases))

    @property
    def against(self) -> str:
        """The peers, and which are missing: it stands in the line of every ratio."""
        if self.newest.noise_reason:
            return f"no ratio, {self.newest.noise_reason}"
        named = listed(self.peers)
        if not named:
            parts = ["no ratio: no peer was timed and right"]
        elif self.missing:
            parts = [f"only {named}"]
        else:
            parts = [f"best of {named}" if len(self.peers) > 1 else f"{named}, the only peer timed"]
        reasons: dict[str, list[str]] = {}
        for peer, why in self.missing.items():
            reasons.setdefault(why, []).append(peer)
        parts += [f"{listed(peers)} {why}" for why, peers in reasons.items()]
        if self.not_taken:
            parts.append(f"{self.newest.dtype}: no {listed(self.not_taken)}")
        return "; ".join(parts)

    def mean_and_spread(self, *, between: bool) -> tuple[str, str]:
        """The mean by one measure and what stands beside it; else why there is none, or a dash."""
        standing = self.between if between else self.chain
        if standing is not None:
            return significant(standing.mean), standing.spread
        return (NO_BETWEEN, "") if between and self.chain is not None else ("–", "")


class Verdict(NamedTuple):
    """How a kernel stands beside its peers, of one build: its headlines of one machine and
    dtype."""

    machine: Machine
    headlines: list[Headline]
    """The one with the largest mean first."""
    elsewhere: list[Headline]
    """The newest of each other case set of this target and dtype, from other builds or machines:
    this build was not timed on it, or another was later. The one with the largest mean first."""

    @property
    def dtype(self) -> str | None:
        """The element type; ``None`` where the cases state none."""
        return self.headlines[0].newest.dtype

    @property
    def between(self) -> bool:
        """Whether the ratios are of times between plain kernels."""
        return self.headlines[0].between is not None

    @property
    def peers(self) -> list[str]:
        """The peers that were timed and right in any of its case sets."""
        return list(dict.fromkeys(peer for one in self.headlines for peer in one.peers))

    def sentence(self, title: str) -> str:
        """The verdict in words; ``title`` is what the kernel is called."""
        return f"{self.stands(title)} {self.scope}"

    def stands(self, title: str) -> str:
        """How it stands: mean, least and largest ratio of each case set."""
        how = "between plain kernels" if self.between else "in a chain of its own calls"
        where = [title, self.machine.name, self.dtype, how]
        first, *others = (
            (significant(of.mean), f"{one.newest.set_title} ({_range(of)})")
            for one in self.headlines
            if (of := one.leading) is not None
        )
        stands = [f"{first[0]} times the speed of the best peer in {first[1]}"]
        stands += [f"{mean} in {of}" for mean, of in others]
        return f"{', '.join(filter(None, where))}: {listed(stands)}."

    @property
    def scope(self) -> str:
        """What that is of: the peers and those that are missing, the build, and what other builds
        were timed on."""
        without: dict[str, dict[str, None]] = {}
        for one in self.headlines:
            for peer, why in one.missing.items():
                without.setdefault(f"{why} in {one.newest.set_title}", {})[peer] = None
        if len(without) > 1:  # the rows of its headlines say which
            peers = dict.fromkeys(peer for lacking in without.values() for peer in lacking)
            without = {"left out in some of them": peers}
        lacks = [f"; {listed([*peers])} {why}" for why, peers in without.items()]
        never = dict.fromkeys(peer for one in self.headlines for peer in one.not_taken)
        if never:
            lacks.append(f"; {self.dtype}: no {listed([*never])}")
        runs = [one.newest.run for one in sorted(self.headlines, key=_started, reverse=True)]
        days = dict.fromkeys(f"{run.started:%Y-%m-%d}" for run in runs)
        commits = dict.fromkeys(commit[:8] for run in runs if (commit := _commit(run)))
        measured = f"Measured on {listed(days)}"
        measured += f" at {_of_commits(list(commits))}" if commits else ""
        return f"Peers: {listed(self.peers)}{''.join(lacks)}. {measured}.{self._of_others()}"

    def _of_others(self) -> str:
        """The range of the other case sets, so that no loss is left unsaid."""
        if not self.elsewhere:
            return ""
        most, least = (
            f"{significant(_mean(one))} in {one.newest.set_title}"
            for one in (self.elsewhere[0], self.elsewhere[-1])
        )
        count, several = len(self.elsewhere), len(self.elsewhere) > 1
        return (
            f" {many(count, 'other case set')}, of other builds or on other machines: {least}"
            f"{f' to {most}' if several else ''}."
        )


def _range(of: Standing) -> str:
    return f"{significant(of.least)} to {significant(of.most)}"


def verdict(found: Mapping[Machine, Sequence[Group]]) -> Verdict | None:
    """The headlines of the machine, dtype and commit that compare most cases with most peers and
    lack none that is the best of a case in another dtype; between plain kernels wherever a run has
    that. ``None`` if no quiet run has a peer.

    Args:
        found: machine → its groups, newest first.
    """
    builds: list[Verdict] = []
    fastest: dict[tuple[Machine, str], set[str]] = {}
    """Machine and case set → the peers that are the best of a case, in any dtype."""
    for machine, every in found.items():
        for one in headlines(every):
            if one.leading is not None:
                build = next((of for of in builds if _belongs(one, machine, of)), None)
                if build is None:
                    builds.append(build := Verdict(machine, [], []))
                build.headlines.append(one)
                leads = fastest.setdefault((machine, one.newest.case_set), set())
                leads.update(peer for peer, _ in one.leading.best.values())
    if not builds:
        return None

    def weight(build: Verdict) -> tuple[bool, bool, int, datetime]:
        lacks = (
            fastest[build.machine, one.newest.case_set] & {*one.not_taken}
            for one in build.headlines
        )
        ratios = (_ratios(one.pooled, between=build.between) for one in build.headlines)
        compared = sum(len(peers) for of_cases in ratios for peers in of_cases.values())
        return build.between, not any(lacks), compared, max(map(_started, build.headlines))

    best = max(builds, key=weight)
    here = {one.newest.case_set for one in best.headlines}
    elsewhere: dict[str, Headline] = {}
    for other in builds:
        if (other.machine.target, other.dtype) == (best.machine.target, best.dtype):
            for one in other.headlines:
                name = one.newest.case_set
                if name not in here:
                    elsewhere[name] = max(one, elsewhere.get(name, one), key=_started)
    ordered = (sorted(of, key=_mean, reverse=True) for of in (best.headlines, elsewhere.values()))
    return Verdict(best.machine, *ordered)


def _belongs(one: Headline, machine: Machine, build: Verdict) -> bool:
    """Whether a headline is of a build's machine, dtype, measure and sources."""
    first = build.headlines[0]
    return (
        machine == build.machine
        and one.newest.dtype == first.newest.dtype
        and (one.between is None) == (first.between is None)
        and same_build(one.newest.run, first.newest.run)
    )


def _mean(one: Headline) -> float:
    return one.leading.mean if one.leading else 0.0


def _started(one: Headline) -> datetime:
    return one.newest.run.started


def headlines(every: Sequence[Group]) -> list[Headline]:
    """A headline for each case set and dtype, of the build of the newest quiet run.

    Args:
        every: the groups of one machine, newest first.
    """
    return [headline(every, newest) for newest in newest_of_sets(every)]


def headlines_of(run: Run, runs: Iterable[Run], kernel: Kernel) -> list[tuple[Machine, Headline]]:
    """A headline for each case set and dtype that one run timed.

    Args:
        run: the run, of the kernel.
        runs: every run, oldest first, with every attempt.
        kernel: the kernel.
    """
    last = {other.id: other for other in runs if other.kernel == kernel.id}
    last.pop(run.id, None)
    found = groups([run, *reversed(last.values())], kernel)
    return [
        (machine, headline(every, newest))
        for machine, every in found.items()
        for newest in every
        if newest.run is run
    ]


def headline(every: Sequence[Group], newest: Group) -> Headline:
    """The headline of the build that ``newest`` was measured of.

    Args:
        every: the groups of one machine, newest first, ``newest`` among them.
        newest: whose case set, dtype and build it is of. If it is noisy there is no ratio.
    """
    if newest.noise_reason:
        return Headline(newest, [newest], None, None, [], {}, [])
    pooled = [group for group in every if not group.noise_reason and _of_one_build(group, newest)]
    chain, between = _ratios(pooled, between=False), _ratios(pooled, between=True)
    leading = between or chain
    cases = {case.name for group in pooled for case in group.cases}
    timed = _cases_of_peers(leading)
    known = _timed_before(group for group in every if group.kind == newest.kind)
    missing = {}
    for peer, before in known.items():
        untimed = before & cases - timed.get(peer, set())
        if peer not in timed:
            missing[peer] = _why(every, pooled, newest, peer, peer in _cases_of_peers(chain))
        elif untimed:
            missing[peer] = f"not timed in {len(untimed)} of {many(len(cases), 'case')}"
    of_any_dtype = _timed_before(group for group in every if group.case_set == newest.case_set)
    return Headline(
        newest,
        pooled,
        _standing(between, len(cases)),
        _standing(chain, len(cases)),
        list(timed),
        missing,
        [peer for peer in of_any_dtype if peer not in known],
    )


def same_build(one: Run, other: Run) -> bool:
    """Whether two runs measured the same thing: the same problem and, at one commit or at two, the
    same sources, compiled alike. One may have compiled only a part of them.

    A run with changes that no commit has stands alone: nobody can check out what it measured.
    """
    if one is other:
        return True
    if None in (_commit(one), _commit(other)) or another_problem(one, other):
        return False
    if _commit(one) == _commit(other):
        return True
    a, b = one.last(BuildResult), other.last(BuildResult)
    if not (a and b and one.identity and other.identity):
        return False
    shared = a.sources.keys() & b.sources.keys()
    return (
        bool(shared)
        and all(a.sources[name] == b.sources[name] for name in shared)
        and (a.target, a.compiler, a.flags, a.linked) == (b.target, b.compiler, b.flags, b.linked)
        and one.identity.solution == other.identity.solution
    )


def _of_one_build(group: Group, newest: Group) -> bool:
    return group.kind == newest.kind and same_build(group.run, newest.run)


def _of_commits(commits: Sequence[str]) -> str:
    first, *others = commits
    return f"commits {listed(commits)}, of the same build" if others else f"commit {first}"


def _commit(run: Run) -> str | None:
    state = run.repository
    return None if state.dirty is not False or state.changed_during_run else state.commit


def _ratios(pooled: Iterable[Group], *, between: bool) -> Ratios:
    found: dict[str, dict[str, list[tuple[Timing, Timing]]]] = {}
    for group in pooled:
        for case in group.cases:
            ours = case.arms[group.subject]
            for peer in group.right_peers(case):
                theirs = case.arms[peer]
                if ours.us(between) and theirs.us(between):
                    peers = found.setdefault(case.name, {})
                    peers.setdefault(peer, []).append((theirs, ours))
    return {
        case: {peer: _against(pairs, between) for peer, pairs in peers.items()}
        for case, peers in found.items()
    }


def _against(pairs: Sequence[tuple[Timing, Timing]], between: bool) -> Against:
    """Over pairs of a peer's time and ours, both measured in that way."""

    def mean(of_theirs: int, of_ours: int) -> float | None:
        ratios = []
        for theirs, ours in pairs:
            us, by = theirs.quartiles(between)[of_theirs], ours.quartiles(between)[of_ours]
            if us is None or by is None:
                return None
            ratios.append(us / by)
        return geometric_mean(ratios)

    ratio = mean(1, 1)
    assert ratio is not None
    return Against(ratio, mean(0, 2), mean(2, 0))


def _standing(ratios: Ratios, of: int) -> Standing | None:
    best = {}
    for case, peers in ratios.items():
        peer = min(peers, key=lambda name: peers[name].ratio)
        best[case] = (peer, peers[peer].ratio)
    return Standing(best, of) if best else None


def _cases_of_peers(ratios: Ratios) -> dict[str, set[str]]:
    """Peer → the cases in which it has a ratio."""
    found: dict[str, set[str]] = {}
    for case, peers in ratios.items():
        for peer in peers:
            found.setdefault(peer, set()).add(case)
    return found


def _timed_before(every: Iterable[Group]) -> dict[str, set[str]]:
    """Peer → the cases in which any run, noisy or not, timed it and found it right."""
    found: dict[str, set[str]] = {}
    for group in every:
        for case in group.cases:
            for peer in group.right_peers(case):
                found.setdefault(peer, set()).add(case.name)
    return found


def _why(
    every: Iterable[Group], pooled: Iterable[Group], newest: Group, peer: str, in_chain: bool
) -> str:
    """Why a peer that is known has no ratio by the measure that leads."""
    if in_chain:
        return NOT_BETWEEN
    if any(peer in case.arms for group in pooled for case in group.cases):
        return WRONG
    noisy = (group for group in every if group.noise_reason and _of_one_build(group, newest))
    return NOISY if peer in _timed_before(noisy) else NOT_TIMED


def as_json(machine: Machine, one: Headline) -> dict[str, Any]:
    """A headline for programs; ratios are rounded nowhere.

    Args:
        machine: what it was measured on.
        one: the headline.
    """

    def standing(of: Standing | None) -> dict[str, Any] | None:
        if of is None:
            return None
        return {"mean": of.mean, "least": of.least, "lost": of.lost, "cases": len(of.best)}

    return {
        "target": machine.target,
        "machine": machine.name,
        "case_set": one.newest.case_set,
        "dtype": one.newest.dtype,
        "commit": one.newest.run.repository.commit,
        "runs": [group.run.id for group in one.pooled],
        "between": standing(one.between),
        "chain": standing(one.chain),
        "peers": one.peers,
        "missing": one.missing,
        "not_taken": one.not_taken,
        "against": one.against,
    }
