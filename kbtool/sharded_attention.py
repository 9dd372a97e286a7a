"""Attention over keys that lie on several ranks: the part of each rank, the exchange, the merge.

Names no kernel: ``attend`` and ``merge`` are functions of one, and take the arguments of those in
``kbtool.attention``.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

KeysAfter = int | Sequence[int] | Tensor
_Attend = Callable[..., Any]
_Call = tuple[slice, slice, dict[str, Any]]


def attend_sharded(
    attend: _Attend,
    merge: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: ProcessGroup | None,
    *,
    keys_after: KeysAfter | None,
    return_lse: bool,
    check: bool,
    **options: Any,
) -> Any:
    """Attention of ``q`` over the keys of all ranks, from what ``attend`` makes of each rank's."""
    rank, ranks = _place(group)
    if check:
        state = _checked(attend, q, k, v, keys_after, options, group)
    else:
        state = _state(attend, q, k, v, keys_after, options, rank)
    states = _gather(state, group, rank, ranks)
    Dv = v.shape[3]
    if states.shape[4] * states.element_size() % torch.float32.itemsize == 0:
        lse = states.view(torch.float32)[..., -1]  # without a copy
    else:
        lse = states[..., Dv:].contiguous().view(torch.float32).squeeze(-1)
    return merge(states[..., :Dv], lse, return_lse=return_lse)


def count_keys_after(kv_lengths: Tensor, group: ProcessGroup | None) -> Tensor:
    """The keys of each batch entry that later ranks hold."""
    if not isinstance(kv_lengths, Tensor):
        raise TypeError(f"kv_lengths must be a tensor, got {type(kv_lengths).__name__}")
    if kv_lengths.dtype not in (torch.int32, torch.int64) or kv_lengths.dim() != 1:
        got = f"{kv_lengths.dtype} of shape {tuple(kv_lengths.shape)}"
        _fail(f"kv_lengths must be torch.int32 or torch.int64 of shape (B,), got {got}")
    rank, ranks = _place(group)
    lengths = _gather(kv_lengths.contiguous(), group, rank, ranks)
    return lengths[rank + 1 :].sum(dim=0, dtype=kv_lengths.dtype)


def _fail(message: str) -> NoReturn:
    raise ValueError(f"sharded attention: {message}")


def _place(group: ProcessGroup | None) -> tuple[int, int]:
    """The rank of this process in the group, and the number of ranks."""
    rank = dist.get_rank(group)
    if rank < 0:
        _fail("this process is no rank of group: call with a group that it is in")
    return rank, dist.get_world_size(group)


# ---- the part of one rank ----


def _state(
    attend: _Attend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys_after: KeysAfter | None,
    options: Mapping[str, Any],
    rank: int,
) -> Tensor:
    """Output and LSE over the keys of this rank in one tensor, ``(B, H, Sq, Dv + n)``, of the dtype
    of ``q``: the last ``n`` elements of a row are the bits of its LSE, in float32."""
    sinks, table, lengths = (options[name] for name in ("sinks", "block_table", "kv_lengths"))
    if rank and isinstance(sinks, Tensor):
        # A sink is to count once. -inf is none, and infinity less a NaN stays NaN.
        options = {**options, "sinks": sinks - math.inf}
    given = [(t, n) for t, n in ((table, 2), (lengths, 1)) if t is not None]
    dims = ((q, 4), (k, 4), (v, 4), *given)
    if not all(isinstance(t, Tensor) and t.dim() == n for t, n in dims):
        attend(q, k, v, **options)  # it says what is wrong
    Dv = v.shape[3]
    numbers = torch.float32.itemsize // q.element_size()
    state = q.new_empty((*q.shape[:3], Dv + numbers))
    for entries, rows, change in _calls(q, k, keys_after, options):
        call = {**options, **change}
        for name in ("kv_lengths", "block_table"):
            call[name] = None if call[name] is None else call[name][entries]
        keys = (k, v) if table is not None else (k[entries], v[entries])
        out, lse = attend(q[entries, :, rows], *keys, **call, return_lse=True)
        state[entries, :, rows, :Dv] = out
        state[entries, :, rows, Dv:] = lse.unsqueeze(-1).view(q.dtype)
    return state


