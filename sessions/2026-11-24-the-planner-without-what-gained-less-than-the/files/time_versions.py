"""Time several versions of the kernel in one process, their calls in turn.

    python time_versions.py VERSIONS NEW_FOLDER OUT SECONDS COUNT

VERSIONS/vN/kernels/split_k_attention is version N, its operators registered as kbtool_vN; v0 is
main. `again` is v0 once more: its ratio is the noise. NEW_FOLDER makes the inputs. Shapes are drawn
(seed 20261125) and in no case set. Tidied after the first run, not run again in this form.
"""

import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.gpu.cuda_clock import CudaClock
from kbtool.gpu.harness import load_module
from kbtool.model.kernel import Kernel
from kbtool.store.tree import load_record

START = time.monotonic()
old_folder, new_folder, OUT, BUDGET = (
    Path(sys.argv[1]),
    Path(sys.argv[2]),
    Path(sys.argv[3]),
    float(sys.argv[4]),
)


def load(folder):
    """Build the bf16 part of a kernel and load it; its hash."""
    manifest = load_record(folder / "kernel.yaml", "kernel.yaml", Kernel).record
    plan = plan_build(
        manifest.specialised("cuda", "bf16"),
        folder,
        "cuda",
        Path(tempfile.mkdtemp()) / "build",
        "sm_90a",
    )
    built = build(plan, timeout=240)
    torch.ops.load_library(str(plan.library))
    return built.sha256


def say(record):
    with (OUT / "old-and-new.jsonl").open("a") as lines:
        lines.write(json.dumps(record) + "\n")


LAYOUTS = ["plain"] * 9 + [
    "kv of 4 more columns",
    "kv of 4 more columns",
    "q of 4 more columns",
    "q of 1 more column",
    "kv of 1 more column",
    "kv expanded over the batch",
]


def drawn(seed, count):
    draw = random.Random(seed)
    for n in range(count):
        D = draw.choice([64, 80, 96, 100, 128, 128, 128, 128, 256])
        Hkv = draw.choice([1, 2, 4, 8, 8, 16, 32])
        group = draw.choice([1, 1, 2, 4, 4, 6, 8])
        Sq = draw.choice([1, 1, 1, 1, 2, 4, 7, 16, 33, 64, 120, 256])
        B = draw.choice([1, 1, 2, 3, 5, 8, 16, 33, 64])
        Skv = int(2 ** draw.uniform(7, 17))
        case = {
            "name": f"drawn {n}",
            "B": B,
            "H": Hkv * group,
            "Hkv": Hkv,
            "Sq": Sq,
            "Skv": Skv,
            "D": D,
            "dtype": "bfloat16",
            "causal": Sq > 1,
        }
        lengths, layout = draw.random() < 0.15 and B > 1, draw.choice(LAYOUTS)
        if 4 * B * Hkv * Skv * D > 4 << 30 or B * Hkv * group * Sq * Skv > 2**33:
            continue
        if lengths:
            case["kv_lengths"] = [int(2 ** draw.uniform(3, math.log2(Skv))) for _ in range(B)]
        if layout == "kv expanded over the batch" and (B == 1 or lengths):
            layout = "plain"
        yield case, layout


SIXTEEN = {
    "B": 1,
    "H": 32,
    "Hkv": 8,
    "Sq": 16,
    "Skv": 16384,
    "D": 128,
    "dtype": "bfloat16",
    "causal": True,
}
ISSUE = [
    ({**SIXTEEN, "name": f"issue 28, {layout}"}, layout)
    for layout in dict.fromkeys(LAYOUTS)
    if "expanded" not in layout
]
KNOWN = [  # where the ablation or its notes saw a difference
    (
        {
            "name": name,
            "B": B,
            "H": H,
            "Hkv": Hkv,
            "Sq": Sq,
            "Skv": Skv,
            "D": D,
            "dtype": "bfloat16",
            "causal": Sq > 1,
        },
        "plain",
    )
    for name, (B, H, Hkv, Sq, Skv, D) in {
        "one entry of 128k": (1, 32, 8, 1, 131072, 128),
        "one entry of 512k": (1, 32, 8, 1, 524288, 128),
        "splits of two": (3, 16, 16, 120, 3694, 128),
        "short splits of two": (16, 24, 4, 16, 899, 64),
        "256 columns": (1, 32, 8, 64, 4096, 256),
        "short decode": (1, 32, 8, 1, 4096, 128),
    }.items()
]


