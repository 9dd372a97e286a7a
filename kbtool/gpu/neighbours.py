"""Draw cases beside the listed ones, so that a kernel that is right only on those is found.

The harness makes the candidates, because it alone knows which cases are valid. Needs no torch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple, cast

from kbtool.gpu.harness import Harness, HarnessError, HarnessWithNeighbours
from kbtool.model.kernel import CaseValue, Kernel, without_name

Case = Mapping[str, CaseValue]
_MOST = 10_000
"""Candidates beside one case; an endless generator would fill the memory."""
NONE_DEFINED = "the harness defines no function neighbours"


class Neighbour(NamedTuple):
    """A case that no set lists, and the listed one that it was drawn beside."""

    case_set: str
    case: dict[str, CaseValue]
    beside: str


def draw_neighbours(
    harness: Harness,
    kernel: Kernel,
    cases: Sequence[tuple[str, Case]],
    count: int,
    *,
    seed: int,
    takes: Callable[[Case], bool],
) -> list[Neighbour]:
    """``count`` cases beside each case set, or all that there are. Another process with the same
    seed draws the same.

    Args:
        harness: the kernel's harness.
        kernel: its manifest.
        cases: the listed cases, with their sets.
        count: how many to draw for each set.
        seed: seed of the run.
        takes: whether what was built takes a case.

    Raises:
        HarnessError: a candidate is no case of the manifest, or there is no end of them.
    """
    if not hasattr(harness, "neighbours"):
        return []
    make = cast("HarnessWithNeighbours", harness).neighbours
    seen = {_key(case) for _, case in cases}
    found: list[Neighbour] = []
    for case_set in dict.fromkeys(name for name, _ in cases):
        made = [
            (one, str(case["name"])) for name, case in cases if name == case_set
            for one in _made(make, case)
        ]  # fmt: skip
        random.Random(f"{seed}/{case_set}").shuffle(made)
        enough = len(found) + count
        for one, beside in made:
            if len(found) == enough:
                break
            case = _checked(kernel, one)
            if _key(case) not in seen and takes(case):
                seen.add(_key(case))
                found.append(Neighbour(case_set, case, beside))
    return found


def _made(make: Callable[[Case], Iterable[Any]], case: Case) -> list[Any]:
    """The candidates beside a case: none is drawn before all are made."""
    try:
        made = iter(make(deepcopy(case)))
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # in the harness
        raise HarnessError(f"neighbours must return cases: {error}") from None
    # Copies, for a generator may change and yield one case again and again.
    found = [deepcopy(one) for one in islice(made, _MOST + 1)]
    if len(found) > _MOST:
        raise HarnessError(f"neighbours made more than {_MOST:,} cases beside {case['name']!r}")
    return found


def _checked(kernel: Kernel, made: Mapping[str, Any]) -> dict[str, CaseValue]:
    """A candidate as the manifest types it, with its text as its name."""
    try:
        known = {name: made[name] for name in kernel.case_fields}
        unknown = sorted(set(made) - {"name", *known})
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no case field")
        return kernel.case_from(kernel.case_text(known))
    except KeyError as error:
        raise HarnessError(f"neighbours made a case without {error}: {made!r:.200}") from None
    except (TypeError, ValueError) as error:
        raise HarnessError(f"neighbours made no valid case: {error}: {made!r:.200}") from None


def _key(case: Case) -> str:
    return repr(sorted(without_name(case).items()))
