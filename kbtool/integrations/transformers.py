"""Hugging Face Transformers models that decode by ``kbtool.attention``.

.. code-block:: python

    from kbtool.integrations.transformers import register

    register()
    model.set_attn_implementation("kbtool")
    model.generate(**inputs, cache_implementation="static")

One query of each entry (decoding) goes to :func:`kbtool.attention.split_k_attention`, with the
window, softcap and sinks of the model, over a static or a dynamic cache. Several queries (prefill)
go to torch's SDPA. SDPA has no softcap or sinks: models with them get their prefill from the
operator too if it needs no mask, and otherwise (a window shorter than the prompt, a cache that
holds keys, a padded batch) step by step, with a tensor of all logits, ``(B, H, Sq, Skv)``.

SDPA, or with softcap or sinks the computation step by step, also does padded batches, dropout,
gradients, masks other than causal ones or that a model edits, and on CUDA float32 and head
dimensions above 256. A model that passes its attention an option that is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask
from transformers.utils import TransformersKwargs

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
    """The mask of a call as SDPA takes it.

    That of a decoding step which hides no key before the query carries the operator's arguments
    with it. A model that edits it makes another tensor, without them, or another version.
    """
    # Tensors that inference mode makes have no version.
    with nullcontext() if torch.compiler.is_compiling() else torch.inference_mode(False):
        mask: Tensor | None = sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
            kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
            use_vmap=use_vmap, device=device, **options,
        )  # fmt: skip
        if mask is None or q_length != 1 or use_vmap:
            return mask
        mask = mask.contiguous()  # as generate() makes it, which then takes it as it is
    causal, window = _pattern(mask_function)
    end = q_offset + 1
    if causal and (attention_mask is None or _is_full(attention_mask, kv_offset, end)):
        valid = torch.as_tensor(end - kv_offset, device=device).clamp(max=kv_length)
        lengths = valid.to(torch.int32).expand(batch_size).contiguous()
        setattr(mask, _KEYS, (lengths, window, mask._version))
    return mask


_KEYS = "kbtool_keys"
"""Attribute of a mask: the lengths and the window that it stands for, and its version then."""


def _pattern(mask_function: Callable[..., Any]) -> tuple[bool, int | None]:
    """Whether a mask is causal, with or without a sliding window, and nothing else; the window."""
    if mask_function is causal_mask_function:
        return True, None
    if torch.compiler.is_compiling():
        return False, None
    inside = _enclosed(mask_function)
    parts = inside[0] if inside and isinstance(inside[0], tuple) else ()
    names = [part.__qualname__.partition(".")[0] for part in parts]
    if names != ["sliding_window_overlay", "causal_mask_function"]:
        return False, None
    return True, _enclosed(parts[0])[0]


def _enclosed(function: Callable[..., Any]) -> list[Any]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def _is_full(attention_mask: Tensor, start: int, end: int | Tensor) -> bool:
    """Whether a 2D mask hides no key before ``end``. A compiler cannot know."""
    if torch.compiler.is_compiling():
        return False
    has_all = attention_mask.shape[1] >= int(end)  # Transformers masks the columns that it lacks
    return has_all and bool(attention_mask[:, int(start) : int(end)].all())


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
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers calls it: ``query`` is ``(B, H, Sq, D)``, the result ``(B, Sq, H,
    D)``.

    ``s_aux`` are the sinks. ``attention_mask`` is what :func:`make_mask` made, or a mask that the
    caller gave.

    Raises:
        ValueError: If the model passes an option that is not known to leave the result alone.
    """
    plain = softcap is None and s_aux is None
    _check_options(module, options if plain else {**options, "position_bias": position_bias})
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    queries = query.shape[2]
    sinks = None if s_aux is None else s_aux.float()
    given: dict[str, Any] = {"scale": scaling, "softcap": softcap, "sinks": sinks}
    if not dropout and position_bias is None and _is_served(query, key, value, s_aux):
        keys = _keys_of(attention_mask)
        if queries == 1 and (attention_mask is None or keys):
            lengths, window = keys or (None, None)
            out = split_k_attention(
                query, key, value, causal=True, kv_lengths=lengths, window=window, **given
            )
            return out.transpose(1, 2).contiguous(), None
        if not plain and is_causal and attention_mask is None:
            # Without a mask SDPA's is the causal one of an empty cache, whose rest is not used.
            key, value = key[:, :, :queries], value[:, :, :queries]
            out = split_k_attention(query, key, value, causal=True, **given)
            return out.transpose(1, 2).contiguous(), None
    if plain:
        done: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
            is_causal=is_causal, position_bias=position_bias, **options,
        )  # fmt: skip
        return done
    if attention_mask is None and is_causal and queries > 1:
        ones = torch.ones(queries, key.shape[2], dtype=torch.bool, device=query.device)
        attention_mask = ones.tril()
    return _step_by_step(query, key, value, attention_mask, dropout, **given), None


_HARMLESS = {
    *TransformersKwargs.__annotations__,
    "sliding_window",  # in the mask
    "cache_position",
    "deterministic",  # of ModernBERT, for FlashAttention
    "use_cache",
}
"""Options that SDPA passes over without a change of the result."""


def _check_options(module: nn.Module, options: dict[str, Any]) -> None:
    unknown = [name for name, option in options.items() if option is not None]
    unknown = [name for name in unknown if name not in _HARMLESS]
    if unknown:
        raise ValueError(
            f"{type(module).__name__} passes `{'`, `'.join(unknown)}` to its attention, which"
            " kbtool does not take: use the attention implementation sdpa or eager for this model"
        )


def _is_served(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None) -> bool:
    """Whether the operator takes these tensors: it has no gradients, and on CUDA not all types."""
    tensors = [query, key, value] if sinks is None else [query, key, value, sinks]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    columns = query.shape[3]
    fits = not query.is_cuda or (columns <= 256 and query.dtype != torch.float32)
    return fits and columns == value.shape[3]


def _keys_of(mask: Tensor | None) -> tuple[Tensor, int | None] | None:
    """The lengths and the window of a mask of :func:`make_mask` that nobody edited."""
    if mask is None or not hasattr(mask, _KEYS):
        return None
    lengths, window, version = getattr(mask, _KEYS)
    # A compiler cannot compare versions.
    if not torch.compiler.is_compiling() and mask._version != version:
        return None
    return lengths, window


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
