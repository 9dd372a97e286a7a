"""Small random models of Transformers give the same tokens with and without the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attention_rule import ARCHITECTURE
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
# Of models that choose keys by an index.
INDEXED = {
    **{key: size for key, size in SMALL.items() if key != "head_dim"},
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "qk_nope_head_dim": 8,
    "index_topk": 4,
    "index_head_dim": 16,
    "index_n_heads": 2,
}
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
    prompt = prompt.to(model.device)
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


@pytest.mark.gpu
@pytest.mark.skipif(ARCHITECTURE is None, reason="no CUDA card that the kernel is built for")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_on_a_card_is_as_exact_as_without_the_operator(
    calls: list[Tensor], family: str, dtype: torch.dtype
) -> None:
    model, theirs = model_of(family).to("cuda"), FAMILIES[family][2]
    tokens, exact = tokens_and_scores(model, theirs, "static")  # in float32
    model.to(dtype)

    def error(implementation: str) -> float:
        """Of the logits after each of these tokens, the root of the mean square."""
        model.set_attn_implementation(implementation)
        cache = transformers.StaticCache(config=model.config, max_cache_len=PROMPT + NEW)
        parts = [tokens[:, :PROMPT], *tokens[:, PROMPT:-1].split(1, dim=1)]
        with torch.no_grad():
            logits = [model(part, past_key_values=cache).logits[:, -1] for part in parts]
        return (torch.stack(logits) - exact).square().mean().sqrt().item()

    noise = error(theirs)
    assert not calls
    assert error(integration.NAME) <= 1.5 * noise
    assert len([q for q in calls if q.shape[2] == 1]) == SMALL["num_hidden_layers"] * (NEW - 1)


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
    check_attention(calls, mask, of_the_operator=False)


def decoding_mask(**change: Any) -> Tensor:
    """The mask of one query over the first 5 keys of a static cache of 9, for two entries."""
    given = {"batch_size": 2, "q_length": 1, "kv_length": 9, "q_offset": 4}
    return integration.make_mask(**{**given, "allow_is_causal_skip": False, **change})


def check_attention(
    calls: list[Tensor], mask: Tensor, *, of_the_operator: bool, columns: int = 32
) -> None:
    q = torch.randn(2, 4, 1, 32)
    k, v = torch.randn(2, 2, mask.shape[3], 32), torch.randn(2, 2, mask.shape[3], columns)
    out, _ = integration.attend(module_of(groups=2), q, k, v, mask, scaling=0.2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, scale=0.2, enable_gqa=True
    )
    torch.testing.assert_close(out, expected.transpose(1, 2))
    assert len(calls) == of_the_operator


def module_of(groups: int) -> Any:
    module: Any = torch.nn.Module()
    module.num_key_value_groups = groups
    return module


def test_a_causal_mask_is_the_operators(calls: list[Tensor]) -> None:
    mask = decoding_mask()
    assert mask[0, 0, 0].tolist() == [True] * 5 + [False] * 4
    check_attention(calls, mask, of_the_operator=True)


def test_values_of_another_head_dimension_are_sdpas(calls: list[Tensor]) -> None:
    check_attention(calls, decoding_mask(), of_the_operator=False, columns=16)


@pytest.mark.parametrize("inference_mode", [False, True])
def test_a_mask_edited_in_place_is_sdpas(calls: list[Tensor], inference_mode: bool) -> None:
    with torch.inference_mode(inference_mode):
        mask = decoding_mask(batch_size=1)
        mask[:, :, :, 1:3] = False
        check_attention(calls, mask, of_the_operator=False)


def test_columns_that_a_2d_mask_lacks_are_masked(calls: list[Tensor]) -> None:
    mask = decoding_mask(attention_mask=torch.ones(2, 3, dtype=torch.bool))
    assert mask[0, 0, 0].tolist() == [True] * 3 + [False] * 6
    check_attention(calls, mask, of_the_operator=False)


def test_a_window_is_that_of_the_mask(calls: list[Tensor]) -> None:
    from transformers.masking_utils import sliding_window_causal_mask_function

    mask = decoding_mask(mask_function=sliding_window_causal_mask_function(3), local_size=3)
    assert mask[0, 0, 0].tolist() == [False] * 2 + [True] * 3 + [False] * 4
    check_attention(calls, mask, of_the_operator=True)


@pytest.mark.parametrize("edited", [False, True])
def test_a_mask_made_before_a_compiled_step(calls: list[Tensor], edited: bool) -> None:
    from transformers.masking_utils import sliding_window_causal_mask_function

    torch.compiler.reset()
    q, k = torch.randn(2, 4, 1, 32), torch.randn(2, 2, 9, 32)
    hidden = torch.arange(9) == 3
    mask = decoding_mask(mask_function=sliding_window_causal_mask_function(3), local_size=3)

    def step(mask: Tensor) -> Tensor:
        mask = mask & ~hidden if edited else mask
        return integration.attend(module_of(groups=2), q, k, k, mask)[0]

    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, k, mask & ~hidden if edited else mask, enable_gqa=True
    )
    out = torch.compile(step, fullgraph=True, backend="eager")(mask)
    torch.testing.assert_close(out, expected.transpose(1, 2))
    assert len(calls) == (not edited)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_a_model_that_edits_the_mask_gives_the_same_tokens(cache: str) -> None:
    config = transformers.DogeConfig(**{**SMALL, "keep_window_size": 8})
    torch.manual_seed(7)
    model = transformers.DogeForCausalLM(config).eval()
    tokens, logits = tokens_and_scores(model, "sdpa", cache)
    ours, our_logits = tokens_and_scores(model, integration.NAME, cache)
    assert torch.equal(ours, tokens)
    torch.testing.assert_close(our_logits, logits)


def test_a_model_that_adds_columns_to_the_mask_gives_the_same_logits() -> None:
    config = transformers.DeepseekV4Config(
        **{**INDEXED, "num_key_value_heads": 1, "sliding_window": 8, "head_dim": 16}
    )
    torch.manual_seed(7)
    model = transformers.DeepseekV4ForCausalLM(config).eval()
    logits = [decoded(model, implementation) for implementation in ("eager", integration.NAME)]
    torch.testing.assert_close(logits[1], logits[0])


def decoded(model: Any, implementation: str) -> Tensor:
    """The logits of one token after a prefill."""
    model.set_attn_implementation(implementation)
    ids = torch.arange(2, 44).view(2, 21)
    with torch.no_grad():
        cache = model(ids[:, :20], use_cache=True).past_key_values
        logits: Tensor = model(ids[:, 20:], past_key_values=cache).logits
    return logits


def test_a_model_with_an_option_that_the_operator_lacks_is_refused(calls: list[Tensor]) -> None:
    model = transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**INDEXED)).eval()
    with pytest.raises(ValueError, match=r"DeepseekV32Attention passes `indices`.*sdpa or eager"):
        decoded(model, integration.NAME)
    assert not calls


def test_options_of_other_implementations_are_passed_over(calls: list[Tensor]) -> None:
    q = torch.randn(2, 4, 1, 32)
    given = {"deterministic": False, "use_cache": True, "sliding_window": 9, "indices": None}
    integration.attend(module_of(groups=1), q, q, q, None, **given)
    assert len(calls) == 1


def test_a_position_bias_with_sinks_is_refused(calls: list[Tensor]) -> None:
    q = torch.randn(2, 4, 1, 32)
    with pytest.raises(ValueError, match="passes `position_bias`"):
        integration.attend(
            module_of(groups=1), q, q, q, None, s_aux=torch.zeros(4), position_bias=q @ q.mT
        )


@pytest.mark.parametrize("trained", ["k_proj", "v_proj", "sinks"])
def test_a_part_of_a_model_still_trains(calls: list[Tensor], trained: str) -> None:
    model = model_of("gpt-oss, sinks and window").train()
    model.set_attn_implementation(integration.NAME)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    ids = torch.randint(2, SMALL["vocab_size"], (2, 9))
    model(ids, labels=ids).loss.backward()
    assert all((p.grad is not None) == (trained in name) for name, p in model.named_parameters())


@pytest.mark.parametrize(("dtype", "columns"), [(torch.float32, 64), (torch.float16, 320)])
def test_what_the_operator_lacks_on_cuda_is_sdpas(
    calls: list[Tensor], dtype: torch.dtype, columns: int
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 4, 1, columns, dtype=dtype, device="cuda")
        k = torch.empty(2, 2, 9, columns, dtype=dtype, device="cuda")
        out, _ = integration.attend(module_of(groups=2), q, k, k, None)
    assert out.shape == (2, 1, 4, columns)
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
