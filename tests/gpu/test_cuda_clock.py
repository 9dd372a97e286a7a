"""How many calls a sample takes on a card, on which inputs, and whose output is kept.

The card is stood in for by one that counts its own time; no test here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbtool.gpu import cuda_clock
from kbtool.gpu.cuda_clock import MAX_CALLS, CudaClock
from kbtool.gpu.unseen import Unseen

L2 = 50 << 20
START = 9e-6  # what a replay costs beside its calls
PLAIN = 1e-6  # the kernel that calls are timed behind


class Card:
    """Runs what is launched, or captures it; its time passes by what is launched, and nothing else.

    An eager call takes it as long as Python takes to make it: the card waits for the host.
    """

    def __init__(self, memory: int = 140 << 30) -> None:
        self.memory, self.now, self.allocated = memory, 0.0, 0
        self.capturing: Graph | None = None
        self.replayed: list[Graph] = []
        self.spun, self.peak = 0, 0

    def allocate(self, amount: int) -> None:
        self.allocated += amount
        self.peak = max(self.peak, self.allocated)

    def forget_peak(self) -> None:
        self.peak = self.allocated

    def launch(self, host: float, device: float, act: Callable[[], Any], mark: Any) -> None:
        if self.capturing is not None:
            self.capturing.calls.append((device, act, mark))
            return
        self.now += max(host, device)
        act()

    def torch(self) -> SimpleNamespace:
        """As much of torch as the clock asks for."""
        card = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = card.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Any) -> float:
                return (end.at - self.at) * 1e3

        @contextmanager
        def graph(captured: Graph) -> Any:
            card.capturing = captured
            try:
                yield
            finally:
                card.capturing = None

        @contextmanager
        def stream(_: Any) -> Any:
            yield

        def spin(cycles: int) -> None:
            self.spun += 1

        cuda = SimpleNamespace(
            current_device=lambda: 0, Event=Event, graph=graph, stream=stream, Stream=object,
            CUDAGraph=lambda: Graph(card), synchronize=lambda: None, _sleep=spin,
            memory_allocated=lambda: card.allocated, max_memory_allocated=lambda: card.peak,
            reset_peak_memory_stats=card.forget_peak,
            get_device_properties=lambda device: SimpleNamespace(
                uuid="0-0", L2_cache_size=L2, total_memory=card.memory
            ),
        )  # fmt: skip
        return SimpleNamespace(
            cuda=cuda, device=lambda kind, number: torch.device("cpu"), int8=None, float32=None,
            empty=lambda n, dtype, device: SimpleNamespace(nbytes=n, zero_=lambda: None),
            ones=lambda n, dtype, device: None,
            zeros=lambda n, device: SimpleNamespace(
                add_=lambda _: card.launch(0.0, PLAIN, lambda: None, "plain") or torch.empty(1)
            ),
        )  # fmt: skip


class Graph:
    def __init__(self, card: Card) -> None:
        self.card = card
        self.calls: list[tuple[float, Callable[[], Any], Any]] = []

    def replay(self) -> None:
        self.card.now += START
        for device, act, _ in self.calls:
            self.card.now += device
            act()
        self.card.replayed.append(self)

    @property
    def sets(self) -> list[int]:
        return [mark for _, _, mark in self.calls]


class Arms:
    """Arms of one case, each a (host seconds, card seconds) pair; all write their set's number."""

    def __init__(self, card: Card, bytes_of_set: int, **costs: tuple[float, float]) -> None:
        self.card, self.bytes, self.costs = card, bytes_of_set, costs
        self.made = 0

    def __call__(self, number: int) -> Any:
        assert number == self.made
        self.made += 1
        self.card.allocated += self.bytes
        return {name: self.call(number, *cost) for name, cost in self.costs.items()}

    def call(self, number: int, host: float, device: float) -> Callable[[], Any]:
        def run() -> Any:
            out = torch.empty(2)
            self.card.launch(host, device, lambda: out.fill_(number), number)
            return out, "a second output"

        return run


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    install(made, monkeypatch)
    return made


def install(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_clock, "torch", card.torch())


def timed(arms: Arms, least_bytes: int) -> cuda_clock.Timed:
    return CudaClock(5).time(arms, least_bytes)


def test_a_sample_is_as_long_however_long_python_takes_for_a_call(card):
    arms = Arms(card, 2 << 20, quick=(20e-6, 5e-6), slow=(90e-6, 5e-6), long=(20e-6, 50e-6))
    timings = timed(arms, 2 << 20).timings
    calls = {name: one.calls_per_sample for name, one in timings.items()}
    assert calls["quick"] == calls["slow"] == 180  # of 16 calls each took 5 + 9 / 16 µs
    assert calls["long"] == 20
    lengths = [one.sample_ms for one in timings.values()]
    assert min(lengths) > 0.9 and max(lengths) < 1.1
    # What the start of a replay adds is a like share of short calls and of long ones.
    assert timings["quick"].median_us == pytest.approx(5, rel=0.011)
    assert timings["long"].median_us == pytest.approx(50, rel=0.011)