def _calls(
    q: Tensor, k: Tensor, keys_after: KeysAfter | None, options: Mapping[str, Any]
) -> Iterator[_Call]:
    """The calls that make up a rank's part: entries, queries, and the options that change.

    The operator's causal mask and window end with the keys of its call. Here the queries of an
    entry end ``keys_after`` keys behind them.
    """
    B, _, Sq, _ = q.shape
    window, lengths = options["window"], options["kv_lengths"]
    everything = slice(0, B), slice(0, Sq)
    after = _checked_keys_after(keys_after, q)
    if not _needs_keys_after(q, options):
        yield *everything, {}
        return
    if after is None:
        _fail(
            "keys_after must be given with causal=True and several queries or a window, got None:"
            " the keys that later ranks hold, as kbtool.attention.count_keys_after tells them"
        )
    Skv = k.shape[2] * (1 if options["block_table"] is None else options["block_table"].shape[1])
    if isinstance(after, Tensor):
        if window is not None:
            _fail(
                "keys_after must be an int or a list of B ints with a window, got a tensor: call"
                " .tolist() on it, which waits for the device"
            )
        for i in range(Sq):
            hidden = (Sq - 1 - i - after).clamp(min=0)  # from this query
            shorter = ((Skv if lengths is None else lengths) - hidden).clamp(min=0)
            yield everything[0], slice(i, i + 1), {"causal": False, "kv_lengths": shorter}
        return
    if window is not None and (type(window) is not int or window < 1):
        _fail(f"window must be an int of at least 1, got {window!r}")
    for entries, count in _runs(after):
        first = max(0, Sq - count)  # of the queries whose own keys lie on later ranks
        if first:
            yield entries, slice(0, first), {}
        # Of this rank's last keys; the key of query i is number i - (Sq - count) after them.
        seen = [Skv if window is None else min(max(0, window - 1 - i + Sq - count), Skv)
                for i in range(first, Sq)]  # fmt: skip
        for rows, keys in _runs(seen):
            queries = slice(first + rows.start, first + rows.stop)
            if keys == Skv:
                yield entries, queries, {"causal": False, "window": None}
            elif keys:
                yield entries, queries, {"window": keys}
            else:
                none = torch.zeros(B, dtype=torch.int32, device=q.device)
                yield entries, queries, {"causal": False, "window": None, "kv_lengths": none}


