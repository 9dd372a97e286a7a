"""Split-K attention as a problem: inputs, reference, yardstick, operator under test, peers, work.

The generic validation and measurement know nothing of attention; they read a case from
``kernel.yaml`` and call the functions here. A case is a mapping of the manifest's ``case_fields``;
a field without a default may be absent.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kbtool.gpu.harness import load_module

_PEERS = load_module(Path(__file__).with_name("peers.py"), "kbtool_split_k_attention_peers")

SUBJECT = "split_k"
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
    "flashinfer_xqa",
    "flex",
)

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Layout of the case → layout of the output, and of the LSE too if it is a far one.
_OUT_LAYOUTS = {
    name: name for name in ("bshd", "bhds", "sliced", "offset", "padded", "padded_rows")
} | {
    "mixed": "bshd",
    "far_batch_out": "far_batch",
    "far_queries_out": "far_keys",
}
_GUARD = 1024  # floats past the workspace that must stay as they are
_SCORES_AT_A_TIME = 1 << 23  # float64 scores that the reference holds at once: 64 MiB

# ---- inputs ----


def make_inputs(case: Mapping[str, Any], *, device: torch.device, seed: int) -> dict[str, Any]:
    """Fresh inputs of a case; keys and values past the valid length are NaN, or infinite where the
    case says so."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = _DTYPES[case.get("dtype", "float16")]
    layout = case.get("layout", "bhsd")
    fill = case.get("fill", "random")
    B, H, Hkv, Sq, Skv, D = _sizes(case)
    lengths = case.get("kv_lengths")

    def values(*shape: int) -> Tensor:
        if fill == "large_logits":
            # Integers: every q.k is exact in float32, whatever the order of its sum.
            integers = torch.randint(-32, 33, shape, generator=generator, device=device)
            return integers.to(dtype)
        normal = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        return normal * case.get("deviation", 1.0)

    q = values(B, H, Sq, D)
    k = values(B, Hkv, Skv, D)
    v = values(B, Hkv, Skv, D)
    if fill == "large_logits":
        q *= 16
    if fill == "largest_logits":
        whole = torch.randint(-255, 256, (B, Hkv, Skv), generator=generator, device=device)
        q[...], k[...] = 0, 0
        q[..., 0], k[..., 0] = 1, whole.to(dtype)
    if fill == "v_one":
        v.fill_(1)
    if fill == "cancelling":
        # The sums of the two halves are large, and what is left of them is not.
        v[:, :, : Skv // 2] += 100
        v[:, :, Skv // 2 :] -= 100
    if fill == "minus_inf_keys":
        q[..., 0], k[:, :, : Skv // 2, 0] = 1, -math.inf
    if fill in {"inf_key", "nan_and_inf_key"}:
        # q.k is 1 times infinity plus finite terms: +inf with every query.
        q[..., 0], k[0, 0, -1, 0] = 1, math.inf
    if fill in {"nan_key", "nan_value", "nan_and_inf_key"}:
        (v if fill == "nan_value" else k)[0, 0, Skv // 2] = math.nan
    if fill == "inf_value":
        v[0, 0, Skv // 2], v[0, 0, Skv // 2, ::3] = math.inf, -math.inf
        v[0, 0, Skv // 3, ::2] = math.inf
    beyond = math.inf if fill == "inf_beyond" else math.nan
    if layout == "expanded":
        k, v = (t[:1, :1].contiguous().expand(B, Hkv, Skv, D) for t in (k, v))
        if lengths is not None:  # one storage for all: only what no entry sees may be poisoned
            for t in (k, v):
                t[0, 0, max(lengths) :] = beyond
    elif lengths is not None:
        for b, length in enumerate(lengths):
            k[b, :, length:] = beyond
            v[b, :, length:] = beyond
    if layout == "mixed":
        q, v = _stored_as("bhds", q), _stored_as("bshd", v)
    elif layout not in {"expanded", "far_batch_out", "far_queries_out"}:
        q, k, v = (_stored_as(layout, t) for t in (q, k, v))
    return {
        "q": q,
        "k": k,
        "v": v,
        "out_layout": _OUT_LAYOUTS.get(layout, "bhsd"),
        "causal": bool(case.get("causal", False)),
        "scale": case.get("scale"),
        "num_splits": case.get("num_splits"),
        "kv_lengths": None
        if lengths is None
        else torch.tensor(
            lengths, dtype=getattr(torch, case.get("kv_lengths_dtype", "int32")), device=device
        ),
    }


def _sizes(case: Mapping[str, Any]) -> tuple[int, int, int, int, int, int]:
    B, H, Hkv, Sq, Skv = (int(case.get(name, 1)) for name in ("B", "H", "Hkv", "Sq", "Skv"))
    return B, H, Hkv, Sq, Skv, int(case.get("D", 64))


def _stored_as(layout: str, t: Tensor) -> Tensor:
    """The same values in another storage; what lies between them is NaN where it is cheap."""
    B, H, S, D = t.shape
    if layout == "bhsd":
        return t
    if layout == "bshd":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "bhds":
        return t.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "sliced":
        stored = t.new_full((B, H, S, 2 * D), math.nan)[..., ::2]
    elif layout == "offset":
        stored = t.new_full((B, H, S, D + 3), math.nan)[..., 1 : D + 1]
    elif layout == "padded":
        held = t.new_full((B, H, S * D + 4), math.nan)
        stored = held[..., : S * D].unflatten(-1, (S, D))
    elif layout == "padded_rows":  # to a multiple of 16 bytes at 16 bits, whatever D
        stored = t.new_full((B, H, S, D + 15 - (D - 1) % 8), math.nan)[..., :D]
    elif layout == "far_batch":
        # On the CPU pages that nobody writes are never backed by memory; on a card each of q, k, v
        # and the output takes 4 to 6 GB at 16 bits, and the LSE twice as much.
        stride = 2**31 + 64
        stored = t.new_empty((B - 1) * stride + H * S * D).as_strided(
            t.shape, (stride, S * D, D, 1)
        )
    elif layout == "far_keys":
        # The last fifth of the keys, or of the queries, lies beyond 2^31.
        stride = 5 * 2**29 // max(S - 1, 1) + D
        stored = t.new_empty((S - 1) * stride + B * H * D).as_strided(
            t.shape, (H * D, D, stride, 1)
        )
    else:
        raise ValueError(f"unknown layout {layout!r}")
    return stored.copy_(t)


# ---- reference and yardstick ----


def reference(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Attention in float64 with an exact softmax; shares nothing with the implementation."""
    q = inputs["q"]
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full(q.shape[:3], -math.inf, dtype=torch.float64, device=q.device)
    for b, h, rows, scores, values in _scores(inputs):
        some = ~(scores == -math.inf).all(dim=-1)
        lse[b, h, rows][some] = scores[some].logsumexp(dim=-1)
        out[b, h, rows][some] = scores[some].softmax(dim=-1) @ _finite(values)
        if not values.isfinite().all():
            # Apart from the sums: a matrix product would multiply hidden ones by 0, giving NaN.
            seen = (scores > -math.inf).double()
            for infinity in (math.inf, -math.inf):
                there = seen @ (values == infinity).double() > 0
                out[b, h, rows] += torch.where(there, infinity, 0)
            out[b, h, rows][(seen @ values.isnan().double() > 0) & some[:, None]] = math.nan
    return {"out": out, "lse": lse}


def error_scale(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The size of the terms that each element is a sum of, before anything cancels.

    LSE, ``(B, H, Sq)``: logits are float32. By Cauchy-Schwarz no partial sum of a logit's products
    exceeds ``|scale| |q| |k|``, so the logit may be off by one unit of that. The LSE may be off by
    as much as it moves when every logit does. For a row that sees one key that is the one logit.

    Output, ``(B, H, Sq, D)``: a sum of weights times values. Each product is rounded relative to
    its own size, and these errors add up as squares do, to ``sqrt(sum w² v²)``. For a row that sees
    one key that is the value; over many keys of equal weight it shrinks as the output does.

    Other errors of the output are in float32, so they count by the ratio of its eps to that of the
    output's type. A sum of n terms is rounded n times. Similar terms all round the same way. A
    weight moves as far as its logit may, and pulls the output towards its value. A weight below
    float32's normal numbers may be lost.
    """
    q, k, scale = inputs["q"], inputs["k"], abs(_scale(inputs))
    float32 = torch.finfo(torch.float32)
    digits = float32.eps / torch.finfo(q.dtype).eps
    of_lse = torch.zeros(q.shape[:3], dtype=torch.float64, device=q.device)
    of_out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for b, h, rows, scores, values in _scores(inputs):
        some = ~(scores == -math.inf).all(dim=-1)
        keys = k[b, h // (q.shape[1] // k.shape[1]), : values.shape[0]]
        lengths = (_finite(of.double().norm(dim=-1)) for of in (q[b, h, rows][some], keys))
        delta = float32.eps * scale * torch.outer(*lengths)
        log_weights = scores[some].log_softmax(dim=-1)
        of_lse[b, h, rows][some] = _finite((log_weights + delta).logsumexp(dim=-1) / float32.eps)

        weights, finite, n = log_weights.exp(), _finite(values), values.shape[0]
        out = weights @ finite
        products = (weights.square() @ finite.square()).sqrt()
        moves = ((log_weights + delta).clamp(max=0).exp() * -torch.expm1(-delta)).square()
        moved = moves @ finite.square() - 2 * out * (moves @ finite)
        moved += out.square() * moves.sum(dim=-1, keepdim=True)
        in_float32 = products * n**0.5 + out.abs() * min(n, 64) / 4
        in_float32 += moved.clamp(min=0).sqrt() / float32.eps
        in_float32 += finite.abs().sum(dim=0) * float32.smallest_normal / float32.eps
        of_out[b, h, rows][some] = _finite(products + digits * in_float32)
    return {"out": of_out, "lse": of_lse}


def _finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x, 0)


def _scores(inputs: Mapping[str, Any]) -> Iterator[tuple[int, int, slice, Tensor, Tensor]]:
    """Of each (batch entry, query head) some rows at a time: their logits in float64, -inf where a
    key is hidden, and the head's values."""
    q, scale = inputs["q"], _scale(inputs)
    for b, h, keys, values in _kv_heads(inputs):
        k64, v64 = keys.double(), values.double()
        visible = _visible(inputs, keys.shape[0])
        rows_at_a_time = max(1, _SCORES_AT_A_TIME // max(1, keys.shape[0]))
        for row in range(0, q.shape[2], rows_at_a_time):
            rows = slice(row, row + rows_at_a_time)
            scores = q[b, h, rows].double() @ k64.T * scale
            yield b, h, rows, scores.masked_fill_(~visible[rows], -math.inf), v64


def baseline(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """What torch makes of the same inputs: its attention in their dtype, its LSE in float32.

    The error of this against :func:`reference` is the yardstick of the error of ours.
    """
    # Contiguous copies: how torch handles strides is not the question. Copy even if a tensor says
    # that it is contiguous: a single row that starts in the middle of a storage says so too, and
    # torch's kernels read it as if it were aligned.
    q, k, v = (
        inputs[name].clone(memory_format=torch.contiguous_format) for name in ("q", "k", "v")
    )
    v = torch.where(v.isnan(), 0, v)
    scale = _scale(inputs)
    out = torch.zeros_like(q)
    lse = torch.full(q.shape[:3], -math.inf, dtype=torch.float32, device=q.device)

    def attend(b: int, keys: Tensor, visible: Tensor) -> Tensor:
        made = scaled_dot_product_attention(
            q[b : b + 1],
            keys[None],
            v[b : b + 1, :, : keys.shape[1]],
            attn_mask=visible if inputs["causal"] else None,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )[0]
        made[:, ~visible.any(dim=-1)] = 0
        return made

    for b in range(q.shape[0]):
        length = _length(inputs, b)
        if length == 0 or q.shape[1] == 0 or q.shape[2] == 0:
            continue
        keys, visible = k[b, :, :length], _visible(inputs, length)
        out[b] = attend(b, keys, visible)
        finite = keys.isfinite()
        if not finite.all():
            # Torch's mask does not hide a non-finite key: rows that do not see it could be NaN, and
            # their error would say nothing. They are computed again with a finite key.
            seen = visible.float() @ (~finite).any(dim=-1).float().T > 0  # (Sq, Hkv)
            hidden = ~seen.T.repeat_interleave(q.shape[1] // k.shape[1], dim=0)
            out[b][hidden] = attend(b, torch.where(finite, keys, 0), visible)[hidden]
    for b, h, keys, values in _kv_heads(inputs):
        scores = q[b, h].float() @ keys.float().T * scale
        scores.masked_fill_(~_visible(inputs, keys.shape[0]), -math.inf)
        lse[b, h] = scores.logsumexp(dim=-1)
        out[b, h][_sees_nan(inputs, values)] = math.nan
        out[b, h][lse[b, h] == -math.inf] = 0
    return {"out": out, "lse": lse}


def _scale(inputs: Mapping[str, Any]) -> float:
    scale = inputs["scale"]
    return 1 / math.sqrt(inputs["q"].shape[3]) if scale is None else float(scale)


def _length(inputs: Mapping[str, Any], b: int) -> int:
    lengths = inputs["kv_lengths"]
    return int(inputs["k"].shape[2]) if lengths is None else int(lengths[b])


def _visible(inputs: Mapping[str, Any], length: int) -> Tensor:
    """Which of ``length`` valid keys each query sees, ``(Sq, length)``."""
    q = inputs["q"]
    ones = torch.ones(q.shape[2], length, dtype=torch.bool, device=q.device)
    return ones.tril(diagonal=length - q.shape[2]) if inputs["causal"] else ones


def _sees_nan(inputs: Mapping[str, Any], values: Tensor) -> Tensor:
    """Where the output is NaN because the query sees a value that is NaN, ``(Sq, D)``.

    Found apart from the sums: in a matrix product hidden NaNs would count too, as 0 times NaN.
    """
    bad = values.isnan()
    if not bad.any():
        return bad.new_zeros(inputs["q"].shape[2], values.shape[1])
    return _visible(inputs, values.shape[0]).float() @ bad.float() > 0


def _kv_heads(inputs: Mapping[str, Any]) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Each (batch entry, query head) that has keys, with its valid keys and values."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    for b in range(q.shape[0]):
        length = _length(inputs, b)
        if length == 0:
            continue
        for h in range(q.shape[1]):
            h_kv = h // (q.shape[1] // k.shape[1])
            yield b, h, k[b, h_kv, :length], v[b, h_kv, :length]


# ---- cases beside a listed one ----

_MOST_COLUMNS = 256
_MOST_SPLITS = 1024
_STRIDES = ("bhsd", "bshd", "bhds", "sliced", "offset", "padded", "padded_rows", "mixed")


def neighbours(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The case with one of its numbers changed by 1, or with other strides. Its fill stays, and so
    does whether lengths are given."""
    B, H, Hkv, Sq, Skv, D = _sizes(case)
    lengths, splits, layout = case["kv_lengths"], case["num_splits"], case["layout"]
    if layout.startswith("far") or min(B, H, Sq, Skv) == 0:
        return  # gigabytes, or no element that could be wrong
    least_keys = 1 if case["fill"] in {"random", "large_logits", "v_one"} else 8
    for step in (-1, 1):
        if Sq + step > 0:
            yield {**case, "Sq": Sq + step}
        if Skv + step >= least_keys:
            clipped = lengths and [min(length, Skv + step) for length in lengths]
            yield {**case, "Skv": Skv + step, "kv_lengths": clipped}
        if 0 < D + step <= _MOST_COLUMNS:
            yield {**case, "D": D + step}
        if B + step > 0:
            more = lengths and (lengths[:step] if step < 0 else [*lengths, max(lengths) // 2])
            yield {**case, "B": B + step, "kv_lengths": more}
        if Hkv + step > 0:
            yield {**case, "H": H // Hkv * (Hkv + step), "Hkv": Hkv + step}
        if H // Hkv + step > 0:
            yield {**case, "H": H + step * Hkv}
        if splits is not None and 0 < splits + step <= _MOST_SPLITS:
            yield {**case, "num_splits": splits + step}
        if lengths:
            longest = lengths.index(max(lengths))
            if 0 <= lengths[longest] + step <= Skv:
                moved = [n + step * (b == longest) for b, n in enumerate(lengths)]
                yield {**case, "kv_lengths": moved}
    if layout != "expanded":
        for other in _STRIDES:
            if other != layout:
                yield {**case, "layout": other}


# ---- the operator under test ----


def call(
    inputs: Mapping[str, Any], *, variant: str | None = None, poison: bool = True
) -> dict[str, Tensor]:
    """Runs the operator; with ``poison``, on outputs and a workspace that were filled with NaN."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    options = _options(inputs) | {"variant": variant}
    if not poison:
        out, lse = torch.ops.kbtool.split_k_attention(q, k, v, **options)
        return {"out": out, "lse": lse}
    numel = workspace_bytes(inputs, variant) // torch.float32.itemsize
    B, H, Sq, _ = q.shape
    out = _stored_as(inputs["out_layout"], q.new_full(q.shape, math.nan))
    lse = q.new_full((B, H, Sq), math.nan, dtype=torch.float32)
    if inputs["out_layout"].startswith("far"):
        lse = _stored_as(inputs["out_layout"], lse[..., None])[..., 0]
    elif inputs["out_layout"] != "bhsd":
        lse = lse.new_full((B, Sq, H), math.nan).transpose(1, 2)
    workspace = q.new_full((numel + _GUARD,), math.nan, dtype=torch.float32)
    torch.ops.kbtool.split_k_attention_out(
        q, k, v, **options, out=out, lse=lse, workspace=workspace[:numel]
    )
    if not bool(workspace[numel:].isnan().all()):
        raise RuntimeError(f"the operator wrote past the {numel} floats of its workspace")
    return {"out": out, "lse": lse}


def workspace_bytes(inputs: Mapping[str, Any], variant: str | None = None) -> int:
    """Memory for partial states, in float32."""
    _, numel = torch.ops.kbtool.split_k_attention_plan(
        inputs["q"], inputs["k"], num_splits=inputs["num_splits"], variant=variant
    )
    return int(numel) * torch.float32.itemsize


def variants(device: torch.device) -> list[str]:
    """The names of the variants that ``device`` has, simplest first."""
    names: str = torch.ops.kbtool.split_k_attention_variants(torch.empty(0, device=device))
    return names.split(",")


def _options(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inputs[name] for name in ("causal", "scale", "num_splits", "kv_lengths")}


# ---- the operator's parts, each alone ----

_Results = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def parts(inputs: Mapping[str, Any], variant: str | None) -> dict[str, Callable[[], _Results]]:
    """The partial pass and the reduction, if the variant has them as separate operators.

    The states that the partial pass returns are merged in float64. The reduction gets states that
    were computed in float64, for as many splits as the operator would take.
    """
    q, k = inputs["q"], inputs["k"]
    if q.device.type != "cpu" and variant != "two_pass":
        return {}

    def partial_pass() -> _Results:
        states = torch.ops.kbtool.split_k_attention_partial(
            q, k, inputs["v"], **_options(inputs), variant=variant
        )
        merged = _merged(*(state.double() for state in states))
        out = {"out": merged["out"].to(q.dtype), "lse": merged["lse"].float()}
        return out, reference(inputs), baseline(inputs)

    def reduction() -> _Results:
        count, _ = torch.ops.kbtool.split_k_attention_plan(
            q, k, num_splits=inputs["num_splits"], variant=variant
        )
        states = _states(inputs, max(count, 1))
        out, lse = torch.ops.kbtool.split_k_attention_merge(*states, dtype=q.dtype)
        torchs = _merged(*states)
        torchs["out"] = torchs["out"].to(q.dtype)
        return {"out": out, "lse": lse}, _merged(*(state.double() for state in states)), torchs

    return {"partial pass": partial_pass, "reduction": reduction}


def _merged(values: Tensor, maxima: Tensor, sums: Tensor) -> dict[str, Tensor]:
    """Attention from the states of splits, in their own precision.

    Args:
        values: (S, B, H, Sq, D), weighted and not divided.
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
    q = inputs["q"]
    values = q.new_zeros((count, *q.shape), dtype=torch.float32)
    maxima = q.new_full((count, *q.shape[:3]), -math.inf, dtype=torch.float32)
    sums = torch.zeros_like(maxima)
    for b, h, keys, kv_values in _kv_heads(inputs):
        length = keys.shape[0]
        scores = q[b, h].double() @ keys.double().T * _scale(inputs)
        scores.masked_fill_(~_visible(inputs, length), -math.inf)
        for split in range(count):
            cut = slice(length * split // count, length * (split + 1) // count)
            if cut.start == cut.stop:
                continue
            top = scores[:, cut].amax(dim=-1).float()
            base = torch.where(top == -math.inf, 0, top).double()
            weights = torch.exp(scores[:, cut] - base.unsqueeze(-1))
            maxima[split, b, h] = top
            sums[split, b, h] = weights.sum(dim=-1).float()
            values[split, b, h] = (weights @ kv_values[cut].double()).float()
    return values, maxima, sums


# ---- arms to time ----


def arms(
    inputs: Mapping[str, Any], variants: Sequence[str] = (), peers: Sequence[str] = ()
) -> dict[str, Callable[[], Any] | str]:
    """An arm for the library's own choice and for each of ``variants`` and ``peers``: the call to
    time, or why it does not take these inputs here."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    options = _options(inputs)
    ours = torch.ops.kbtool.split_k_attention.default
    timed: dict[str, Callable[[], Any] | str] = {SUBJECT: lambda: ours(q, k, v, **options)}
    for variant in variants:
        timed[variant] = _tried(functools.partial(ours, q, k, v, **options, variant=variant))
    if peers:
        _clear_past_lengths(inputs)
    for peer in peers:
        empty = q.numel() == 0 or k.numel() == 0
        timed[peer] = "there is nothing to attend to" if empty else _PEERS.PEERS[peer](inputs)
    return timed


def _clear_past_lengths(inputs: Mapping[str, Any]) -> None:
    """Zero keys and values past the lengths: torch multiplies them by 0, and 0 · NaN is NaN."""
    if inputs["kv_lengths"] is None:
        return
    for b in range(inputs["q"].shape[0]):
        for name in ("k", "v"):
            inputs[name][b, :, _length(inputs, b) :] = 0


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
            all entries together.
    """
    q, k = inputs["q"], inputs["k"]
    if inputs["kv_lengths"] is not None:
        raise ValueError("calls with kv_lengths are not tuned: leave their case sets out")
    own, _ = torch.ops.kbtool.split_k_attention_plan(q, k, num_splits=None, variant=variant)
    most = max(1, k.shape[2] // _LEAST_KEYS)
    counts = sorted({own, *(count for count in _COUNTS if count <= most)})
    one = {**inputs, **{name: inputs[name].flatten(0, 1).unsqueeze(0) for name in ("q", "k", "v")}}
    with_count = {str(count): {**one, "num_splits": count} for count in counts}
    return str(own), {**with_count, str(own): {**one, "num_splits": None}}


# ---- the least work a case takes ----


def work(case: Mapping[str, Any]) -> dict[str, int]:
    """Least bytes to move and operations to do: visible keys only, each key and value read once."""
    B, H, Hkv, Sq, Skv, D = _sizes(case)
    size = _DTYPES[case.get("dtype", "float16")].itemsize
    given = case.get("kv_lengths")
    lengths = [Skv] * B if given is None else [int(length) for length in given]

    def pairs(length: int) -> int:
        if not case.get("causal", False):
            return Sq * length
        seeing = min(Sq, length)  # the last rows of a bottom-right mask see length, length - 1, …
        return seeing * length - seeing * (seeing - 1) // 2

    keys = sum(lengths) if Sq else 0
    if case.get("layout") == "expanded":
        stored_kv = max(lengths, default=0) if Sq and Hkv else 0
    else:
        stored_kv = Hkv * keys
    rows = B * H * Sq
    return {
        "bytes": size * D * (2 * rows + 2 * stored_kv) + 4 * rows,
        "flops": 4 * D * H * sum(pairs(length) for length in lengths),
    }
