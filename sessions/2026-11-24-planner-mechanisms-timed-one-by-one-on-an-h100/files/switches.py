"""Time the planner's mechanisms one by one, each left out by a switch of a patched build.

    python switches.py KERNEL_FOLDER OUT SECONDS [GRID_SECONDS] [--fresh]

KERNEL_FOLDER is kernels/split_k_attention of commit 3a3b768 with switches.patch applied. The
default and every arm are captured in one process from one library, so they differ in the plan
alone. An arm whose plan equals the default's is not timed. `--fresh` is the second call: fewer
switches, and shapes that were drawn after the rule was written.
"""

import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

from kbtool.gpu.build import build, plan_build
from kbtool.gpu.cuda_clock import CudaClock
from kbtool.gpu.harness import load_module
from kbtool.model.kernel import Kernel
from kbtool.store.tree import load_record

START = time.monotonic()
FRESH = "--fresh" in sys.argv
folder, OUT, BUDGET, GRID_END = (
    Path(sys.argv[1]),
    Path(sys.argv[2]),
    float(sys.argv[3]),
    float([*sys.argv[4:], "0"][0]) if sys.argv[4:] and sys.argv[4] != "--fresh" else 0.0,
)
SWITCHES = ["new_order", "never_tma"] if FRESH else [
    "no_table", "no_pairs", "pdl_never", "pdl_always", "always_separate", "never_separate",
    "no_even_splits", "one_wave_splits", "one_merge_lane", "whole_tiles", "no_ragged",
    "no_small_ring", "always_tma", "never_tma", "heads_inner", "tiles_inner",
]  # fmt: skip

manifest = load_record(folder / "kernel.yaml", "kernel.yaml", Kernel).record
kernel = manifest.specialised("cuda", "bf16")
scratch = Path(tempfile.mkdtemp())
plan = plan_build(kernel, folder, "cuda", scratch / "build", "sm_90a")
built = build(plan, timeout=400)
torch.ops.load_library(str(plan.library))
harness = load_module(folder / "harness.py", "switches_harness")
op = torch.ops.kbtool.split_k_attention.default
dump = scratch / "plan.txt"


def say(record, file):
    """Append a record to a file of JSON lines."""
    with (OUT / file).open("a") as lines:
        lines.write(json.dumps(record) + "\n")


def call_of(inputs, word, variant):
    """A call under a switch. The plan is made when the call is captured."""
    options, (q, k, v) = harness._options(inputs), (inputs[name] for name in "qkv")

    def call():
        os.environ["KBTOOL_ABL"] = word
        return op(q, k, v, **options, variant=variant)

    return call


def plan_text(inputs, word, variant=None):
    """The plan of a call under a switch."""
    os.environ["KBTOOL_ABL_DUMP"] = str(dump)
    dump.unlink(missing_ok=True)
    call_of(inputs, word, variant)()
    del os.environ["KBTOOL_ABL_DUMP"]
    return dump.read_text()


def drawn(seed, count, name):
    """Shapes that no case set holds."""
    draw = random.Random(seed)
    for n in range(count):
        D = draw.choice([64, 80, 96, 128, 128, 128, 256])
        Hkv = draw.choice([1, 2, 4, 8, 8, 16, 32])
        group = draw.choice([1, 1, 2, 4, 4, 6, 8])
        Sq = draw.choice([1, 1, 1, 1, 2, 4, 7, 16, 33, 64, 120, 256])
        B = draw.choice([1, 1, 2, 3, 5, 8, 16, 33, 64])
        Skv = int(2 ** draw.uniform(7, 17))
        case = {"name": f"drawn {n}", "B": B, "H": Hkv * group, "Hkv": Hkv, "Sq": Sq, "Skv": Skv}
        case |= {"D": D, "dtype": "bfloat16", "causal": Sq > 1}
        if 4 * B * Hkv * Skv * D > 8 << 30 or B * Hkv * group * Sq * Skv > 2**34:
            continue
        if draw.random() < 0.2 and B > 1:
            top = math.log2(Skv)
            case["kv_lengths"] = [int(2 ** draw.uniform(3, top)) for _ in range(B)]
        yield name, case


def listed():
    """The bf16 cases of the benchmarks."""
    sets = ("short_decode", "few_queries", "ragged", "seeds_benchmark", "long_decode", "prefill")
    for name in sets:
        for case in manifest.cases(name):
            if case.get("dtype") == "bfloat16":
                yield name, case