def _needs_keys_after(q: Tensor, options: Mapping[str, Any]) -> bool:
    """Whether what a query sees of this rank's keys depends on how many come after them."""
    return options["causal"] is True and (options["window"] is not None or q.shape[2] > 1)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Runs of equal numbers: where, and the number."""
    first = 0
    for number, run in groupby(numbers):
        end = first + len(list(run))
        yield slice(first, end), number
        first = end


def _checked_keys_after(given: object, q: Tensor) -> Tensor | list[int] | None:
    """``keys_after`` of each entry."""
    B = q.shape[0]
    if given is None:
        return None
    if isinstance(given, Tensor):
        if given.dtype not in (torch.int32, torch.int64) or given.shape != (B,):
            got = f"{given.dtype} of shape {tuple(given.shape)}"
            _fail(
                f"keys_after must be torch.int32 or torch.int64 of shape (B,) = ({B},), got {got}"
            )
        if given.device != q.device:
            _fail(f"keys_after must be on the device of q ({q.device}), got {given.device}")
        return given
    many = isinstance(given, Sequence)
    try:
        counts = [operator.index(count) for count in (given if many else [given] * B)]  # type: ignore
    except TypeError:
        wanted = "an int, B ints or a tensor of them"
        raise TypeError(f"sharded attention: keys_after must be {wanted}, got {given!r}") from None
    if len(counts) != B or min(counts, default=0) < 0:
        _fail(f"keys_after must be B = {B} numbers of at least 0, or one for all, got {given!r}")
    return counts


# ---- the exchange ----


def _gather(t: Tensor, group: ProcessGroup | None, rank: int, ranks: int) -> Tensor:
    """``t`` of every rank, stacked in the order of ranks."""
    gathered = t.new_empty((ranks, *t.shape))
    if t.numel() == 0:
        return gathered
    # Its name before torch 2.13 warns since.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    with nullcontext() if torch.compiler.is_compiling() else _explained(t.device, group):
        gather(gathered.view(-1), t.view(-1), group=group)
    return gathered


@contextmanager
def _explained(device: torch.device, group: ProcessGroup | None) -> Iterator[None]:
    """Say of a failing exchange which rank it failed on, and what to look at."""
    try:
        yield
    except RuntimeError as error:
        rank, ranks = _place(group)
        raise dist.DistBackendError(
            f"sharded attention: rank {rank} of {ranks} could not exchange with the others"
            f"{_time_limit(device, group)}: {error}. A rank has ended or raised an error, is later"
            " than the time limit, or passes other shapes: read the first error that each rank"
            " printed, and call with check=True to compare the arguments of all ranks. The group"
            " cannot be used any more: end this process."
        ) from error


def _time_limit(device: torch.device, group: ProcessGroup | None) -> str:
    # Torch has no public function for it.
    try:
        backend = (group or dist.group.WORLD)._get_backend(device)  # type: ignore[union-attr]
        seconds = backend.options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return ""
    return f" (time limit of the group: {seconds:g} s)"


# ---- comparing the arguments of all ranks, where a call asks for it ----


@dataclass(frozen=True)
class _Said:
    """What a rank tells the others about its call."""

    error: str | None = None
    same: Mapping[str, str] = field(default_factory=dict)  # on all ranks
    lengths: Sequence[int] = ()
    keys_after: Sequence[int] = ()  # empty if the call does not need them


def _checked(
    attend: _Attend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys_after: KeysAfter | None,
    options: Mapping[str, Any],
    group: ProcessGroup | None,
) -> Tensor:
    """``_state``, once every rank has made its own from arguments that fit those of the others."""
    rank, ranks = _place(group)
    failure: Exception | None = None
    try:
        state = _state(attend, q, k, v, keys_after, options, rank)
        said = _describe(q, k, keys_after, options)
    except Exception as error:
        failure, said = error, _Said(f"{type(error).__name__}: {error}")
    of_all = [_Said()] * ranks
    with _explained(q.device if isinstance(q, Tensor) else torch.device("cpu"), group):
        dist.all_gather_object(of_all, said, group=group)
    if failure is not None:
        raise failure
    for other, theirs in enumerate(of_all):
        if theirs.error is not None:
            _fail(f"rank {other} raised {theirs.error}")
    for name in said.same:
        values = [theirs.same[name] for theirs in of_all]
        if len(set(values)) > 1:
            listed = "; ".join(f"rank {other}: {value}" for other, value in enumerate(values))
            _fail(f"{name} must be the same on all ranks, got {listed}")
    most = q.shape[2] - 1 + (options["window"] or 0)  # more keys after hide no more
    for other, theirs in enumerate(of_all):
        for b, given in enumerate(theirs.keys_after):
            expected = sum(later.lengths[b] for later in of_all[other + 1 :])
            if min(given, most) != min(expected, most):
                _fail(
                    f"keys_after of rank {other} must be {expected} for entry {b}, the keys that"
                    f" later ranks hold, got {given}"
                )
    return state


def _describe(
    q: Tensor, k: Tensor, keys_after: KeysAfter | None, options: Mapping[str, Any]
) -> _Said:
    names = ("causal", "scale", "window", "softcap")
    same = {name: str(options[name]) for name in names} | {
        "q": _identity(q),
        "k_shard": f"{k.dtype} of {k.shape[1]} heads",
        "sinks": _identity(options["sinks"]),
    }
    B = q.shape[0]
    lengths, after = options["kv_lengths"], _checked_keys_after(keys_after, q)
    if after is None or not _needs_keys_after(q, options):
        after = []
    return _Said(
        same=same,
        lengths=[k.shape[2]] * B if lengths is None else lengths.tolist(),
        keys_after=after.tolist() if isinstance(after, Tensor) else after,
    )


def _identity(t: Tensor | None) -> str:
    """Its type, shape and a checksum of its bytes."""
    if t is None:
        return "None"
    checksum = zlib.crc32(t.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return f"{t.dtype} of shape {tuple(t.shape)}, CRC-32 {checksum:08x}"
