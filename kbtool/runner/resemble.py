"""Search of records by words: Okapi BM25 with synonyms and stems.

One ranking serves `kbtool search` and, for a text that no expression matches, `kbtool explain`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_SATURATION = 1.2
_LENGTH = 0.6
"""The constants k1 and b of BM25."""
_SYNONYM = 0.7
"""What a synonym counts, where the word itself counts 1."""
_UNKNOWN = 0.25
"""What a word counts that no document has: the name of a file or of a function of one's own."""
_MISSPELT = (0.6, 0.4)
"""What a word counts that is one, or two, letters away from one that no document has."""
_NUMBER = re.compile(r"(?<![a-z0-9])\d{1,9}(?![a-z0-9])")
_COMPARED = re.compile(r"(?<![a-z0-9])([a-z][a-z0-9_]*)\s?[<>=≤≥]+\s?(\d{1,9})(?![a-z0-9])")
_WORD = re.compile(r"[a-z][a-z0-9]*(?:[_.+-][a-z0-9]+)*\+*|(?<!\d)\d+[a-z]+\w*")
_PARTS = re.compile(r"[_.-]")
_HUMPED = re.compile(r"\b[A-Za-z]+[a-z0-9][A-Z][A-Za-z0-9]*|\b[A-Z]{2,}[a-z][A-Za-z0-9]*")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST = 40
"""A longer word is no word: a hash, a mangled name."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


STOP = word_set("""
    a about after all also am an and any are as at be because been before but by can could did do
    does doing done each for from get gets getting give gives go goes got had has have he her his
    how i if in into is it its just know like make makes me my no not now of off on one only or
    our out own please problem put she should so some than that the their them then there these
    they thing this those to too try trying up use used using very want was way we were what when
    where which while who why will with work works would you your yet still again always ever
    here more most much many other same such under until us
""")
"""Words that say nothing of the matter."""

_SYNONYMS = (
    "slow slower slowly takes long forever hours minutes ages crawl time-consuming",
    "compile build nvcc rebuild recompile make",
    "crash segfault segmentation sigsegv abort dies die killed core",
    "oom memory exhausted out-of-memory",
    "hang hangs stuck deadlock freeze frozen blocks stall never timeout",
    "nan inf infinity nans",
    "wrong incorrect mismatch differs different garbage inaccurate",
    "undefined unresolved missing",
    "symbol reference function",
    "driver nvidia-smi",
    "gpu card device graphics",
    "kernel kernels",
    "extension extensions cpp_extension load_inline jit",
    "link linker linking ld",
    "install installing pip wheel package",
    "import importing load loading module",
    "arch architecture capability sm compute",
    "register registers spill spills spilling",
    "shared smem",
    "race racecheck synchronisation synchronization syncthreads",
    "profile profiler profiling ncu nsight",
    "occupancy warps idle",
    "bandwidth dram memory-bound throughput",
    "header include headers",
    "compiler gcc g++ clang cl host",
    "version versions incompatible mismatch",
    "tolerance accuracy precision allclose assert_close",
    "noisy noise unstable varies jitter variance",
    "communication nccl allreduce all-reduce collective distributed",
    "permission denied root administrator",
    "disk space full",
    "half fp16 float16 bfloat16 bf16",
    "cost money price expensive budget",
    "regression regressed bisect broke",
    "torch pytorch",
    "upgrade upgrading update updating newer newest version",
    "fail failing refuse error",
    "add attach append",
    "fast quick speed speedup",
    "gemm matmul matrix multiply multiplication product",
    "tolerance bound atol rtol threshold",
    "strict tight loose lenient",
    "rent lease hire",
    "record write enter log note",
    "gqa grouped",
    "fp8 float8 e4m3 e5m2 quantised quantized",
    "multi several parallel",
)


def counted(texts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """How much each word counts, by its stem, in texts of which each has a weight."""
    counts: dict[str, float] = {}
    for text, weight in texts:
        for word, times in Counter(_WORD.findall(text.lower())).items():
            for _, stem in _parts_of(word):
                counts[stem] = counts.get(stem, 0.0) + weight * times
        for number, times in Counter(_numbers(text)).items():
            counts[number] = counts.get(number, 0.0) + weight * times
    return counts


def _numbers(text: str) -> list[str]:
    """The numbers of a text, and what is compared with a number, by whichever sign: in S > 64 there
    are #64 and #s=64."""
    small = text.lower()
    compared = (f"#{name}={number}" for name, number in _COMPARED.findall(small))
    return [*(f"#{number}" for number in _NUMBER.findall(small)), *compared]