def test_each_call_is_timed_behind_a_plain_kernel_too(card):
    arms = Arms(card, 2 << 20, ours=(20e-6, 5e-6), theirs=(20e-6, 8e-6))
    result = timed(arms, 2 << 20)
    for name, together in (("ours", 6), ("theirs", 9)):
        assert result.timings[name].between_us == pytest.approx(together, rel=0.011)
    assert result.plain_us == pytest.approx(1, rel=0.04)
    pairs = [graph.sets for graph in card.replayed if {"plain", 0} <= set(graph.sets)]
    calls = {one.calls_per_sample for one in result.timings.values()}
    assert {len(marks) for marks in pairs} == {2 * count for count in calls}
    assert all(set(marks[::2]) == {"plain"} for marks in pairs)
    assert all("plain" not in marks[1::2] for marks in pairs)


def last_graph(card: Card) -> Graph:
    return card.replayed[-1]


@pytest.mark.parametrize("megabytes", [0, 1, 2, 40, 1000])
def test_inputs_are_reused_only_after_others_have_filled_the_cache(card, megabytes):
    least = megabytes << 20
    arms = Arms(card, max(least, 4), ours=(1e-5, 4e-6))
    timed(arms, least)
    sets = last_graph(card).sets
    assert len(sets) > 200
    for number in set(sets):
        places = [place for place, one in enumerate(sets) if one == number]
        for one, following in pairwise(places):
            assert (following - one - 1) * least >= 4 * L2
    assert sets[-1] == 0
    assert arms.made == len(set(sets)) <= MAX_CALLS


def test_no_more_input_sets_are_made_than_flush_the_cache(card):
    arms = Arms(card, 100 << 20, ours=(1e-5, 4e-6))
    timed(arms, 100 << 20)
    assert arms.made == 3  # while two others of 100 MiB are read, 200 MiB drive out the first


def test_where_memory_holds_too_few_inputs_each_is_used_once(monkeypatch):
    """Ragged keys: a set takes much memory, of which a call reads little."""
    card = Card(memory=20 << 30)
    install(card, monkeypatch)
    arms = Arms(card, 3 << 30, ours=(1e-5, 4e-6))
    timings = timed(arms, 10 << 20).timings
    assert sorted(last_graph(card).sets) == [0, 1, 2]
    assert timings["ours"].calls_per_sample == 3


def test_the_number_of_calls_captured_is_limited(card):
    timings = timed(Arms(card, 1 << 10, ours=(1e-5, 1e-7)), 1 << 10).timings
    assert timings["ours"].calls_per_sample == MAX_CALLS


def test_the_output_is_what_the_timed_graph_writes_over_nan(card):
    arms = Arms(card, 2 << 20, ours=(1e-5, 5e-6))
    result = timed(arms, 2 << 20)
    assert result.outputs["ours"].tolist() == [0, 0]  # the last call's inputs are the first
    graph = last_graph(card)
    assert len(graph.calls) == result.timings["ours"].calls_per_sample


def test_a_graph_that_does_not_do_the_work_leaves_nan(card):
    """What runs at a first call only, or where the capture does not see it."""
    out = torch.zeros(2)

    def idle(number: int) -> Any:
        def run() -> Any:
            if card.capturing is None:
                out.fill_(number)
            card.launch(1e-5, 5e-6, lambda: None, number)
            return out

        return {"ours": run}

    assert CudaClock(5).time(idle, 1 << 20).outputs["ours"].isnan().all()


@pytest.mark.parametrize("keeps", [False, True])
def test_a_graph_is_replayed_on_unseen_values_in_the_same_memory(card, keeps):
    def make(number: int) -> Any:
        return {"x": torch.full((2,), float(number + 1))}

    unseen = Unseen(make, ["ours"], Random(0))

    def arms(number: int) -> Any:
        inputs = make(number)
        if number == 0:
            unseen.begin(inputs)
        kept = inputs["x"].clone() if keeps else inputs["x"]

        def run() -> Any:
            out = torch.empty(2)
            card.launch(1e-5, 5e-6, lambda: out.copy_(kept), number)
            return out

        return {"ours": run}

    drawn = CudaClock(5).time(arms, 1 << 20, unseen=unseen).drawn["ours"]
    assert len(drawn) == 2
    assert [torch.equal(out, unseen.first["x"]) for out in drawn] == [not keeps] * 2


