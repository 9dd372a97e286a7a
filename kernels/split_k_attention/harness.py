"""Split-K attention as a problem: the operator under test, the arms to time, the least work.

Inputs are made in ``inputs.py``, what is right is said in ``reference.py``, and other
implementations are called in ``peers.py``. The generic validation and measurement know nothing of
attention; they read a case from ``kernel.yaml`` and call the functions here. A case is a mapping of
the manifest's ``case_fields``; a field without a default may be absent.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kbtool.gpu.harness import load_module


def _beside(name: str) -> Any:
    return load_module(Path(__file__).with_name(f"{name}.py"), f"kbtool_split_k_attention_{name}")


_inputs, _right, _PEERS = _beside("inputs"), _beside("reference"), _beside("peers")
make_inputs = _inputs.make_inputs

SUBJECT = "split_k"
# Of PEERS, a literal: the same call, of keys and values that do not lie in pages, and of ones that
# have the type of the queries; and a plain call for each run of entries with as many queries.
CONTIGUOUS = "contiguous"
UNQUANTISED = "unquantised"
APART = "apart"
BASELINE_ARM = "sdpa"
PEERS = (
    "sdpa",
    "sdpa_repeated",
    "flash",
    "cudnn",
    "efficient",
    "math",
    "fa3",
    "flashinfer",
    "flashinfer_fa2",
    "flashinfer_batch",
    "flashinfer_prefill",
    "flashinfer_prefill_fa2",
    "flashinfer_mixed",
    "flashinfer_xqa",
    "flex",
    "contiguous",
    "unquantised",
    "apart",
)

_GUARD = 1024  # floats past the workspace that must stay as they are

# ---- what is right ----


def reference(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return _as_returned(inputs, _right.reference(inputs), -math.inf)


def baseline(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return _as_returned(inputs, _right.baseline(inputs), -math.inf)


def error_scale(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return _as_returned({**inputs, "sinks": None}, _right.error_scale(inputs), 0.0)


def _as_returned(
    inputs: Mapping[str, Any], dense: dict[str, Tensor], beyond: float
) -> dict[str, Tensor]:
    """What belongs to the rows of ``q``, in the order of the rows that the operator is called with.
    Packed rows after the last entry's are as rows that see no key: their LSE is ``beyond`` or the
    sink."""
    if inputs.get("cu_seqlens_q") is None:
        return dense
    out, lse = (t.transpose(1, 2).flatten(0, 1)[inputs["rows"]] for t in dense.values())
    total, H, _ = inputs["q_packed"].shape
    no_lse = lse.new_full((total - len(lse), H), beyond)
    if inputs.get("sinks") is not None:
        no_lse[...] = inputs["sinks"]
    no_out = torch.where(no_lse.isnan(), no_lse, 0)[..., None].expand(-1, -1, out.shape[-1])
    return {"out": torch.cat([out, no_out.to(out.dtype)]), "lse": torch.cat([lse, no_lse])}


# ---- cases beside a listed one ----

_MOST_COLUMNS = 256
_MOST_SPLITS = 1024
_PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_STRIDES = ("bhsd", "bshd", "bhds", "sliced", "offset", "padded", "padded_rows", "mixed")


def neighbours(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The case with one of its numbers changed by 1, or with other strides. Its fill stays, and so
    does whether lengths are given."""
    B, H, Hkv, Sq, Skv, D = _inputs.sizes_of(case)
    lengths, splits, layout = case["kv_lengths"], case["num_splits"], case["layout"]
    queries = case["q_lengths"]
    if layout.startswith("far") or min(B, H, Sq, Skv) == 0:
        return  # gigabytes, or no element that could be wrong
    least_keys = 1 if case["fill"] in {"random", "large_logits", "v_one"} else 8
    for step in (-1, 1):
        if Sq + step > 0:
            fewer = queries and [min(n, Sq + step) for n in queries]
            yield {**case, "Sq": Sq + step, "q_lengths": fewer}
        if Skv + step >= least_keys:
            clipped = lengths and [min(length, Skv + step) for length in lengths]
            yield {**case, "Skv": Skv + step, "kv_lengths": clipped}
        if 0 < D + step <= _MOST_COLUMNS:
            yield {**case, "D": D + step}
        if case["Dv"] and 0 < case["Dv"] + step <= _MOST_COLUMNS:
            yield {**case, "Dv": case["Dv"] + step}
        if B + step > 0:
            more = lengths and (lengths[:step] if step < 0 else [*lengths, max(lengths) // 2])
            others = queries and (queries[:step] if step < 0 else [*queries, Sq])
            yield {**case, "B": B + step, "kv_lengths": more, "q_lengths": others}
        if Hkv + step > 0:
            yield {**case, "H": H // Hkv * (Hkv + step), "Hkv": Hkv + step}
        if H // Hkv + step > 0:
            yield {**case, "H": H + step * Hkv}
        if case["window"] is not None and case["window"] + step > 0:
            yield {**case, "window": case["window"] + step}
        if splits is not None and 0 < splits + step <= _MOST_SPLITS:
            yield {**case, "num_splits": splits + step}
        if queries:
            least = queries.index(min(queries))
            if 0 <= queries[least] + step <= Sq:
                moved = [n + step * (b == least) for b, n in enumerate(queries)]
                yield {**case, "q_lengths": moved}
            if case["q_padding"] + step >= 0:
                yield {**case, "q_padding": case["q_padding"] + step}
        if lengths:
            longest = lengths.index(max(lengths))
            if 0 <= lengths[longest] + step <= Skv:
                moved = [n + step * (b == longest) for b, n in enumerate(lengths)]
                yield {**case, "kv_lengths": moved}
    if layout != "expanded":
        for other in _STRIDES:
            if other != layout:
                yield {**case, "layout": other}
    if page_size := case["page_size"]:
        for other_size in {page_size // 2, page_size * 2} & set(_PAGE_SIZES):
            yield {**case, "page_size": other_size}
        yield {**case, "page_layout": "hnd" if case["page_layout"] == "nhd" else "nhd"}


# ---- the operator under test ----


def call(
    inputs: Mapping[str, Any], *, variant: str | None = None, poison: bool = True
) -> dict[str, Tensor]:
    """Runs the operator; with ``poison``, on outputs and a workspace that were filled with NaN."""
    q, k, v = _operands(inputs)
    options = _options(inputs) | {"variant": variant}
    if not poison:
        out, lse = torch.ops.kbtool.split_k_attention(q, k, v, **options)
        return {"out": out, "lse": lse}
    numel = workspace_bytes(inputs, variant) // torch.float32.itemsize
    stored_as = _inputs.stored_as if q.dim() == 4 else _packed_as
    out = stored_as(inputs["out_layout"], q.new_full((*q.shape[:-1], v.shape[-1]), math.nan))
    lse = q.new_full(q.shape[:-1], math.nan, dtype=torch.float32)
    if inputs["out_layout"].startswith("far"):
        lse = stored_as(inputs["out_layout"], lse[..., None])[..., 0]
    elif inputs["out_layout"] != "bhsd":
        lse = lse.mT.contiguous().mT
    workspace = q.new_full((numel + _GUARD,), math.nan, dtype=torch.float32)
    torch.ops.kbtool.split_k_attention_out(
        q, k, v, **options, out=out, lse=lse, workspace=workspace[:numel]
    )
    if not bool(workspace[numel:].isnan().all()):
        raise RuntimeError(f"the operator wrote past the {numel} floats of its workspace")
    return {"out": out, "lse": lse}


def workspace_bytes(inputs: Mapping[str, Any], variant: str | None = None) -> int:
    """Memory for partial states, in float32."""
    return _plan(inputs, variant)[1] * torch.float32.itemsize


def _plan(inputs: Mapping[str, Any], variant: str | None) -> tuple[int, int]:
    """The number of splits, and the floats of workspace."""
    q, k, v = _operands(inputs)
    names = ("num_splits", "block_table", "window", "cu_seqlens_q", "max_seqlen_q")
    given = {name: inputs.get(name) for name in names} | {"head_dim_v": v.shape[-1]}
    splits, numel = torch.ops.kbtool.split_k_attention_plan(q, k, **given, variant=variant)
    return splits, numel


def variants(device: torch.device) -> list[str]:
    """The names of the variants that ``device`` has, simplest first."""
    names: str = torch.ops.kbtool.split_k_attention_variants(torch.empty(0, device=device))
    return names.split(",")


def _packed_as(layout: str, t: Tensor) -> Tensor:
    return t if layout == "bhsd" else _inputs.as_packed(t, layout)


def _operands(inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as the operator takes them."""
    q = inputs["q"] if inputs.get("cu_seqlens_q") is None else inputs["q_packed"]
    if inputs.get("block_table") is not None:
        return q, inputs["k_pages"], inputs["v_pages"]
    if "k_fp8" in inputs:
        return q, inputs["k_fp8"], inputs["v_fp8"]
    return q, inputs["k"], inputs["v"]


_OPTIONS = (
    "causal", "scale", "num_splits", "kv_lengths", "block_table", "window", "softcap", "sinks",
    "k_scale", "v_scale", "cu_seqlens_q", "max_seqlen_q", "tree_mask",
)  # fmt: skip


def _options(inputs: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: inputs.get(name) for name in _OPTIONS}
    if inputs.get("cu_seqlens_q") is not None:
        options["tree_mask"] = inputs["packed_tree_mask"]
    return options


# ---- the operator's parts, each alone ----

_Results = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def parts(inputs: Mapping[str, Any], variant: str | None) -> dict[str, Callable[[], _Results]]:
    """The partial pass and the reduction, if the variant has them as separate operators.

    The states that the partial pass returns are merged in float64. The reduction gets states that
    were computed in float64, for as many splits as the operator would take. Sinks are no part of
    either: a call applies them when its splits are merged.
    """
    inputs = {**inputs, "sinks": None}
    options = _options(inputs)
    alone = ("cu_seqlens_q", "tree_mask")  # the operators of the parts have neither
    for name in ("sinks", "max_seqlen_q", *alone):
        del options[name]
    q, k, v = _operands(inputs)
    if any(inputs.get(name) is not None for name in alone):
        return {}
    if q.device.type != "cpu" and variant != "two_pass":
        return {}

    def partial_pass() -> _Results:
        states = torch.ops.kbtool.split_k_attention_partial(q, k, v, **options, variant=variant)
        merged = _merged(*(state.double() for state in states))
        out = {"out": merged["out"].to(q.dtype), "lse": merged["lse"].float()}
        return out, reference(inputs), baseline(inputs)

    def reduction() -> _Results:
        states = _states(inputs, max(_plan(inputs, variant)[0], 1))
        out, lse = torch.ops.kbtool.split_k_attention_merge(*states, dtype=q.dtype)
        torchs = _merged(*states)
        torchs["out"] = torchs["out"].to(q.dtype)
        return {"out": out, "lse": lse}, _merged(*(state.double() for state in states)), torchs

    return {"partial pass": partial_pass, "reduction": reduction}


def _merged(values: Tensor, maxima: Tensor, sums: Tensor) -> dict[str, Tensor]:
    """Attention from the states of splits, in their own precision.

    Args:
        values: (S, B, H, Sq, Dv), weighted and not divided.
        maxima: (S, B, H, Sq), the largest logits.
        sums: (S, B, H, Sq), of the weights.
    """
    top = maxima.amax(dim=0)
    weights = torch.exp(maxima - torch.where(top == -math.inf, 0, top))
    total = (weights * sums).sum(dim=0)
    out = (weights.unsqueeze(-1) * values).sum(dim=0) / total.unsqueeze(-1)
    return {
        "out": torch.where(total.unsqueeze(-1) == 0, 0, out),
        "lse": torch.where(top == math.inf, top, top + total.log()),
    }


def _states(inputs: Mapping[str, Any], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The states of ``count`` splits of the valid keys, as ``_merged`` takes them, in float32."""
    q, Hkv = inputs["q"], inputs["k"].shape[1]
    values = q.new_zeros((count, *q.shape[:3], inputs["v"].shape[3]), dtype=torch.float32)
    maxima = q.new_full((count, *q.shape[:3]), -math.inf, dtype=torch.float32)
    sums = torch.zeros_like(maxima)
    for part, scores, _, kv_values in _right.scores_of(inputs, torch.float64):
        length = scores.shape[-1]
        for split in range(count):
            cut = slice(length * split // count, length * (split + 1) // count)
            if cut.start == cut.stop:
                continue
            top = scores[..., cut].amax(dim=-1).float()
            base = torch.where(top == -math.inf, 0, top).double()
            weights = torch.exp(scores[..., cut] - base.unsqueeze(-1))
            for of_split, made in (
                (maxima[split], top),
                (sums[split], weights.sum(dim=-1)),
                (values[split], _right.weighted(weights, kv_values[:, cut])),
            ):
                _right.rows_of(of_split, Hkv, part).copy_(made)
    return values, maxima, sums


# ---- arms to time ----


def arms(
    inputs: Mapping[str, Any], variants: Sequence[str] = (), peers: Sequence[str] = ()
) -> dict[str, Callable[[], Any] | str]:
    """An arm for the library's own choice and for each of ``variants`` and ``peers``: the call to
    time, or why it does not take these inputs here."""
    q, k, v = _operands(inputs)
    options = _options(inputs)
    ours = torch.ops.kbtool.split_k_attention.default
    timed: dict[str, Callable[[], Any] | str] = {SUBJECT: lambda: ours(q, k, v, **options)}
    for variant in variants:
        timed[variant] = _tried(functools.partial(ours, q, k, v, **options, variant=variant))
    if peers:
        _clear_unseen(inputs)
    is_fp8 = k.dtype != q.dtype
    for peer in peers:
        if q.numel() == 0 or k.numel() == 0:
            timed[peer] = "there is nothing to attend to"
        elif peer == UNQUANTISED and not is_fp8:
            timed[peer] = "is for keys and values of 8 bits"
        elif peer == UNQUANTISED:
            wide = (_inputs.widened(k, inputs["k_scale"]), _inputs.widened(v, inputs["v_scale"]))
            rows = (q, *(t.to(q.dtype) for t in wide))
            timed[peer] = functools.partial(
                ours, *rows, **{**options, "k_scale": None, "v_scale": None}
            )
        elif peer == CONTIGUOUS and inputs.get("block_table") is None:
            timed[peer] = "is for pages"
        elif peer == APART:
            timed[peer] = _apart(inputs)
        elif peer == CONTIGUOUS and is_fp8:
            timed[peer] = "is not called with keys and values of 8 bits"
        elif peer == CONTIGUOUS:
            rows = (q, inputs["k"], inputs["v"])
            timed[peer] = functools.partial(ours, *rows, **{**options, "block_table": None})
        else:
            call = _PEERS.PEERS[peer](inputs)
            other = v.shape[3] != k.shape[3]  # which few take
            timed[peer] = _tried(call) if other and callable(call) else call
    return timed


def _apart(inputs: Mapping[str, Any]) -> Callable[[], Tensor] | str:
    """What a server calls without packed queries, into one output. What it needs on the host and
    the workspaces are there before."""
    if inputs.get("cu_seqlens_q") is None:
        return "is for packed queries"
    if inputs.get("tree_mask") is not None:
        return "is not called with tree_mask"
    q, k, v = _operands(inputs)
    options = _options(inputs) | {"cu_seqlens_q": None, "max_seqlen_q": None}
    out = q.new_zeros((*q.shape[:2], v.shape[3]))
    lse = q.new_zeros(q.shape[:2], dtype=torch.float32)
    calls, b, row = [], 0, 0
    for queries, run in groupby(inputs["cu_seqlens_q"].diff().tolist()):
        count = len(list(run))
        entries, rows = slice(b, b + count), slice(row, row + count * queries)
        b, row = entries.stop, rows.stop
        if queries == 0:
            continue
        own = {
            name: options[name] if options[name] is None else options[name][entries]
            for name in ("kv_lengths", "block_table")
        }
        keys = (k, v) if own["block_table"] is not None else (k[entries], v[entries])
        of, *made = (t[rows].unflatten(0, (count, queries)).transpose(1, 2) for t in (q, out, lse))
        names = ("num_splits", "block_table", "window")
        _, numel = torch.ops.kbtool.split_k_attention_plan(
            of, keys[0], head_dim_v=v.shape[3], **{name: (options | own)[name] for name in names}
        )
        calls.append(
            functools.partial(
                torch.ops.kbtool.split_k_attention_out,
                of,
                *keys,
                **(options | own),
                out=made[0],
                lse=made[1],
                workspace=q.new_empty(numel, dtype=torch.float32),
            )
        )

    def call() -> Tensor:
        for one in calls:
            one()
        return out

    return call


def _clear_unseen(inputs: Mapping[str, Any]) -> None:
    """Zero keys and values past the lengths, and all in pages that no query sees: others multiply
    them by 0, and 0 · NaN is NaN."""
    for entries, length in _right.equal_lengths(inputs):
        for name in ("k", "v"):
            inputs[name][entries, :, length:] = 0
    table = inputs.get("block_table")
    if table is None:
        return
    pages, _, size, _ = inputs["k_pages"].shape
    first, end = (t[:, None] for t in _PEERS.seen_keys(inputs))
    keys = torch.arange(inputs["k"].shape[2], device=table.device)
    entries, keys = ((keys >= first) & (keys < end)).nonzero().T
    seen = torch.zeros(pages, size, dtype=torch.bool, device=table.device)
    seen[table[entries, keys // size].long(), keys % size] = True
    for name in ("k_pages", "v_pages"):
        t = inputs[name]
        bits = t.view(torch.uint8) if t.dtype.itemsize == 1 else t
        bits.masked_fill_(~seen[:, None, :, None], 0)


def _tried(call: Callable[[], Any]) -> Callable[[], Any] | str:
    """The call of a variant, or what the operator says when it is tried."""
    try:
        call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever it raises, it does not take these inputs
        return str(error).splitlines()[0]
    return call


# ---- the number of splits, measured ----

SETTING = "num_splits"
_COUNTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    *(8 * n for n in (2, 3, 4, 6, 8, 10, 12, 16, 24, 32)),
)
_LEAST_KEYS = 32  # of a split


def settings(inputs: Mapping[str, Any], variant: str) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The number of splits that the variant takes by itself, and the same inputs with each number
    that is worth timing.

    Its own number is timed as ``None``: a given number may change the tile too. All batch entries
    are passed as heads of one entry. Otherwise a given number would be planned for one entry alone,
    and the variant's own for the whole batch.

    Raises:
        ValueError: ``kv_lengths`` are given: without a number, the kernel may divide the keys of
            all entries together. Or keys and values are of 8 bits, or queries are packed.
    """
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if inputs["kv_lengths"] is not None:
        raise ValueError("calls with kv_lengths are not tuned: leave their case sets out")
    if "k_fp8" in inputs:
        raise ValueError("calls with kv_dtype are not tuned: leave their case sets out")
    if inputs.get("cu_seqlens_q") is not None:
        raise ValueError("calls with q_lengths are not tuned: leave their case sets out")
    own, _ = torch.ops.kbtool.split_k_attention_plan(
        q, k, num_splits=None, head_dim_v=v.shape[3], variant=variant
    )
    most = max(1, k.shape[2] // _LEAST_KEYS)
    counts = sorted({own, *(count for count in _COUNTS if count <= most)})
    one = {**inputs, **{name: inputs[name].flatten(0, 1).unsqueeze(0) for name in ("q", "k", "v")}}
    with_count = {str(count): {**one, "num_splits": count} for count in counts}
    return str(own), {**with_count, str(own): {**one, "num_splits": None}}


# ---- the least work a case takes ----


def work(case: Mapping[str, Any]) -> dict[str, int]:
    """Least bytes to move and operations to do: visible keys only, each key and value read once."""
    _, H, Hkv, _, _, D = _inputs.sizes_of(case)
    columns = D + (case.get("Dv") or D)  # of a key and its value, and of a query and its output
    size = _inputs.DTYPES[case.get("dtype", "float16")].itemsize
    kv_size = 1 if case.get("kv_dtype") else size
    lengths, queries = _inputs.lengths_of(case), _inputs.queries_of(case)
    window = case.get("window")

    def pairs(length: int, rows: int) -> int:
        if not case.get("causal", False):
            return rows * length
        # The last rows of a bottom-right mask see length, length - 1, … keys, or a window of them.
        seen = range(length, max(length - rows, 0), -1)
        return sum(seen) if window is None else sum(min(keys, window) for keys in seen)

    firsts = _inputs.first_keys_of(case)
    seen = [range(*ends) for ends in zip(firsts, lengths, strict=True)] if any(queries) else []
    keys = sum(map(len, seen))
    if case.get("layout") == "expanded":
        stored_kv = max(map(len, seen), default=0) if Hkv else 0
    else:
        stored_kv = Hkv * keys
        if case.get("page_size") is not None and seen:
            ends = [pages * case["page_size"] for pages in _inputs.shared_pages_of(case)]
            shared = [of[: max(0, end - of.start)] for of, end in zip(seen, ends, strict=True)]
            stored_kv -= Hkv * (sum(map(len, shared)) - len(set().union(*shared)))
    rows = H * sum(queries)
    return {
        "bytes": columns * (size * rows + kv_size * stored_kv) + 4 * rows,
        "flops": 2 * columns * H * sum(map(pairs, lengths, queries)),
    }