def named(text: str) -> str:
    """A name as it is compared: ``bug-4`` and ``Bug 4`` are one."""
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


class Found(NamedTuple, Generic[T]):
    """A document that a query finds."""

    item: T
    score: float
    share: float
    """How much of what the query says the document has, 0 to 1, by weight of the words."""
    shared: list[str]
    """The words of the query that it has, the rarest first."""


class Words(Generic[T]):
    """Documents, to be searched by words."""

    def __init__(self, documents: Iterable[tuple[T, Mapping[str, float]]]) -> None:
        """Args:
        documents: each with what is ``counted`` in it.
        """
        self._items: list[T] = []
        self._counts: list[Mapping[str, float]] = []
        for item, counts in documents:
            self._items.append(item)
            self._counts.append(counts)
        self._where: dict[str, list[int]] = {}
        """Word → the documents that have it, for words that were asked for."""
        sizes = [
            sum(count for stem, count in one.items() if stem[0] != "#") for one in self._counts
        ]
        self._sizes = sizes
        self._mean = sum(sizes) / len(sizes) if sizes else 1.0

    def documents(self) -> Iterator[tuple[T, Mapping[str, float]]]:
        """Every document, and what is counted in it."""
        return zip(self._items, self._counts, strict=True)

    def knows(self, stem: str) -> bool:
        """Whether a document has the word, or a synonym of it."""
        return any(self._places(word) for word in (stem, *_alike(stem)))

    def unknown(self, query: str) -> list[str]:
        """The words of ``query`` that no document has, as they stand there and not in their parts:
        NaN is one word, and not Na and N."""
        written = set(_WORD.findall(query.lower()))
        asked = dict(words(query))
        return [w for w, stem in asked.items() if w in written and not self.knows(stem)]

    def _places(self, stem: str) -> list[int]:
        """The documents that have a word. Most words are never asked for, so there is no index."""
        if stem not in self._where:
            self._where[stem] = [
                place for place, counts in enumerate(self._counts) if stem in counts
            ]
        return self._where[stem]

    def rarity(self, stem: str) -> float:
        """What a word says of a document: the rarer, the more."""
        count = len(self._places(stem))
        return math.log(1 + (len(self._items) - count + 0.5) / (count + 0.5))

    @cached_property
    def _vocabulary(self) -> list[str]:
        """Every word that may be what a misspelt one is meant to be, by its letters."""
        return sorted({stem for counts in self._counts for stem in counts if stem.isalpha()})

    def _meant(self, stem: str) -> list[tuple[str, float]]:
        """The words that a misspelt one may be meant to be, and what each counts: one letter is
        another, is missing, is too many, or two are swapped; in long words twice."""
        if self.knows(stem) or not stem.isalpha() or len(stem) < _SPELT:
            return []
        most = 1 if len(stem) < 2 * _SPELT else 2
        near: dict[int, list[str]] = {}
        for word in self._vocabulary:
            if abs(len(word) - len(stem)) <= most and len(word) >= _SPELT:
                apart = letters_apart(stem, word)
                if apart <= most:
                    near.setdefault(apart, []).append(word)
        return [(word, _MISSPELT[least - 1]) for least in sorted(near)[:1] for word in near[least]]

    def find(self, query: str, *, loose: bool = False) -> list[Found[T]]:
        """Every document that has a word of the query, the best first.

        Args:
            query: words.
            loose: whether numbers are words too, and words may be misspelt.
        """
        asked = {stem: word for word, stem in words(query)}
        if loose:
            asked |= {number: number[1:] for number in _numbers(query)}
        alike = {
            stem: [
                (stem, 1.0),
                *((other, _SYNONYM) for other in sorted(_alike(stem))),
                *(self._meant(stem) if loose else ()),
            ]
            for stem in asked
        }
        weights = {stem: self.rarity(stem) for stem in asked}
        total = sum(
            weight if any(self._places(word) for word, _ in alike[stem]) else _UNKNOWN * weight
            for stem, weight in weights.items()
        )
        scores: dict[int, float] = {}
        shares: dict[int, dict[str, float]] = {}
        for stem in asked:
            best: dict[int, tuple[float, float]] = {}
            for word, factor in alike[stem]:
                for place in self._places(word):
                    count = self._counts[place][word]
                    length = 1 - _LENGTH + _LENGTH * self._sizes[place] / self._mean
                    gain = count * (_SATURATION + 1) / (count + _SATURATION * length)
                    score = factor * self.rarity(word) * gain
                    if score > best.get(place, (0.0, 0.0))[0]:
                        best[place] = score, factor
            for place, (score, factor) in best.items():
                scores[place] = scores.get(place, 0.0) + score
                shares.setdefault(place, {})[stem] = factor * weights[stem]
        found = []
        for place, score in scores.items():
            has = shares[place]
            shared = [asked[stem] for stem in sorted(has, key=lambda stem: (-has[stem], stem))]
            share = sum(has.values()) / total  # not 0: something of the query is known
            # Of two documents, the one that has more of the query: half of the score is for that.
            found.append(Found(self._items[place], score * (0.5 + share / 2), share, shared))
        order = {id(item): place for place, item in enumerate(self._items)}
        return sorted(found, key=lambda one: (-one.score, order[id(one.item)]))


