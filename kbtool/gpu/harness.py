"""The contract between a kernel's ``harness.py`` and the generic validation and benchmark.

kbtool knows nothing of any kernel's mathematics: the harness makes inputs from a case, computes
the float64 reference, runs torch's own implementation, and calls the operator under test.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device  # noqa: N812

Inputs = Mapping[str, Any]
FUNCTIONS = ("make_inputs", "reference", "baseline", "call", "arms", "workspace_bytes", "work")
NAMES = ("SUBJECT", "BASELINE_ARM", "PEERS")


class HarnessError(Exception):
    """A harness that breaks the contract; the message says how."""


class Harness(Protocol):
    """What ``harness.py`` of a kernel defines, at module level."""

    SUBJECT: str
    """The arm of ``arms`` that runs the library."""
    BASELINE_ARM: str
    """The peer that ratios are taken against."""
    PEERS: Sequence[str]
    """The names of all peers that there can be; a literal, so that a plan can read them without
    running the harness."""

    def make_inputs(self, case: Mapping[str, Any], *, device: Device, seed: int) -> dict[str, Any]:
        """Fresh random inputs of a case; what must not be read is poisoned."""

    def reference(self, inputs: Inputs) -> dict[str, Tensor]:
        """Every output in float64, computed by other means than the operator's."""

    def baseline(self, inputs: Inputs) -> dict[str, Tensor]:
        """Every output by torch's own implementation at the inputs' precision: the yardstick."""

    def call(
        self, inputs: Inputs, *, variant: str | None = None, poison: bool = True
    ) -> dict[str, Tensor]:
        """Every output by the operator; with ``poison``, into buffers filled with NaN."""

    def arms(
        self, inputs: Inputs, variants: Sequence[str] = (), peers: Sequence[str] = ()
    ) -> dict[str, Callable[[], Any] | str]:
        """What to time in turn, by name: the library, and an arm for each of ``variants`` and of
        ``peers``. A call returns the first output, or a tuple that begins with it; a string says
        why there is none."""

    def workspace_bytes(self, inputs: Inputs, variant: str | None = None) -> int:
        """Memory that the operator needs beside inputs and outputs."""

    def work(self, case: Mapping[str, Any]) -> dict[str, int]:
        """``bytes``: the least that the case has to move; ``flops``: the operations it needs."""


class HarnessWithErrorScale(Harness, Protocol):
    """A harness of an operator whose outputs are sums of terms larger than themselves."""

    def error_scale(self, inputs: Inputs) -> dict[str, Tensor]:
        """Output → the magnitudes of what its elements are sums of, for the outputs where they are
        not those of the largest element; each broadcasts to its output."""


class HarnessWithParts(Harness, Protocol):
    """A harness that also runs its operator part by part, for finding the part at fault."""

    def parts(
        self, inputs: Inputs, variant: str | None
    ) -> dict[str, Callable[[], tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]]]:
        """Part → what runs it alone, on operands known to be good: it returns outputs, reference
        and baseline, each as the functions above do. What cannot run apart is left out."""


class HarnessWithSettings(Harness, Protocol):
    """A harness of an operator that chooses a setting by a table, which can be measured."""

    SETTING: str
    """What is set, in the operator's own word."""
    TABLE: str
    """The table's file, in the kernel's folder."""

    def settings(self, inputs: Inputs, variant: str) -> tuple[str, dict[str, Inputs]]:
        """What the library takes by itself, and for each setting worth timing, that one too, the
        inputs that ask for it."""

    def row(self, case: Mapping[str, Any], variant: str) -> Hashable | None:
        """What the table tells calls apart by, for this case; ``None`` where nothing is tabled."""

    def tabled(self, table: str, best: Mapping[Hashable, str]) -> str:
        """The table with these settings in it, by row."""


def error_scale_of(harness: Harness, inputs: Inputs) -> dict[str, Tensor]:
    """Output → the error scale of its elements, where the harness knows one."""
    if not hasattr(harness, "error_scale"):
        return {}
    return cast("HarnessWithErrorScale", harness).error_scale(inputs)


def load_harness(path: Path) -> Harness:
    """Import a kernel's harness.

    Raises:
        HarnessError: it is not there, does not import, lacks part of the contract, or has a name
            that the contract has changed.
    """
    module = load_module(path, f"kbtool_harness_{path.parent.name}")
    lacking = [name for name in (*FUNCTIONS, *NAMES) if not hasattr(module, name)]
    if lacking:
        raise HarnessError(f"{path.name} of {path.parent.name} lacks {', '.join(lacking)}")
    if hasattr(module, "terms") and not hasattr(module, "error_scale"):
        # Ignored, it would leave outputs that cancel with too narrow a tolerance.
        raise HarnessError(
            f"{path.name} of {path.parent.name} defines terms; rename it to error_scale"
        )
    harness = cast("Harness", module)
    if harness.BASELINE_ARM not in harness.PEERS:
        raise HarnessError(
            f"{path.name} of {path.parent.name}: BASELINE_ARM is {harness.BASELINE_ARM!r}, which is"
            f" none of its PEERS: {', '.join(harness.PEERS)}"
        )
    harness.work = _checked(harness.work)  # type: ignore[assignment, method-assign]
    return harness


def _checked(
    work: Callable[[Mapping[str, Any]], dict[str, int]],
) -> Callable[[Mapping[str, Any]], dict[str, int]]:
    """``work`` of a harness, which raises ``HarnessError`` where it returns no sound counts."""

    def whole(value: object) -> bool:
        return isinstance(value, int | float) and value >= 0 and value % 1 == 0

    def checked(case: Mapping[str, Any]) -> dict[str, int]:
        found = work(case)
        counts = found if isinstance(found, dict) else {}
        if not all(whole(counts.get(name)) for name in ("bytes", "flops")):
            raise HarnessError(
                f"work is to return bytes and flops, two whole numbers; it returns {found!r}"
            )
        return found

    return checked


def unknown_peer(wanted: Sequence[str], peers: Sequence[str]) -> str | None:
    """Which of the wanted peers is none, in words with those that there are, or ``None``."""
    unknown = [name for name in wanted if name not in peers]
    return f"the harness has no peer {unknown[0]!r}; it has {', '.join(peers)}" if unknown else None


def peers_named_in(path: Path) -> list[str] | None:
    """The peers of a harness as its text names them, without running it.

    ``None`` where it cannot be read so: then only its run can tell.
    """
    try:
        tree = ast.parse(path.read_bytes())
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PEERS":
                return [str(name) for name in ast.literal_eval(node.value)]
    except (OSError, SyntaxError, ValueError, TypeError):
        pass
    return None


class _UncachedLoader(SourceFileLoader):
    """Compiles the source as it stands. Cached byte code passes for current after an edit of the
    same size within a second."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_module(path: Path, name: str) -> ModuleType:
    """Import the Python file at ``path`` under ``name``.

    Raises:
        HarnessError: it is not there or does not import.
    """
    loader = _UncachedLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None or not path.is_file():
        raise HarnessError(f"{path} is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise HarnessError(
            f"{path.name} of {path.parent.name} does not import: {type(error).__name__}: {error}"
        ) from error
    return module
