"""Facts of accelerators that a record may state wrongly: a small table with its sources.

Architectures, compute capabilities and memory are those of NVIDIA's list of GPUs by compute
capability (developer.nvidia.com/cuda-gpus) and of the cards' data sheets; shared memory is from the
CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". A card that is not
here is not judged.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Card(NamedTuple):
    """What is printed on a card's data sheet."""

    name: str
    capability: str
    """Major and minor, without a point: 89."""
    memory_gb: tuple[int, ...]
    """Nominal memory of its editions, GB."""


class Capability(NamedTuple):
    """What a compute capability means."""

    architecture: str
    shared_kib: int
    """Shared memory of one multiprocessor, KiB: no block can use more."""


CAPABILITIES = {
    "70": Capability("Volta", 96),
    "75": Capability("Turing", 64),
    "80": Capability("Ampere", 164),
    "86": Capability("Ampere", 100),
    "87": Capability("Ampere", 164),
    "89": Capability("Ada Lovelace", 100),
    "90": Capability("Hopper", 228),
    "100": Capability("Blackwell", 228),
    "103": Capability("Blackwell", 228),
    "120": Capability("Blackwell", 100),
}

_CARDS = {
    tuple(card.name.lower().split()): card
    for card in (
        Card("V100", "70", (16, 32)),
        Card("T4", "75", (16,)),
        Card("A100", "80", (40, 80)),
        Card("A30", "80", (24,)),
        Card("A10", "86", (24,)),
        Card("A10G", "86", (24,)),
        Card("A40", "86", (48,)),
        Card("RTX 3090", "86", (24,)),
        Card("L4", "89", (24,)),
        Card("L40", "89", (48,)),
        Card("L40S", "89", (48,)),
        Card("RTX 4090", "89", (24,)),
        Card("H100", "90", (80, 94)),
        Card("H200", "90", (141,)),
        Card("B200", "100", (180, 192)),
        Card("B300", "103", (288,)),
        Card("RTX 5090", "120", (32,)),
    )
}

CARD_NAMES = [r"[\s-]".join(card.name.split()) for card in _CARDS.values()]
"""Regular expressions for the names of the cards."""

LEAST_VISIBLE = 0.88
"""Drivers keep a part of the memory, and ECC takes another: so much of the nominal is seen."""
MOST_VISIBLE = 1.075
"""A nominal GB may be 2^30 bytes."""


@lru_cache(maxsize=256)
def card_of(stated: str) -> Card | None:
    """The card that a record names (L4, NVIDIA H100 80GB HBM3, A100-SXM4-80GB), if it is known."""
    words = tuple(re.split(r"[\s-]+", stated.lower()))
    for length in (2, 1):
        for start in range(len(words) - length + 1):
            card = _CARDS.get(words[start : start + length])
            if card is not None:
                return card
    return None


def are_unlike(one: str, other: str) -> bool:
    """Whether two names are known to be those of two cards."""
    first, second = card_of(one), card_of(other)
    return first is not None and second is not None and first != second


def capability_of(stated: str) -> str | None:
    """Major and minor of a compute capability as written: sm_89, 8.9, sm_90a → 89, 89, 90."""
    found = re.fullmatch(r"(?:sm|compute)?[_ ]?(\d+)\.?(\d)[a-z]?", stated.strip().lower())
    return f"{found[1]}{found[2]}" if found else None