def words(text: str) -> Iterator[tuple[str, str]]:
    """The words of a text that say something, and their stems; a compound also in its parts:
    out_of_memory and OutOfMemory are also memory."""
    parts = " ".join(_HUMPS.sub(" ", name) for name in _HUMPED.findall(text))
    for word in _WORD.findall(f"{text} {parts}".lower()):
        yield from _parts_of(word)


@lru_cache(maxsize=65536)
def _parts_of(word: str) -> tuple[tuple[str, str], ...]:
    """A word and its parts, as far as they say something, each with its stem."""
    if len(word) > _LONGEST:
        return ()
    parts = dict.fromkeys((word, *_PARTS.split(word)))
    return tuple(
        (part, stem_of(part))
        for part in parts
        if len(part) > 1 and part not in STOP and not part.isdigit()
    )


_SPELT = 4
"""A word of fewer letters is not taken for a misspelt one; one of twice as many may be two off."""


def letters_apart(one: str, other: str) -> int:
    """How many letters have to be changed, left out, put in or swapped with the next."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        last, row = row, [at]
        for place, its in enumerate(other, 1):
            least = min(last[place] + 1, row[-1] + 1, last[place - 1] + (letter != its))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == its:
                least = min(least, before[place - 2] + 1)
            row.append(least)
        before = last
    return row[-1]


_ENDINGS = ("ations", "ation", "ingly", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "ly",
            "s", "e")  # fmt: skip


@lru_cache(maxsize=16384)
def stem_of(word: str) -> str:
    """A word without its ending: compiles, compiled and compiling are one."""
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def settings() -> dict[str, object]:
    """What the ranking goes by, for ``search.js``, which ranks in the same way."""
    return {
        "saturation": _SATURATION,
        "length": _LENGTH,
        "synonym": _SYNONYM,
        "unknown": _UNKNOWN,
        "misspelt": _MISSPELT,
        "spelt": _SPELT,
        "longest": _LONGEST,
        "stop": sorted(STOP),
        "endings": _ENDINGS,
        "synonyms": {stem: sorted(others) for stem, others in sorted(_synonyms().items())},
    }


@lru_cache(maxsize=1)
def _synonyms() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for group in _SYNONYMS:
        alike = {stem_of(word) for word in group.split()}
        for stem in alike:
            found.setdefault(stem, set()).update(alike - {stem})
    return {stem: frozenset(others) for stem, others in found.items()}


def _alike(stem: str) -> frozenset[str]:
    return _synonyms().get(stem, frozenset())
