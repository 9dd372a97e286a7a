"""Kernels to begin with: each is valid, runs at once, and is to be replaced piece by piece."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

_STABLE = "-DTORCH_TARGET_VERSION=0x020a000000000000"


class Scaffold(NamedTuple):
    """What a kernel of one kind has of its own."""

    about: str
    """For help."""
    targets: list[str]
    """Lines of the manifest."""
    sources: dict[str, str]
    """File of the kernel → text of this folder."""

    on_card: bool = False
    """Whether only a card is worth timing."""

    @property
    def is_python(self) -> bool:
        """Whether the harness imports it."""
        return any(name.endswith(".py") for name in self.sources)


SCAFFOLDS = {
    "cpu": Scaffold(
        "C++ for the CPU, compiled by kbtool",
        [f"cpu: {{sources: [my_kernel.cpp], flags: [-O3, -march=native, {_STABLE}]}}"],
        {"my_kernel.cpp": "cpu.cpp"},
    ),
    "cuda": Scaffold(
        "CUDA, compiled by kbtool",
        [
            "cuda:",
            "  {sources: [binding.cpp, my_kernel.cu], architectures: [sm_80, sm_90, sm_100],",
            f"   flags: [-O2, {_STABLE}], cuda_flags: [-O3]}}",
        ],
        {"binding.cpp": "binding.cpp", "my_kernel.cu": "cuda.cu"},
        on_card=True,
    ),
    "triton": Scaffold(
        "Triton, and its interpreter where there is no card",
        [
            "triton: {sources: [my_kernel.py], packages: [triton], device: cuda}",
            "interpreted:",
            "  sources: [my_kernel.py]",
            "  packages: [triton]",
            '  env: {TRITON_INTERPRET: "1"}',
        ],
        {"my_kernel.py": "triton.py"},
        on_card=True,
    ),
    "python": Scaffold(
        "Python: torch.compile, or any package that you have installed",
        ["python: {sources: [my_kernel.py]}"],
        {"my_kernel.py": "python.py"},
    ),
    "cmake": Scaffold(
        "C++ built by CMake, as your own build system would",
        [
            "cmake:",
            "  sources: [CMakeLists.txt, my_kernel.cpp]",
            "  commands:",
            "    - cmake -S ../sources -B . -DCMAKE_BUILD_TYPE=Release",
            "    - cmake --build . --parallel",
            "  produces: libmy_kernel.so",
        ],
        {"my_kernel.cpp": "cpu.cpp", "CMakeLists.txt": "CMakeLists.txt"},
    ),
}
_IMPORT = "import my_kernel\n"


def kernel_files(name: str, like: str, number: int) -> dict[str, str]:
    """The files of a new kernel and of a pattern with its recipe, relative to the knowledge base.

    Args:
        name: the kernel's id.
        like: a key of ``SCAFFOLDS``.
        number: a free number of a pattern.
    """
    scaffold = SCAFFOLDS[like]
    harness = _text("harness.py")
    if not scaffold.is_python:
        harness = harness.replace(_IMPORT, "").replace("my_kernel.", "torch.ops.my_kernel.")
    manifest = _text("kernel.yaml").replace("TARGETS", "\n  ".join(scaffold.targets))
    pattern = f"P{number:02}"
    made = {
        f"kernels/{name}/kernel.yaml": manifest,
        f"kernels/{name}/harness.py": harness,
        **{f"kernels/{name}/{file}": _text(text) for file, text in scaffold.sources.items()},
        f"patterns/{pattern}-{recipe_of(name)}.yaml": _text("pattern.yaml")
        .replace("PATTERN", pattern)
        .replace("NUMBER", str(number))
        .replace("RECIPE", recipe_of(name))
        .replace(", NEEDS", ", needs: [gpu]" if scaffold.on_card else ""),
    }
    return {
        path.replace("my_kernel", name): text.replace("my_kernel", name)
        for path, text in made.items()
    }


def recipe_of(kernel: str) -> str:
    """The name of the recipe of a new kernel."""
    return kernel.replace("_", "-")


def _text(name: str) -> str:
    return (files(__name__) / f"{name}.txt").read_text("utf-8")
