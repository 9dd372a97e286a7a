"""How others' attention is called, on stand-ins that read their arguments as their authors say."""

from __future__ import annotations

import functools
from typing import Any

import peer_libraries
import pytest
import torch
import yaml
from attention_rule import FOLDER

from kbtool.gpu.harness import peers_named_in

D, HKV, H = 64, 2, 8


@pytest.fixture
def peers(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The peers with a stand-in for FlashInfer that runs here."""
    module = harness._PEERS
    stand_in = peer_libraries.flashinfer()
    monkeypatch.setattr(module, "_flashinfer_for", lambda inputs: stand_in)
    monkeypatch.setattr(module, "_flashinfer_workspace", lambda device, kernels: torch.empty(0))
    return module


def made(harness: Any, **case: Any) -> dict[str, Any]:
    fields = {"H": H, "Hkv": HKV, "D": D, "dtype": "float32", **case}
    return harness.make_inputs(fields, device=torch.device("cpu"), seed=3)


def assert_right(harness: Any, inputs: dict[str, Any], call: Any) -> None:
    wanted = harness.reference(inputs)["out"]
    torch.testing.assert_close(call().double(), wanted, rtol=0.0, atol=1e-5)


PAGED = pytest.mark.parametrize("peer", ["flashinfer_batch", "flashinfer_xqa"])


@PAGED
@pytest.mark.parametrize("lengths", [None, [1, 16, 17, 200], [200, 31, 32, 33]])
def test_every_key_of_the_pages_is_read_and_no_other(harness, peers, peer, lengths):
    inputs = made(harness, B=4, Sq=1, Skv=200, kv_lengths=lengths)
    assert_right(harness, inputs, peers.PEERS[peer](inputs))


BATCHES: dict[str, dict[str, Any]] = {
    "decoding": {"B": 4, "Sq": 1, "Skv": 200, "kv_lengths": [1, 16, 17, 200]},
    "tokens": {"B": 3, "Sq": 4, "Skv": 90, "kv_lengths": [90, 33, 16], "causal": True},
    "packed decoding": {"B": 3, "Sq": 1, "Skv": 90, "q_lengths": [1, 1, 1],
                        "kv_lengths": [90, 33, 7], "causal": True},
    "packed tokens": {"B": 2, "Sq": 3, "Skv": 90, "q_lengths": [3, 3], "kv_lengths": [90, 33],
                      "causal": True},
    "mixed": {"B": 4, "Sq": 40, "Skv": 90, "q_lengths": [1, 1, 40, 5],
              "kv_lengths": [90, 33, 64, 5], "causal": True},
    "chunk": {"B": 1, "Sq": 40, "Skv": 90, "causal": True},
}  # fmt: skip
TAKEN = {
    "flashinfer_batch": {"decoding", "packed decoding"},
    "flashinfer_prefill": {"tokens", "packed tokens", "mixed", "chunk"},
    "flashinfer_mixed": {"mixed"},
    "flashinfer_xqa": {"decoding", "tokens", "packed decoding", "packed tokens"},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "pages of 16": {"page_size": 16},
    "pages of 64": {"page_size": 64},
    "pages by heads": {"page_size": 16, "page_layout": "hnd"},
    "shared pages": {"page_size": 16, "shared_prefix": 16},
    "8 bits": {"page_size": 16, "kv_dtype": "float8_e4m3fn", "kv_scale": "tensor"},
    "8 bits in pages of 32": {"page_size": 32, "kv_dtype": "float8_e4m3fn"},
    "8 bits by heads": {"page_size": 16, "page_layout": "hnd", "kv_dtype": "float8_e4m3fn",
                        "kv_scale": "one"},
    "window": {"page_size": 16, "window": 20, "causal": True},
    "window of 8 bits": {"page_size": 16, "window": 20, "causal": True,
                         "kv_dtype": "float8_e4m3fn", "kv_scale": "tensor"},
    "softcap": {"page_size": 16, "softcap": 2.0},
    "other scale": {"page_size": 16, "scale": 0.3},
    "odd ratio": {"page_size": 16, "H": 6},
}  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("peer", TAKEN)
def test_flashinfer_attends_to_the_pages_of_the_case(harness, peers, peer, batch, arguments):
    """The pages lie in a drawn order among others that are full of NaN."""
    inputs = made(harness, **BATCHES[batch] | ARGUMENTS[arguments])
    call = harness.arms(inputs, (), [peer])[peer]
    if batch not in TAKEN[peer]:
        assert isinstance(call, str)
    elif peer == "flashinfer_xqa" and arguments == "softcap":
        assert call == "is not called with softcap"
    else:
        assert_right(harness, inputs, call)


@pytest.mark.parametrize("fields", [{}, {"kv_dtype": "float8_e4m3fn", "kv_scale": "tensor"}])
@PAGED
def test_keys_without_pages_are_put_into_pages_of_16(harness, peers, peer, fields):
    for batch in ("decoding", "packed decoding"):
        inputs = made(harness, **BATCHES[batch] | fields)
        assert_right(harness, inputs, harness.arms(inputs, (), [peer])[peer])


@pytest.mark.parametrize("batch", ["tokens", "packed tokens", "mixed"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_prompts_without_pages_have_their_keys_packed(harness, peers, batch, layout):
    inputs = made(harness, **BATCHES[batch], layout=layout)
    arms = harness.arms(inputs, (), ["flashinfer_prefill"])
    assert_right(harness, inputs, arms["flashinfer_prefill"])


def test_a_plan_names_the_pages_of_the_block_table_in_its_order(harness, peers):
    """Worked out key by key from the table."""
    inputs = made(harness, **BATCHES["mixed"], page_size=16)
    table, lengths = inputs["block_table"].tolist(), inputs["kv_lengths"].tolist()
    begin, order, last = [0], [], []
    for row, length in zip(table, lengths, strict=True):
        entry: list[int] = []
        for key in range(length):
            if key % 16 == 0:
                entry.append(row[key // 16])
                last.append(0) if key == 0 else None
            last[-1] = key % 16 + 1
        order += entry
        begin.append(len(order))
    found = peers._pages(inputs).plan()
    assert [t.tolist() for t in found] == [begin, order, last]
    assert order != sorted(order)


def test_a_mixed_batch_is_planned_as_decoding_and_as_prefill(harness, peers):
    inputs = made(harness, **BATCHES["mixed"], page_size=16)
    peers.flashinfer_mixed(inputs)
    decode, prefill = peers._flashinfer_for(inputs).made
    assert [entry[::2] for entry in decode.entries] == [(1, 90), (1, 33)]
    assert [entry[::2] for entry in prefill.entries] == [(40, 64), (5, 5)]


@pytest.mark.parametrize(
    ("fields", "on"), [({"H": 8}, True), ({"H": 6}, False), ({"H": 2}, False),
                       ({"H": 2, "kv_dtype": "float8_e4m3fn"}, True)],
)  # fmt: skip
def test_decoding_is_on_tensor_cores_where_servers_ask_for_it(harness, peers, fields, on):
    inputs = made(harness, **BATCHES["decoding"], page_size=16, **fields)
    peers.flashinfer_batch(inputs)
    (wrapper,) = peers._flashinfer_for(inputs).made
    assert wrapper.options == {"use_tensor_cores": on}


PAGES = {"page_size": 16}
E4M3 = {"kv_dtype": "float8_e4m3fn"}


@pytest.mark.parametrize(
    ("peer", "batch", "fields", "reason"),
    [
        ("sdpa", "decoding", PAGES,
         "takes contiguous keys: copying pages together first is another problem"),
        ("sdpa", "decoding", E4M3, "is not called with keys and values of 8 bits"),
        ("sdpa", "mixed", {"window": 8}, "is not called with window and cu_seqlens_q"),
        ("flashinfer", "decoding", PAGES, "is flashinfer_batch or flashinfer_prefill"),
        ("flashinfer_batch", "decoding", PAGES | {"sinks": "random"}, "is not called with sinks"),
        ("flashinfer_batch", "tokens", PAGES, "decodes one query an entry"),
        ("flashinfer_batch", "decoding", PAGES | {"kv_lengths": [1, 0, 17, 200]},
         "an entry without keys has no page"),
        ("flashinfer_batch", "decoding", PAGES | E4M3 | {"kv_scale": "head"},
         "takes one scale for all heads"),
        ("flashinfer_batch", "packed decoding", PAGES | {"q_padding": 2},
         "is not called with rows after the last entry's"),
        ("flashinfer_batch", "decoding", PAGES | {"layout": "padded"}, "takes contiguous pages"),
        ("flashinfer_batch", "decoding", {"window": 8, "causal": True},
         "is called with a window over pages only"),
        ("flashinfer_prefill", "decoding", PAGES,
         "is for several queries an entry: decoding is flashinfer_batch"),
        ("flashinfer_prefill", "chunk", {},
         "is for batches and pages: one request is flashinfer"),
        ("flashinfer_prefill", "mixed", PAGES | {"q_lengths": [1, 0, 40, 5]},
         "an entry without queries has no page"),
        ("flashinfer_prefill", "tokens", E4M3, "is not called with keys and values of 8 bits"),
        ("flashinfer_mixed", "packed decoding", PAGES,
         "is for entries of one query that come before others, over pages"),
        ("flashinfer_xqa", "mixed", PAGES,
         "takes as many queries of each entry, up to 32 under a causal mask"),
        ("flashinfer_xqa", "chunk", PAGES,
         "takes as many queries of each entry, up to 32 under a causal mask"),
        ("flashinfer_xqa", "decoding", {"page_size": 1},
         "takes pages of 16, 32, 64, 128 keys, not 1"),
        ("flashinfer_xqa", "decoding", PAGES | {"kv_dtype": "float8_e5m2"},
         "takes float8_e4m3fn, not float8_e5m2"),
    ],
)  # fmt: skip
def test_a_peer_says_what_it_is_not_called_with(harness, peers, peer, batch, fields, reason):
    inputs = made(harness, **BATCHES[batch] | fields)
    assert harness.arms(inputs, (), [peer])[peer] == reason


# ---- FlashAttention-3 ----


@pytest.fixture
def fa3(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls FlashAttention-3's stand-in, of a build without the parts named."""
    module = harness._PEERS
    monkeypatch.setattr(module, "_on_hopper", lambda t: True)

    def arm(inputs: dict[str, Any], *without: str) -> tuple[Any, peer_libraries.FlashAttention3]:
        interface = peer_libraries.FlashAttention3(*without)
        monkeypatch.setattr(module, "_installed", lambda name, package: interface)
        return harness.arms(inputs, (), ["fa3"])["fa3"], interface

    return arm


def assert_close(harness: Any, inputs: dict[str, Any], out: Any) -> None:
    wanted = harness.reference(inputs)["out"]
    torch.testing.assert_close(out.double(), wanted, rtol=0.0, atol=0.02)


@pytest.mark.parametrize("lengths", [None, [3, 200, 17]])
def test_flash_attention_3_computes_the_schedule_of_lengths_once_before_its_calls(
    harness, fa3, lengths
):
    case = {"B": 3, "Sq": 2, "Skv": 200, "kv_lengths": lengths, "causal": True}
    assert fa3(made(harness, **case))[0] == "its wheel takes bfloat16, not float32"
    inputs = made(harness, **case, dtype="bfloat16")
    call, interface = fa3(inputs)
    for _ in range(3):
        assert_close(harness, inputs, call())
    assert interface.schedules == (lengths is not None)


@pytest.mark.parametrize(
    "fields", [{}, {"page_size": 16}, {"page_size": 64, "softcap": 2.0},
               {"window": 8, "page_size": 1}],
)  # fmt: skip
@pytest.mark.parametrize("batch", BATCHES)
def test_flash_attention_3_takes_packed_queries_and_a_full_build_pages(harness, fa3, batch, fields):
    inputs = made(harness, **BATCHES[batch] | {"causal": True} | fields, dtype="bfloat16")
    call, _ = fa3(inputs)
    assert_close(harness, inputs, call())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (PAGES, "its wheel is built without pages (FLASHATTENTION_DISABLE_PAGEDKV)"),
        ({"window": 8, "causal": True},
         "its wheel is built without windows (FLASHATTENTION_DISABLE_LOCAL)"),
        (E4M3, "takes keys and values of 8 bits beside queries of 8 bits only"),
        ({"sinks": "random"}, "is not called with sinks"),
    ],
)  # fmt: skip
def test_flash_attention_3_says_what_its_wheel_lacks(harness, fa3, fields, reason):
    inputs = made(harness, **BATCHES["decoding"], **fields, dtype="bfloat16")
    assert fa3(inputs, "PAGEDKV", "LOCAL")[0] == reason


