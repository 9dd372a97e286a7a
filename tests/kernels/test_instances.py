"""The list of compiled kernel instances agrees with the sources and with kernel.yaml."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from attention_rule import FOLDER, MANIFEST

pytestmark = pytest.mark.slow

TARGET = MANIFEST.targets["cuda"]
EVERY_SOURCE = {*TARGET.sources, *itertools.chain(*TARGET.architecture_sources.values())}
NO_INSTANCE = {"cuda/wgmma/count_clusters.cu", "cuda/merge_outputs.cu"}
"""CUDA sources that are no kernel of the list: what plans ask a card, and merging outputs."""


def listed() -> dict[str, str]:
    """Source of an instance → its text, as ``instances.h`` has it."""
    program = """
    #include "cuda/instances.h"
    #define ROW(kernel, type, width) INSTANCE kernel type width;
    #define BASELINE(kernel, Params, type) BASELINE kernel Params type;
    KBTOOL_INSTANCES(ROW) KBTOOL_BASELINES(BASELINE)
    """
    done = subprocess.run(
        ["c++", "-E", "-P", "-x", "c++", "-", f"-I{FOLDER}"],
        input=program, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    sources: dict[str, str] = {}
    for entry in done.stdout.split(";"):
        match entry.split():
            case ["INSTANCE", kernel, dtype, width]:
                header = kernel.split("_")[0]
                folder = "wgmma" if header == "wgmma" else "fused"
                source = f"cuda/{folder}/{kernel}_{dtype}_d{width}.cu"
                row = f"KBTOOL_DEFINE_INSTANCE({kernel}, {dtype}, {width})\n"
                sources[source] = f'#include "{header}.cuh"\n\n{row}'
            case ["BASELINE", kernel, parameters, dtype]:
                header = "fa1" if kernel == "fa1" else "two_pass"
                source = f"cuda/baselines/{header}_{dtype}.cu"
                sources.setdefault(source, f'#include "{header}.cuh"\n\n')
                sources[source] += f"KBTOOL_DEFINE_BASELINE({kernel}, {parameters}, {dtype})\n"
    return sources


def test_each_listed_instance_has_its_source_and_no_other_is_there() -> None:
    folder = FOLDER / "cuda"
    there = {str(Path("cuda") / path.relative_to(folder)) for path in folder.rglob("*.cu")}
    sources = listed()
    assert len(sources) == 108
    assert there - NO_INSTANCE == set(sources)
    for source, text in sources.items():
        assert (FOLDER / source).read_text(encoding="utf-8") == text, source


def test_the_manifest_builds_each_listed_instance() -> None:
    built = {source for source in EVERY_SOURCE if source.endswith(".cu")}
    assert built - NO_INSTANCE == set(listed())
    wgmma = {source for source in listed() if source.startswith("cuda/wgmma/")}
    assert wgmma == {s for s in TARGET.architecture_sources["sm_90a"] if "wgmma_" in s}


def test_the_manifest_lists_each_header_and_no_other() -> None:
    headers = {
        str(Path("cuda") / path.relative_to(FOLDER / "cuda"))
        for suffix in ("h", "cuh", "inc")
        for path in (FOLDER / "cuda").rglob(f"*.{suffix}")
    }
    assert headers == {header for header in TARGET.headers if header.startswith("cuda/")}
