"""Hugging Face Transformers models that decode by ``kbtool.attention``.

.. code-block:: python

    from kbtool.integrations.transformers import register

    register()
    model.set_attn_implementation("kbtool")
    model.generate(**inputs, cache_implementation="static")

One query of each entry (decoding) goes to :func:`kbtool.attention.split_k_attention`, with the
window, softcap and sinks of the model, over a static or a dynamic cache. Several queries (prefill)
go to torch's SDPA. Models with softcap or sinks, which SDPA does not have, get their prefill from
the same operator too.

A batch with padding, dropout, gradients, or a mask other than causal is computed as Transformers
does by itself, by SDPA or step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from kbtool.attention import split_k_attention

__all__ = ["NAME", "register"]

NAME = "kbtool"


def register(name: str = NAME) -> None:
    """Offer the operator to every model as the attention implementation ``name``."""
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, make_mask)


# ---- the mask of a call, made once for all layers ----


def make_mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Tensor | None:
    """The mask of a call as :func:`attend` takes it: SDPA's, or for decoding the number of valid
    keys of each entry, ``(B, 1, 1, 1)``, int32.

    Of 4 dimensions, so that Transformers hands it on as it is.
    """
    if q_length == 1 and not use_vmap and _is_causal(mask_function):
        end = q_offset + 1
        if attention_mask is None or _is_full(attention_mask, kv_offset, end):
            valid = torch.as_tensor(end - kv_offset, device=device).clamp(max=kv_length)
            return valid.to(torch.int32).expand(batch_size).view(batch_size, 1, 1, 1)
    mask: Tensor | None = sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        use_vmap=use_vmap, device=device, **options,
    )  # fmt: skip
    return mask


def _is_causal(mask_function: Callable[..., Any]) -> bool:
    """Whether a mask is causal, with or without a sliding window, and nothing else."""
    if mask_function is causal_mask_function:
        return True
    if torch.compiler.is_compiling():
        return False
    inside = [cell.cell_contents for cell in getattr(mask_function, "__closure__", None) or ()]
    parts = inside[0] if inside and isinstance(inside[0], tuple) else ()
    names = [part.__qualname__.partition(".")[0] for part in parts]
    return names == ["sliding_window_overlay", "causal_mask_function"]


def _is_full(attention_mask: Tensor, start: int, end: int | Tensor) -> bool:
    """Whether a 2D mask hides no key before ``end``. A compiler cannot know."""
    if torch.compiler.is_compiling():
        return False
    return bool(attention_mask[:, int(start) : int(end)].all())


# ---- the attention of a layer ----


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers calls it: ``query`` is ``(B, H, Sq, D)``, the result ``(B, Sq, H,
    D)``.

    ``s_aux`` are the sinks. ``attention_mask`` is what :func:`make_mask` made, or a mask that the
    caller gave.
    """
    lengths = None
    if attention_mask is not None and attention_mask.dtype == torch.int32:
        lengths = attention_mask.flatten()
    sinks = None if s_aux is None else s_aux.float()
    given: dict[str, Any] = {"scale": scaling, "softcap": softcap, "sinks": sinks}
    inference = not dropout and not (torch.is_grad_enabled() and query.requires_grad)
    ours = inference and query.shape[3] == value.shape[3] and "position_bias" not in options
    if ours and lengths is not None:
        out = split_k_attention(
            query, key, value, causal=True, kv_lengths=lengths, window=sliding_window, **given
        )
        return out.transpose(1, 2).contiguous(), None
    if lengths is not None:
        attention_mask = _as_mask(lengths, key.shape[2], sliding_window)
    if softcap is None and s_aux is None:
        done: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return done
    queries, is_causal = query.shape[2], options.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if ours and is_causal and attention_mask is None:
        # Without a mask SDPA's is the causal one of an empty cache, of which the rest is not used.
        keys = key.shape[2] if queries == 1 else queries
        out = split_k_attention(
            query, key[:, :, :keys], value[:, :, :keys], causal=True, window=sliding_window, **given
        )
        return out.transpose(1, 2).contiguous(), None
    if attention_mask is None and is_causal and queries > 1:
        ones = torch.ones(queries, key.shape[2], dtype=torch.bool, device=query.device)
        attention_mask = ones.tril()
    return _step_by_step(query, key, value, attention_mask, dropout, **given), None


def _as_mask(lengths: Tensor, keys: int, window: int | None) -> Tensor:
    """The keys that the last query sees, ``(B, 1, 1, keys)``."""
    index, ends = torch.arange(keys, device=lengths.device), lengths.view(-1, 1, 1, 1)
    return (index < ends) & (index >= ends - (keys if window is None else window))


def _step_by_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    *,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention with softcap and sinks under any mask, with gradients and dropout."""
    group = query.shape[1] // key.shape[1]
    logits = query @ repeat_kv(key, group).mT * (scale or query.shape[3] ** -0.5)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    elif mask is not None:
        logits = logits + mask
    if sinks is not None:
        column = sinks.to(logits.dtype).view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, column], dim=-1)
    weights = logits.softmax(dim=-1, dtype=torch.float32).to(query.dtype)[..., : key.shape[2]]
    weights = nn.functional.dropout(weights, dropout)
    out: Tensor = weights @ repeat_kv(value, group)
    return out.transpose(1, 2).contiguous()