def test_a_planned_batch_copies_no_key_past_a_length(harness, peers):
    keys = made(harness, B=2, Skv=500, kv_lengths=[20, 500])["k"]
    assert peers._paged(keys, [20, 500]).shape[0] == 2 + 32


@PAGED
def test_an_entry_without_keys_has_no_page(harness, peers, peer):
    inputs = made(harness, B=2, Sq=1, Skv=20, kv_lengths=[0, 20])
    assert peers.PEERS[peer](inputs) == "an entry without keys has no page"


@pytest.mark.parametrize("queries", [8, 64])
def test_several_queries_of_one_request_are_given_by_the_default_layout(harness, peers, queries):
    inputs = made(harness, Sq=queries, Skv=300, causal=True)
    assert_right(harness, inputs, peers.flashinfer(inputs))


def test_flashinfer_fa2_is_an_arm_only_if_flashinfer_would_pick_newer_kernels(
    harness, peers, monkeypatch
):
    inputs = made(harness, Sq=8, Skv=300, causal=True)
    assert isinstance(peers.flashinfer_fa2(inputs), str)
    monkeypatch.setattr(peers, "_on_hopper", lambda t: True)
    assert_right(harness, inputs, peers.flashinfer_fa2(inputs))
    assert isinstance(peers.flashinfer_fa2(made(harness, Sq=1, Skv=300)), str)


