"""Split-K attention as a function: ``from kbtool.attention import split_k_attention``.

The first call builds the library; later calls and processes reuse it. The build takes seconds for
the CPU, and a minute or more for a card. It covers the CPU and one GPU architecture: that of the
current card at the first call. This module is the public interface of one attached kernel; nothing
else in kbtool knows that kernel.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from kbtool.model.kernel import Kernel

__all__ = ["count_keys_after", "merge", "split_k_attention", "split_k_attention_sharded"]

_KERNEL = "split_k_attention"
_OF_INTERFACE = ("merge", "split_k_attention")  # the functions that call the library
_BUILD_SECONDS = 600.0
_LOADING = threading.Lock()


@overload
def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    block_table: Tensor | None = ...,
    window: int | None = ...,
    softcap: float | None = ...,
    sinks: Tensor | None = ...,
    k_scale: Tensor | None = ...,
    v_scale: Tensor | None = ...,
    cu_seqlens_q: Tensor | None = ...,
    max_seqlen_q: int | None = ...,
    tree_mask: Tensor | None = ...,
    variant: str | None = ...,
    overlap: bool | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...


@overload
def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    block_table: Tensor | None = ...,
    window: int | None = ...,
    softcap: float | None = ...,
    sinks: Tensor | None = ...,
    k_scale: Tensor | None = ...,
    v_scale: Tensor | None = ...,
    cu_seqlens_q: Tensor | None = ...,
    max_seqlen_q: int | None = ...,
    tree_mask: Tensor | None = ...,
    variant: str | None = ...,
    overlap: bool | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: int | None = None,
    tree_mask: Tensor | None = None,
    variant: str | None = None,
    overlap: bool | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention that divides the keys into splits and computes them in parallel.

    Each split computes a partial state of its keys (maximum logit, sum of exponentials, weighted
    values). The states are merged in a fixed order, so results are bitwise reproducible.

    Args:
        q: Queries, ``(B, H, Sq, D)``; float32, float16 or bfloat16. Any strides. With
            ``cu_seqlens_q``, ``(total_q, H, D)``.
        k: Keys, ``(B, Hkv, Skv, D)``, dtype and device of ``q``. Any strides, expanded included.
            ``H`` is a multiple of ``Hkv``; query head ``h`` reads key head ``h // (H // Hkv)``.
            Keys and values of queries of 16 bits may be float8_e4m3fn or float8_e5m2.
        v: Values, ``(B, Hkv, Skv, Dv)``, dtype of ``k``. ``Dv`` may differ from ``D``: prompts of
            DeepSeek-V3 have 128 beside 192. Any strides.
        causal: Align the causal mask bottom-right: query ``i`` sees keys
            ``j <= i + valid - Sq``, where ``valid`` is the number of valid keys of its batch entry
            (``Skv`` without ``kv_lengths``). With ``Sq == 1`` that is every valid key.
        scale: Factor on ``q . k``, in ``[-2.3e38, 2.3e38]``; ``1 / sqrt(D)`` by default.
        num_splits: Number of splits, 1 to ``MAX_NUM_SPLITS`` of the kernel's ``interface.py``. The
            default depends on the shapes, and on CUDA also on the card and on whether
            ``kv_lengths`` is given. Set it if a row's result must not depend on its batch. Set
            ``variant`` too if batches are padded to different numbers of keys, or only some have
            ``kv_lengths``. ``fa1`` ignores it and never splits.
        kv_lengths: Valid keys of each batch entry, ``(B,)``, int32 or int64, each in ``[0, Skv]``:
            other values are refused on the CPU and clamped on CUDA, where the values stay on the
            device. Keys past the length never affect a result and may hold anything, even NaN. On
            CUDA the number of splits is chosen for ``Skv``; if lengths differ, the device divides
            the keys of long entries evenly, unless there is a ``window`` or ``softcap``.
        block_table: Pages of each batch entry, ``(B, pages of an entry)``, int32, last stride 1.
            ``k`` and ``v`` then hold pages, ``(pages, Hkv, page_size, D or Dv)`` by any strides:
            transpose pages that are stored as ``(pages, page_size, Hkv, D)``. A forgotten transpose
            may give wrong results without an error if ``page_size`` divides ``H`` and ``Hkv`` is a
            power of two. Key ``j`` of entry
            ``b`` is key ``j % page_size`` of page ``block_table[b, j // page_size]``. Needs
            ``kv_lengths``; ``Skv`` is pages of an entry times ``page_size``, a power of two up to
            256. Entries may share pages. What lies past a length never affects a result: keys of
            the last page may be NaN, and further entries of the table any number. The CPU checks
            the entries that it reads; CUDA does not.
        window: Most keys that a query sees, its own included: of those that ``causal`` lets it see,
            the last ``window``. Needs ``causal=True``.
        softcap: Replace each logit ``x`` (``scale`` included) by ``softcap * tanh(x / softcap)``;
            in ``[1e-37, 2.3e38]``.
        sinks: A logit for each query head that has no value, ``(H,)``, float32, contiguous:
            ``exp(sink)`` is added to the sum that divides the output, and to the LSE. -inf is no
            sink.
        k_scale: What keys of 8 bits are multiplied by, float32: one number, ``()`` or ``(1,)``, or
            one for each KV head, ``(Hkv,)``, contiguous; 1 by default. It stays on the device.
        v_scale: The same for values.
        cu_seqlens_q: Where the queries of each batch entry begin if the entries have different
            numbers of them, ``(B + 1,)``, int32, contiguous, on the device of ``q``: entry ``b``
            has the rows ``cu_seqlens_q[b]`` to ``cu_seqlens_q[b + 1] - 1`` of ``q``. It begins with
            0 and never falls; an entry may have no queries. ``causal`` and ``window`` align with
            the queries of each entry: ``Sq`` is ``cu_seqlens_q[b + 1] - cu_seqlens_q[b]``. Rows of
            ``q`` after the last entry's, as in a padded batch, see no key, whatever they hold. The
            CPU refuses other values; on CUDA they give wrong results, and memory outside of ``q``
            is not touched. A captured graph sees new ones.
        max_seqlen_q: The most queries of an entry; needed with ``cu_seqlens_q``. It may be larger
            than what any entry has. With ``num_splits``, an entry has the same bits in any batch of
            the same maximum.
        tree_mask: Which of the last keys each query sees, for trees of speculative tokens, whose
            keys come after those of their ancestors: ``(B, Sq, words)``, with ``cu_seqlens_q``
            ``(total_q, words)``, int64, contiguous, on the device of ``q``. Of the keys that
            ``causal`` (needed) lets a query see, key ``valid - 64 * words + j`` is hidden if bit
            ``j % 64`` of word ``j // 64`` is 0; earlier keys are not. So -1 hides nothing.
        variant: Name of the implementation: ``two_pass`` on the CPU; ``fa1``, ``two_pass`` or
            ``fused`` on CUDA, and ``wgmma`` on sm_90. Default: the fastest for the shapes and the
            device.
        overlap: Whether the call may start before the previous kernel in the stream has ended
            (programmatic dependent launch, PDL; sm_90 and later). Measured on an H200: behind a
            kernel that triggers its dependents early, such as this one, a call takes 0.7 to 1.8 µs
            less. Behind other kernels, a call of one kernel takes up to 0.6 µs more, and a call of
            two kernels (most calls with several queries) up to 0.5 µs less. Default: on for calls
            of two kernels, off for calls of one. Results do not change. The CPU, ``fa1`` and
            ``two_pass`` ignore it.
        return_lse: Also return the log-sum-exp of the logits.

    Returns:
        The output, ``(B, H, Sq, Dv)``, contiguous, dtype of ``q``, accumulated in float32. With
        ``return_lse``, also the natural-log LSE, ``(B, H, Sq)``, float32. With ``cu_seqlens_q``
        they are ``(total_q, H, Dv)`` and ``(total_q, H)``. A row that sees no key
        (``Skv == 0``, length 0, or queries before the first key under ``causal``) has output 0 and
        LSE -inf. A NaN key that a row sees makes both NaN, a NaN value its column of the output; a
        logit of +inf makes its output NaN and its LSE +inf.

    Raises:
        NotImplementedError: If a gradient is asked for, in reverse or in forward mode: the
            operator is for inference.
        TypeError: If an argument is not a tensor, ``scale`` or ``softcap`` no float,
            ``num_splits`` or ``window`` no int, ``variant`` no str, ``overlap`` neither a bool nor
            None, or ``causal`` or ``return_lse`` no bool.
        ValueError: If an argument has a wrong shape, dtype, device or value; the message names
            the argument, what it takes and what it got.
        kbtool.model.errors.MachineError: there is no compiler, ninja or room to build; or ``q`` is
            on a card that the library was not built for.
        kbtool.model.errors.UsageError: a source of the kernel is missing, or includes a file that
            the manifest does not list.
        kbtool.gpu.build.BuildError: a source does not compile, or the library does not link.
        kbtool.gpu.build.BuildTimeoutError: building took more than 10 minutes, or another process
            has been at it for as long.
    """
    _load()
    if _not_served:
        _check_card(q, "q")
    made: Tensor | tuple[Tensor, Tensor] = _loaded["split_k_attention"](
        q, k, v, causal=causal, scale=scale, num_splits=num_splits, kv_lengths=kv_lengths,
        block_table=block_table, window=window, softcap=softcap, sinks=sinks, k_scale=k_scale,
        v_scale=v_scale, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q,
        tree_mask=tree_mask, variant=variant, overlap=overlap, return_lse=return_lse,
    )  # fmt: skip
    return made