def in_turn(first, second):
    """Both lists, one of each in turn, so that a cut leaves some of both."""
    order = []
    while first or second:
        order += first[:1] + second[:1]
        first, second = first[1:], second[1:]
    return order


known = [*listed(), *drawn(20261124, 90, "drawn")]
if FRESH:
    rows = [(case, case["Sq"] * case["H"] // case["Hkv"]) for _, case in known]
    wanted = [pair for pair, (case, n) in zip(known, rows, strict=True)
              if case.get("kv_lengths") or n > 64]  # fmt: skip
    order = in_turn(wanted, list(drawn(777, 70, "fresh")))
else:
    order = in_turn([one for one in known if one[0] != "drawn"],
                    [one for one in known if one[0] == "drawn"])  # fmt: skip
clock = CudaClock(12)
header = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
header |= {"read_gb_s": clock.read_bandwidth(), "protocol": clock.protocol, "sha256": built.sha256}
say(header, "switches.jsonl")


def time_case(case_set, case):
    """The default, the default once more, and each arm whose plan differs."""
    probe = harness.make_inputs(case, device=clock.device, seed=1)
    base = plan_text(probe, "")
    arms = {"default": ("", None), "default_again": ("", None)}
    plans = {"default": base}
    for name, word, variant in [
        *((word, word, None) for word in SWITCHES),
        *((variant, "", variant) for variant in ("fused", "wgmma")),
    ]:
        text = plan_text(probe, word, variant)
        if text != base:
            arms[name], plans[name] = (word, variant), text
    ours = call_of(probe, "", None)()[0].float()
    for word, variant in arms.values():
        off = (call_of(probe, word, variant)()[0].float() - ours).abs().max().item()
        assert off < 0.05, (word, variant, off)
    del probe, ours

    def make(number):
        inputs = harness.make_inputs(case, device=clock.device, seed=100 + number)
        return {name: call_of(inputs, *arm) for name, arm in arms.items()}

    timed = clock.time(make, harness.work(case)["bytes"]).timings
    us = {name: [t.median_us, t.between_us] for name, t in timed.items()}
    say({"set": case_set, "case": case, "plans": plans, "us": us}, "switches.jsonl")


def time_splits(kv_heads, rows, Skv, D):
    """Both variants by their own choice and by each number of splits."""
    case = {"B": 1, "H": kv_heads * rows, "Hkv": kv_heads, "Sq": 1, "Skv": Skv, "D": D}
    case |= {"dtype": "bfloat16"}
    tried = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    counts = [n for n in tried if n * kv_heads <= 264 and Skv // n >= 32]
    arms = {f"{v}/{n}" if n else v: (v, n) for v in ("fused", "wgmma") for n in (None, *counts)}
    probe = harness.make_inputs(case, device=clock.device, seed=1)
    plans = {name: plan_text({**probe, "num_splits": n}, "", v) for name, (v, n) in arms.items()}
    default = plan_text(probe, "")
    del probe

    def make(number):
        inputs = harness.make_inputs(case, device=clock.device, seed=100 + number)
        return {name: call_of({**inputs, "num_splits": n}, "", v) for name, (v, n) in arms.items()}

    timed = clock.time(make, harness.work(case)["bytes"]).timings
    us = {name: [t.median_us, t.between_us] for name, t in timed.items()}
    shape = {"kv_heads": kv_heads, "rows": rows, "Skv": Skv, "D": D}
    say({**shape, "default": default, "plans": plans, "us": us}, "few-rows.jsonl")


with torch.inference_mode():
    for case_set, case in order:
        if time.monotonic() - START > BUDGET:
            break
        time_case(case_set, case)
        torch.cuda.empty_cache()
    clock = CudaClock(7)
    grid = [
        (kv_heads, rows, 2**power, D)
        for kv_heads in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        for rows in (1, 4, 8, 16)
        for power in range(8, 18)
        for D in (64, 128, 256)
        if 4 * kv_heads * 2**power * D <= 3 << 30
    ]
    random.Random(7).shuffle(grid)
    for shape in grid:
        if time.monotonic() - START > GRID_END:
            break
        time_splits(*shape)
        torch.cuda.empty_cache()
