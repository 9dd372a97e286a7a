"""Small random models of Transformers give the same tokens with and without the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import kbtool.attention

transformers = pytest.importorskip(
    "transformers", reason="no transformers here: pip install '.[transformers]'"
)
from kbtool.integrations import transformers as integration  # noqa: E402

PROMPT, NEW = 21, 24
SMALL = {
    "vocab_size": 211,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
# Family → class, what differs from SMALL, and what Transformers computes it with.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama, GQA": ("Llama", {}, "sdpa"),
    "llama, MHA": ("Llama", {"num_key_value_heads": 4}, "sdpa"),
    "mistral, window": ("Mistral", {"sliding_window": 16}, "sdpa"),
    "gemma2, softcap and window": (
        "Gemma2", {"sliding_window": 16, "attn_logit_softcapping": 2.0}, "eager",
    ),
    "gemma3, window": ("Gemma3", {"sliding_window": 16}, "sdpa"),
    "gpt-oss, sinks and window": ("GptOss", {"sliding_window": 16, **MOE}, "eager"),
    "phi3, 96 columns": ("Phi3", {"hidden_size": 384, "num_key_value_heads": 4}, "sdpa"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def calls(interface: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """The queries of the operator's calls, which run on the tests' own library."""
    seen: list[Tensor] = []

    def attention(q: Tensor, *arguments: Any, **options: Any) -> Any:
        seen.append(q)
        return interface.split_k_attention(q, *arguments, **options)

    monkeypatch.setattr(kbtool.attention, "_loaded", {"split_k_attention": attention})
    integration.register()
    yield seen


def model_of(family: str) -> Any:
    name, change, _ = FAMILIES[family]
    of_text = "Text" if name == "Gemma3" else ""
    config = getattr(transformers, f"{name}{of_text}Config")(**{**SMALL, **change})
    torch.manual_seed(7)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for layer_name, parameter in model.named_parameters():
        if layer_name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
        elif parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)  # logits far enough apart to tell tokens
    return model


def tokens_and_scores(
    model: Any, implementation: str, cache: str, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    model.set_attn_implementation(implementation)
    generator = torch.Generator().manual_seed(3)
    prompt = torch.randint(2, SMALL["vocab_size"], (2, PROMPT), generator=generator)
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt) if mask is None else mask,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        cache_implementation=cache,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return made.sequences, torch.stack(made.logits)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_gives_the_same_tokens(calls: list[Tensor], family: str, cache: str) -> None:
    model, theirs = model_of(family), FAMILIES[family][2]
    tokens, logits = tokens_and_scores(model, theirs, cache)
    assert not calls
    ours, our_logits = tokens_and_scores(model, integration.NAME, cache)
    assert torch.equal(ours, tokens)
    assert len(tokens[:, PROMPT:].unique()) > 5, "a model that repeats itself tells nothing"
    torch.testing.assert_close(our_logits, logits, rtol=1e-4, atol=1e-4 * logits.abs().max().item())
    layers = SMALL["num_hidden_layers"]
    decoded = [q for q in calls if q.shape[2] == 1]
    assert len(decoded) == layers * (NEW - 1)
    prefill = len(calls) - len(decoded)
    assert prefill <= (layers if theirs == "eager" else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_batch_gives_the_same_tokens(calls: list[Tensor], family: str) -> None:
    model, theirs = model_of(family), FAMILIES[family][2]
    mask = torch.ones(2, PROMPT, dtype=torch.long)
    mask[1, :6] = 0
    tokens, logits = tokens_and_scores(model, theirs, "static", mask)
    ours, our_logits = tokens_and_scores(model, integration.NAME, "static", mask)
    assert torch.equal(ours, tokens)
    torch.testing.assert_close(our_logits, logits, rtol=1e-4, atol=1e-4 * logits.abs().max().item())


@pytest.mark.parametrize("family", ["llama, GQA", "gpt-oss, sinks and window"])
def test_a_model_still_trains(calls: list[Tensor], family: str) -> None:
    model = model_of(family).train()
    model.set_attn_implementation(integration.NAME)
    ids = torch.randint(2, SMALL["vocab_size"], (2, 9))
    model(ids, labels=ids).loss.backward()
    assert not calls
    assert all(p.grad is not None for name, p in model.named_parameters() if "attn" in name)


def test_another_mask_than_a_causal_one_is_sdpas(calls: list[Tensor]) -> None:
    from transformers.masking_utils import chunked_causal_mask_function, sdpa_mask

    chunks = chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long))
    given = {"batch_size": 2, "q_length": 1, "kv_length": 11, "q_offset": 10, "local_size": 4}
    mask = integration.make_mask(**given, mask_function=chunks)
    assert torch.equal(mask, sdpa_mask(**given, mask_function=chunks))
    assert mask[0, 0, 0].tolist() == [False] * 8 + [True] * 3
    lengths = integration.make_mask(**given)
    assert lengths.dtype == torch.int32 and lengths.flatten().tolist() == [11, 11]


def test_a_batch_of_one_head_dimension_for_values_is_sdpas(calls: list[Tensor]) -> None:
    q, k, v = torch.randn(2, 4, 1, 32), torch.randn(2, 2, 9, 32), torch.randn(2, 2, 9, 16)
    module: Any = torch.nn.Module()
    module.num_key_value_groups = 2
    lengths = torch.tensor([5, 5], dtype=torch.int32).view(2, 1, 1, 1)
    out, _ = integration.attend(module, q, k, v, lengths, scaling=0.2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k[:, :, :5], v[:, :, :5], scale=0.2, enable_gqa=True
    )
    torch.testing.assert_close(out, expected.transpose(1, 2))
    assert not calls


@pytest.mark.parametrize("family", ["llama, GQA", "gpt-oss, sinks and window"])
def test_a_step_of_decoding_compiles_as_one_graph(calls: list[Tensor], family: str) -> None:
    torch.compiler.reset()
    model = model_of(family)
    model.set_attn_implementation(integration.NAME)
    ids = torch.randint(2, SMALL["vocab_size"], (2, 30))
    logits = {}
    for compiled in (False, True):
        cache = transformers.StaticCache(config=model.config, max_cache_len=40)
        step = torch.compile(model, fullgraph=True, backend="eager") if compiled else model
        with torch.no_grad():
            model(ids[:, :29], cache=cache)
            calls.clear()
            logits[compiled] = step(ids[:, 29:], cache=cache).logits
        assert [q.shape[2] for q in calls] in (
            [1],
            [1, 1],
        )  # a compiler cannot tell a window's mask
    torch.testing.assert_close(logits[True], logits[False])