@overload
def merge(
    out: Tensor, lse: Tensor, *, dtype: torch.dtype | None = ..., return_lse: Literal[False] = ...
) -> Tensor: ...


@overload
def merge(
    out: Tensor, lse: Tensor, *, dtype: torch.dtype | None = ..., return_lse: Literal[True]
) -> tuple[Tensor, Tensor]: ...


def merge(
    out: Tensor, lse: Tensor, *, dtype: torch.dtype | None = None, return_lse: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention over all keys, from what calls over parts of the keys returned.

    For a prefix that many queries share and attend to in one call, and for keys that lie on several
    devices. Each key must be in one part only, and sinks be given to the call of one part only.

    Args:
        out: Outputs of the parts, ``(S, B, H, Sq, D)``, of 1 to 1024 parts; float32, float16 or
            bfloat16 (on CUDA, see ``dtype``). Any strides.
        lse: Their LSEs, ``(S, B, H, Sq)``, natural log, float32. Any strides. A part whose LSE is
            -inf counts for nothing, whatever its output holds.
        dtype: Of the result; that of ``out`` by default. CUDA makes float16 and bfloat16.
        return_lse: Also return the LSE over all keys.

    Returns:
        The output, ``(B, H, Sq, D)``, contiguous, merged in float32 in a fixed order: the same bits
        each time. With ``return_lse`` also the LSE, ``(B, H, Sq)``. Where every part has an LSE of
        -inf, the output is 0 and the LSE -inf.

    Raises:
        The errors of :func:`split_k_attention`, for the same reasons.
    """
    _load()
    if _not_served:
        _check_card(out, "out")
    made: Tensor | tuple[Tensor, Tensor] = _loaded["merge"](
        out, lse, dtype=dtype, return_lse=return_lse
    )
    return made


@overload
def split_k_attention_sharded(
    q: Tensor,
    k_shard: Tensor,
    v_shard: Tensor,
    group: ProcessGroup | None = ...,
    *,
    keys_after: int | Sequence[int] | Tensor | None = ...,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    block_table: Tensor | None = ...,
    window: int | None = ...,
    softcap: float | None = ...,
    sinks: Tensor | None = ...,
    k_scale: Tensor | None = ...,
    v_scale: Tensor | None = ...,
    variant: str | None = ...,
    overlap: bool | None = ...,
    return_lse: Literal[False] = ...,
    check: bool = ...,
) -> Tensor: ...


@overload
def split_k_attention_sharded(
    q: Tensor,
    k_shard: Tensor,
    v_shard: Tensor,
    group: ProcessGroup | None = ...,
    *,
    keys_after: int | Sequence[int] | Tensor | None = ...,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    block_table: Tensor | None = ...,
    window: int | None = ...,
    softcap: float | None = ...,
    sinks: Tensor | None = ...,
    k_scale: Tensor | None = ...,
    v_scale: Tensor | None = ...,
    variant: str | None = ...,
    overlap: bool | None = ...,
    return_lse: Literal[True],
    check: bool = ...,
) -> tuple[Tensor, Tensor]: ...


def split_k_attention_sharded(
    q: Tensor,
    k_shard: Tensor,
    v_shard: Tensor,
    group: ProcessGroup | None = None,
    *,
    keys_after: int | Sequence[int] | Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    variant: str | None = None,
    overlap: bool | None = None,
    return_lse: bool = False,
    check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`split_k_attention` over keys that are divided among the ranks of a process group.

    Every rank has all queries and a part of the keys: rank 0 the first ones, the last rank the
    last ones (context parallelism). Each attends to its part, all exchange outputs and LSEs in one
    all-gather, and each merges them in the order of ranks. So all ranks return the same bits, and
    the same again from run to run, on processors or cards of one kind.

    A rank receives ``B * H * Sq * (Dv * bytes of q's dtype + 4)`` bytes from each other rank: keys
    and values are not sent. See "Keys over several cards" in the kernel's README.

    Args:
        q: All queries, ``(B, H, Sq, D)``, the same on every rank.
        k_shard: Keys of this rank, ``(B, Hkv, keys of this rank, D)``, as ``k`` of
            :func:`split_k_attention`. Shards may be of unlike length, and without any key.
        v_shard: Values of this rank, ``(B, Hkv, keys of this rank, Dv)``, dtype of ``k_shard``.
        group: Process group of 1 to 1024 ranks; all ranks by default. NCCL for CUDA, gloo for the
            CPU. The group's ``timeout`` is the time limit of a call.
        keys_after: Valid keys that later ranks hold: one number for all batch entries, a list of
            ``B``, or a tensor, ``(B,)``, int32 or int64, on the device of ``q``, which stays there,
            so that a captured graph sees new ones. Needed, and used, only with ``causal`` and
            several queries, or with a ``window``. :func:`count_keys_after` makes the tensor. From
            ``Sq - 1 + (window or 0)`` on all numbers are the same. A tensor takes a call of the
            operator for each query; numbers take one or two, for each run of entries with the same
            number, and with a ``window`` up to one for each query.
        causal: Align the causal mask bottom-right over the keys of all ranks together: query ``i``
            sees the keys up to the ``i``-th of the last ``Sq``.
        scale: As in :func:`split_k_attention`, the same on every rank.
        num_splits: Number of splits of this rank's keys.
        kv_lengths: Valid keys of this rank for each batch entry, ``(B,)``, int32 or int64.
        block_table: Pages of this rank for each batch entry, ``(B, pages of an entry)``, int32.
            ``k_shard`` and ``v_shard`` then hold this rank's pages.
        window: Most keys that a query sees, over all ranks. Needs ``causal=True``, and
            ``keys_after`` in numbers, not as a tensor.
        softcap: As in :func:`split_k_attention`, the same on every rank.
        sinks: As in :func:`split_k_attention`, the same on every rank; they count once.
        k_scale: Of this rank's keys of 8 bits.
        v_scale: Of this rank's values of 8 bits.
        variant: Of this rank.
        overlap: Of this rank.
        return_lse: Also return the log-sum-exp of the logits, over the keys of all ranks.
        check: Compare the arguments of all ranks first, ``q`` and ``sinks`` by a checksum, and
            ``keys_after`` with the lengths of later ranks. A second exchange, and the host waits
            for it: for finding mistakes, the same on every rank, and not while a CUDA graph is
            captured.

    Returns:
        As :func:`split_k_attention`, the same on every rank. In 16 bits each rank's output is
        rounded before they are merged: where outputs of ranks cancel, the error is that of the
        larger ones.

    Raises:
        torch.distributed.DistBackendError: A rank ended or failed, did not come within the time
            limit of the group, or sent other shapes. With gloo all other ranks raise it, when the
            connection breaks or at the time limit. With NCCL the host does not wait for the
            exchange: torch's watchdog ends the process at the time limit, and does not watch
            replays of a CUDA graph. The group cannot be used any more.
        ValueError: As in :func:`split_k_attention`; ``keys_after`` is missing where it is needed;
            or, with ``check``, arguments of ranks do not fit, or another rank raised an error.
            Without ``check`` a rank that raises leaves the others waiting for the time limit.
        NotImplementedError: If a gradient is asked for.

    The other errors of :func:`split_k_attention` are raised for the same reasons.
    """
    from kbtool.sharded_attention import attend_sharded

    _load()  # or the ranks that come first would wait in the exchange for those that build
    made: Tensor | tuple[Tensor, Tensor] = attend_sharded(
        split_k_attention, merge, q, k_shard, v_shard, group,
        keys_after=keys_after, causal=causal, scale=scale, num_splits=num_splits,
        kv_lengths=kv_lengths, block_table=block_table, window=window, softcap=softcap, sinks=sinks,
        k_scale=k_scale, v_scale=v_scale, variant=variant, overlap=overlap, return_lse=return_lse,
        check=check,
    )  # fmt: skip
    return made


def count_keys_after(kv_lengths: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """The keys of each batch entry that later ranks hold, for :func:`split_k_attention_sharded`.

    One small all-gather: call it once when lengths change, not once a layer. Nothing waits for the
    device.

    Args:
        kv_lengths: Valid keys of each batch entry on this rank, ``(B,)``, int32 or int64, on a
            device that the group's backend takes.
        group: The process group; all ranks by default.

    Returns:
        A tensor like ``kv_lengths``; 0 on the last rank. ``.tolist()`` makes the numbers that a
        ``window`` needs.

    Raises:
        torch.distributed.DistBackendError: As in :func:`split_k_attention_sharded`.
        TypeError: ``kv_lengths`` is no tensor.
        ValueError: It has a wrong shape or dtype, or this process is not in the group.
    """
    from kbtool import sharded_attention as sharded

    return sharded.count_keys_after(kv_lengths, group)


_loaded: dict[str, Callable[..., Any]] = {}
"""The functions of the interface by name, once the library is loaded."""
_not_served: dict[int, str] = {}
"""Card that the library was not built for → the reason, once the library is loaded."""


def _check_card(t: object, name: str) -> None:
    if isinstance(t, Tensor) and t.is_cuda:
        from kbtool.model.errors import MachineError

        if t.device.index in _not_served:
            raise MachineError(f"split_k_attention: {name} is on {_not_served[t.device.index]}")


# torch.compile runs this while it traces, instead of tracing into the build.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _load() -> bool:
    """Build the library if it is not there, load it, and fill ``_loaded``; once a process."""
    if _loaded:
        return True
    from kbtool.gpu.build import build
    from kbtool.gpu.build_plan import plan_build
    from kbtool.gpu.harness import load_module
    from kbtool.model.kernel import Kernel
    from kbtool.store.tree import Entry, load_record

    folder = _kernel_folder()
    entry = load_record(folder / "kernel.yaml", f"{folder.name}/kernel.yaml", Kernel)
    if not isinstance(entry, Entry):
        raise RuntimeError(f"the manifest of {_KERNEL} does not load, correct it: {entry[0]}")
    kernel, interface = entry.record, entry.record.interface
    if interface is None:
        raise RuntimeError(f"the manifest of {_KERNEL} names no interface")
    target, architecture, not_served = _choose(kernel)
    plan = plan_build(kernel, folder, target, _cache_folder(folder), architecture)
    build(plan, timeout=_BUILD_SECONDS)
    with _LOADING:
        if not _loaded:
            torch.ops.load_library(str(plan.library))  # type: ignore[no-untyped-call]
            module = load_module(folder / interface, f"kbtool_interface_{_KERNEL}")
            _not_served.update(not_served)
            _loaded.update({name: getattr(module, name) for name in _OF_INTERFACE})
    return True


def _choose(kernel: Kernel) -> tuple[str, str, dict[int, str]]:
    """The target to build, its architecture, and card that it leaves out → the reason."""
    from kbtool.gpu.build_plan import choose_architecture
    from kbtool.gpu.toolchain import find_nvcc
    from kbtool.model.errors import MachineError, UsageError

    cards = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    named = {card: f"cuda:{card} ({torch.cuda.get_device_name(card)})" for card in cards}
    capabilities = {card: torch.cuda.get_device_capability(card) for card in cards}
    architectures: dict[int, str] = {}
    left_out: dict[int, str] = {}
    for card, capability in capabilities.items():
        try:
            architectures[card] = choose_architecture(kernel, "cuda", "sm_{}{}".format(*capability))
        except UsageError as error:
            left_out[card] = f"{named[card]}: {error}"
    if not architectures:
        if left_out:
            warnings.warn(
                f"split_k_attention is built for the CPU alone: {'; '.join(left_out.values())}",
                RuntimeWarning,
                stacklevel=4,  # the caller of split_k_attention
            )
        return "cpu", "", left_out
    try:
        find_nvcc()
    except MachineError as error:
        return "cpu", "", left_out | {card: f"{named[card]}: {error}" for card in architectures}
    current = torch.cuda.current_device()
    built_for = current if current in architectures else min(architectures)
    architecture = architectures[built_for]
    for card, own in architectures.items():
        if own != architecture and not _runs_on(architecture, capabilities[card]):
            left_out[card] = (
                f"{named[card]}: the library is built for {architecture}, for {named[built_for]},"
                " and a process holds one build; use this card in a process in which it is the"
                " current card at the first call"
            )
    return "cuda", architecture, left_out


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for an architecture runs on a card: on the same major version and the
    same or a later minor version, unless it is specific to one chip (sm_90a)."""
    code = architecture.removeprefix("sm_")
    if not code.isdigit():
        return False
    major, minor = divmod(int(code), 10)
    return (major, minor) <= capability < (major + 1, 0)


def _kernel_folder() -> Path:
    """The kernel's sources: in the checkout of this package, else in the installed wheel."""
    from kbtool.store.packaged import packaged

    return packaged("kernels") / _KERNEL


def _cache_folder(kernel_folder: Path) -> Path:
    """The build cache: in the checkout, or in the user's cache for an installed package."""
    from kbtool.store.private import build_cache

    root = kernel_folder.parent.parent
    if (root / "sessions").is_dir() and os.access(root, os.W_OK):
        return build_cache(root)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "kbtool" / "build"