def test_every_replay_waits_for_its_launch(card):
    timed(Arms(card, 2 << 20, ours=(1e-5, 5e-6)), 2 << 20)
    assert card.spun == len(card.replayed) - 1  # the one for the output is not timed


def test_an_arm_that_cannot_be_captured_is_absent_and_the_others_are_timed(card):
    def arms(number: int) -> Any:
        def stubborn() -> Any:
            if card.capturing is not None:
                raise RuntimeError("operation not permitted\nand more")
            return torch.empty(2)

        return {**Arms.__call__(whole, number), "stubborn": stubborn}

    whole = Arms(card, 2 << 20, ours=(1e-5, 5e-6))
    result = CudaClock(5).time(arms, 2 << 20)
    assert result.absent == {"stubborn": "cannot be captured: operation not permitted"}
    assert result.timings.keys() == result.outputs.keys() == {"ours"}


def test_the_clock_is_read_after_the_samples_and_before_anything_else(card, monkeypatch):
    clock = CudaClock(5)
    replays: list[int] = []
    monkeypatch.setattr(clock, "sm_clock_mhz", lambda: replays.append(len(card.replayed)) or 1755)
    result = clock.time(Arms(card, 2 << 20, ours=(1e-5, 5e-6)), 2 << 20)
    assert result.sm_clock_mhz == 1755
    assert replays == [len(card.replayed) - 1]


@pytest.mark.parametrize(("there", "others"), [(1, 0), (3, 2), (0, None), (None, None)])
def test_this_process_is_not_counted_among_others_on_the_card(card, monkeypatch, there, others):
    monkeypatch.setattr(cuda_clock, "processes_on", lambda uuid: there)
    assert CudaClock(5).others_on_card() == others


def test_the_protocol_describes_samples_and_cache_flushes(card):
    said = CudaClock(20).protocol
    for told in (
        "20 samples",
        "about 1 ms",
        "256 at most",
        "moved 200 MiB of others",
        "replay of 16",
    ):
        assert told in said


def test_the_peak_memory_of_an_arm_is_that_of_one_call_beyond_what_is_held(card):
    takes = {"small": 0, "large": 300}

    def call(name: str) -> Callable[[], Any]:
        def run() -> Any:
            card.allocate(takes[name])
            card.allocate(-takes[name])
            out = torch.empty(2)
            card.launch(0.0, 1e-6, lambda: out.fill_(1), 0)
            return out

        return run

    card.allocate(5000)
    peaks = CudaClock(5).time(lambda number: {name: call(name) for name in takes}, 1 << 20)
    assert peaks.peak_bytes == takes


class Counter:
    """NVML's energy counter of a card that takes 500 W while it works."""

    def __init__(self, card: Card, watts: float = 500.0) -> None:
        self.card, self.watts = card, watts

    def sm_clock_mhz(self) -> int:
        return 1980

    def energy_mj(self) -> int | None:
        return 7_000_000 + round(self.card.now * self.watts * 1e3)


def test_energy_is_what_the_counter_adds_over_two_seconds_of_calls(card, monkeypatch):
    monkeypatch.setattr(cuda_clock, "Management", lambda card_id: Counter(card))
    arms = Arms(card, 1 << 20, short=(0.0, 10e-6), long=(0.0, 1000e-6))
    found = CudaClock(5, energy=True).time(arms, 1 << 20).energy_j
    counts = {"short": 53, "long": 1}
    wanted = {
        name: 500 * (START / counts[name] + seconds)
        for name, seconds in (("short", 10e-6), ("long", 1000e-6))
    }
    assert set(found) == set(wanted)
    for name, joules in wanted.items():
        assert found[name] == pytest.approx(joules, rel=0.1)
    assert card.now > 4


def test_energy_that_a_card_does_not_tell_is_unknown_and_not_zero(card, monkeypatch):
    for watts, told in ((0.0, 0), (500.0, None)):
        counter = Counter(card, watts)
        if told is None:
            monkeypatch.setattr(counter, "energy_mj", lambda: None)
        monkeypatch.setattr(cuda_clock, "Management", lambda card_id, counter=counter: counter)
        arms = Arms(card, 1 << 20, one=(0.0, 10e-6))
        assert CudaClock(5, energy=True).time(arms, 1 << 20).energy_j == {}


def test_energy_is_not_measured_unless_it_is_asked_for(card, monkeypatch):
    monkeypatch.setattr(cuda_clock, "Management", lambda card_id: Counter(card))
    arms = Arms(card, 1 << 20, one=(0.0, 10e-6))
    assert CudaClock(5).time(arms, 1 << 20).energy_j == {}
    assert card.now < 1