def in_layout(inputs, layout):
    """The same inputs in another storage."""
    made = dict(inputs)
    if "expanded" in layout:
        for name in "kv":
            made[name] = inputs[name][:1].expand_as(inputs[name])
        return made
    if layout == "plain":
        return made
    who, more = layout.split(" of ")
    for name in who:
        t = inputs[name]
        held = t.new_empty(*t.shape[:3], t.shape[3] + int(more.split()[0]))
        made[name] = held[..., : t.shape[3]].copy_(t)
    return made


VERSIONS = [f"v{n}" for n in range(int(sys.argv[5]))]
shas = {v: load(old_folder / v / "kernels/split_k_attention") for v in VERSIONS}
harness = load_module(new_folder / "harness.py", "timed_harness")
OPS = {v: getattr(torch.ops, "kbtool_" + v).split_k_attention.default for v in VERSIONS}
OPS["again"] = OPS["v0"]


def call_of(op, inputs):
    options, (q, k, v) = harness._options(inputs), (inputs[name] for name in "qkv")
    return lambda: op(q, k, v, **options)


clock = CudaClock(9)
say(
    {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "sha256": shas,
        "read_gb_s": clock.read_bandwidth(),
        "protocol": clock.protocol,
        "built_s": round(time.monotonic() - START, 1),
    }
)


def time_case(case, layout):
    probe = in_layout(harness.make_inputs(case, device=clock.device, seed=1), layout)
    out, lse = call_of(OPS["v0"], probe)()
    for v in VERSIONS[1:]:
        now, now_lse = call_of(OPS[v], probe)()
        off = (now.float() - out.float()).abs().max().item()
        assert off < 0.05 and (now_lse - lse).nan_to_num(0).abs().max().item() < 0.01, (
            case,
            layout,
            v,
            off,
        )
    splits = {
        v: int(getattr(torch.ops, "kbtool_" + v).split_k_attention_plan(probe["q"], probe["k"])[0])
        for v in VERSIONS
    }
    del probe, out, lse, now, now_lse

    def make(number):
        inputs = in_layout(
            harness.make_inputs(case, device=clock.device, seed=100 + number), layout
        )
        return {name: call_of(op, inputs) for name, op in OPS.items()}

    timed = clock.time(make, harness.work(case)["bytes"])
    us = {name: [t.median_us, t.between_us] for name, t in timed.timings.items()}
    say({"case": case, "layout": layout, "splits": splits, "us": us, "absent": timed.absent})
    row = {v: us[v][1] / us["v0"][1] for v in [*VERSIONS[1:], "again"]}
    print(
        f"{case['name']:20} {layout:20} {us['v0'][1]:8.2f} "
        + " ".join(f"{r:.3f}" for r in row.values())
        + "  "
        + str(list(splits.values())),
        flush=True,
    )
    return layout, row


ratios = []
with torch.inference_mode():
    for case, layout in [*ISSUE, *KNOWN, *drawn(20261125, 150)]:
        if time.monotonic() - START > BUDGET:
            break
        try:
            ratios.append(time_case(case, layout))
        except (AssertionError, RuntimeError) as error:
            say({"case": case, "layout": layout, "failed": str(error)[:500]})
            print("FAILED", case["name"], layout, str(error)[:300], flush=True)
        torch.cuda.empty_cache()
for layout in dict.fromkeys(LAYOUTS):
    some = [row for of, row in ratios if of == layout]
    for v in some[0] if some else ():
        mean = math.exp(sum(math.log(r[v]) for r in some) / len(some))
        low, high = min(r[v] for r in some), max(r[v] for r in some)
        print(f"{layout}: {len(some)} shapes, {v} / v0 {mean:.4f}, {low:.3f} to {high:.3f}")