def test_the_harness_names_every_peer_that_there_is(harness):
    """It does so once more, in a literal that a plan reads."""
    ours = [harness.CONTIGUOUS, harness.UNQUANTISED, harness.APART]
    assert list(harness.PEERS) == [*harness._PEERS.PEERS, *ours]
    assert peers_named_in(FOLDER / "harness.py") == list(harness.PEERS)


def test_the_recipe_times_all_peers_but_this_kernel_itself():
    """Otherwise the best peer of a group could be this kernel in another call."""
    file = FOLDER / "../../patterns/P10-profiling-decision-tree.yaml"
    pattern = yaml.safe_load(file.read_text("utf-8"))
    (recipe,) = [recipe for recipe in pattern["recipes"] if recipe["name"] == "peers"]
    named = peers_named_in(FOLDER / "harness.py")
    others = [name for name in named or () if name not in {"contiguous", "unquantised", "apart"}]
    assert recipe["parameters"]["peers"]["default"].split(",") == others


def test_flex_attention_is_compiled_for_every_shape(harness, monkeypatch):
    """Past torch's own limit of 8 it would run uncompiled, and slowly."""
    import torch._dynamo

    graphs: list[Any] = []

    def counting(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counting))
    config = torch._dynamo.config
    limits = ("recompile_limit", "accumulated_recompile_limit")
    module = harness._PEERS
    module._compiled_flex.cache_clear()
    with config.patch({name: getattr(config, name) for name in limits}):
        compiled = module._compiled_flex()
        for keys in range(1, 11):
            q, k, v = (torch.randn(1, 2, 16 * keys, 16) for _ in range(3))
            compiled(q, k, v)
    module._compiled_flex.cache_clear()
    torch._dynamo.reset()
    assert len(graphs) == 10
