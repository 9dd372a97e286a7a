"""The contract between a kernel's ``harness.py`` and the generic validation and benchmark.

kbtool does not know what a kernel computes. The harness makes the inputs of a case, computes the
float64 reference, runs torch's own implementation and calls the operator under test.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import TypeAdapter, ValidationError

from kbtool.model.errors import first_problem
from kbtool.model.kinds.benchmark import OWN_METRICS
from kbtool.model.metric import FiniteValue, Metric

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device  # noqa: N812

Inputs = Mapping[str, Any]
FUNCTIONS = ("make_inputs", "reference", "baseline", "call", "work")
PEER = "torch"
"""The peer of a harness that defines no arms: its ``baseline``."""


_VALUE = TypeAdapter(FiniteValue)


class HarnessError(Exception):
    """The harness breaks the contract; the message says how."""


class Harness(Protocol):
    """What a kernel's ``harness.py`` defines at module level."""

    SUBJECT: str
    """The arm of ``arms`` that runs the library. Default: the kernel's id."""
    BASELINE_ARM: str
    """The peer that speedups are relative to. Default: the first of ``PEERS``."""
    PEERS: Sequence[str]
    """The names of all peers. A literal, so that a dry run can read them without running the
    harness. Default: ``PEER``."""

    def make_inputs(self, case: Mapping[str, Any], *, device: Device, seed: int) -> dict[str, Any]:
        """New random inputs of a case. Memory that must not be read holds NaN."""

    def reference(self, inputs: Inputs) -> dict[str, Tensor]:
        """Every output in float64, computed independently of the operator."""

    def baseline(self, inputs: Inputs) -> dict[str, Tensor]:
        """Every output by torch's own implementation in the dtype of the inputs."""

    def call(
        self, inputs: Inputs, *, variant: str | None = None, poison: bool = True
    ) -> dict[str, Tensor]:
        """Every output by the operator. With ``poison``, buffers hold NaN before the call."""

    def arms(
        self, inputs: Inputs, variants: Sequence[str] = (), peers: Sequence[str] = ()
    ) -> dict[str, Callable[[], Any] | str]:
        """The arms to time, by name: the library, and an arm for each of ``variants`` and
        ``peers``. A call returns the first output, or a tuple that begins with it. A string
        instead of a call is the reason why the arm cannot run. Default: ``call`` without poison,
        and ``baseline`` as the only peer."""

    def workspace_bytes(self, inputs: Inputs, variant: str | None = None) -> int:
        """Bytes of scratch memory that the operator needs besides inputs and outputs. Default: none
        are known to be needed."""

    def work(self, case: Mapping[str, Any]) -> dict[str, int]:
        """``bytes``: the least memory traffic of the case; ``flops``: its arithmetic operations."""


class HarnessWithErrorScale(Harness, Protocol):
    """A harness of an operator whose outputs are sums of terms that may cancel."""

    def error_scale(self, inputs: Inputs) -> dict[str, Tensor]:
        """Output → the magnitudes of the terms that its elements sum; each broadcasts to its
        output. Outputs without an entry use their largest element."""


class HarnessWithParts(Harness, Protocol):
    """A harness that can also run the operator part by part, to find the faulty part."""

    def parts(
        self, inputs: Inputs, variant: str | None
    ) -> dict[str, Callable[[], tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]]]:
        """Part → a function that runs the part alone on correct operands. It returns outputs,
        reference and baseline, each as the functions above do. Parts that cannot run alone are left
        out."""


class HarnessWithNeighbours(Harness, Protocol):
    """A harness that can make cases beside a listed one."""

    def neighbours(self, case: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Valid cases that differ from ``case`` a little: one more and one less of each size, other
        strides. Each has every field of the manifest. The order must not change between calls."""


class HarnessWithMetrics(Harness, Protocol):
    """A harness that measures something beside time."""

    METRICS: Mapping[str, Mapping[str, str]]
    """Metric → its ``unit``, and which value is ``better``: lower, higher or (default) neither."""

    def metrics(self, inputs: Inputs, arm: str, output: Tensor) -> Mapping[str, float]:
        """Metric → its value for one arm of a case, whose first output this is. Called after the
        arms are timed. A metric without a value is left out."""


class HarnessWithSettings(Harness, Protocol):
    """A harness of an operator that chooses a setting, which can be measured."""

    SETTING: str
    """What is set, in the operator's own word."""

    def settings(self, inputs: Inputs, variant: str) -> tuple[str, dict[str, Inputs]]:
        """The setting that the library chooses by default, and setting → inputs that request it,
        for each setting worth timing. The default is among them."""


def error_scale_of(harness: Harness, inputs: Inputs) -> dict[str, Tensor]:
    """Output → the error scale of its elements; empty if the harness defines none."""
    if not hasattr(harness, "error_scale"):
        return {}
    return cast("HarnessWithErrorScale", harness).error_scale(inputs)


def metrics_declared(harness: Harness) -> list[Metric]:
    """What the harness measures beside time; empty if it says nothing.

    Raises:
        HarnessError: the declaration is incomplete.
    """
    declared: object = getattr(harness, "METRICS", {})
    if not isinstance(declared, Mapping):
        raise HarnessError(f"METRICS must be a dict of metrics by name; it is {declared!r:.80}")
    found = []
    for name, about in declared.items():
        if not isinstance(about, Mapping):
            raise HarnessError(
                f"METRICS[{name!r}] is {about!r:.60}; write"
                f" {{{name!r}: {{'unit': 'B', 'better': 'lower'}}}}"
            )
        try:
            found.append(Metric.model_validate({"name": name, **about}))
        except ValidationError as error:
            raise HarnessError(f"METRICS[{name!r}]: {first_problem(error)}") from None
        if name in OWN_METRICS:
            raise HarnessError(f"METRICS[{name!r}] is kbtool's own: give it another name")
    if found and not hasattr(harness, "metrics"):
        raise HarnessError(
            "METRICS is defined, and metrics is not: define metrics(inputs, arm, output), which"
            " returns a dict of values by metric"
        )
    return found


def metrics_of(
    harness: Harness, declared: Sequence[Metric], inputs: Inputs, arm: str, output: Tensor
) -> dict[str, float]:
    """The values of the harness's own metrics for one arm of a case.

    Raises:
        HarnessError: it returns something else, a metric that it did not declare, or no number.
    """
    if not declared:
        return {}
    found: object = cast("HarnessWithMetrics", harness).metrics(inputs, arm, output)
    if not isinstance(found, Mapping):
        raise HarnessError(f"metrics of arm {arm!r} must return a dict; it returned {found!r:.80}")
    names = [metric.name for metric in declared]
    values: dict[str, float] = {}
    for name, value in found.items():
        if name not in names:
            raise HarnessError(
                f"metrics of arm {arm!r} returned {name!r}, which METRICS does not declare; it"
                f" declares {', '.join(names)}"
            )
        try:
            values[name] = _VALUE.validate_python(float(value))
        except (TypeError, ValueError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise HarnessError(
                f"metrics of arm {arm!r}, {name!r}: {why.removeprefix('Value error, ')}"
            ) from None
    return values


def inputs_of(
    harness: Harness, case: Mapping[str, Any], *, device: Device, seed: int
) -> dict[str, Any]:
    """New inputs of a case. The harness gets a copy: what it writes into the case must not change
    what is run and recorded."""
    return harness.make_inputs(deepcopy(case), device=device, seed=seed)


def arms_of(
    harness: Harness, inputs: Inputs, variants: Sequence[str]
) -> dict[str, Callable[[], Any] | str]:
    """The library's arms.

    Raises:
        HarnessError: the harness returns something else.
    """
    found: object = harness.arms(inputs, variants)
    if not isinstance(found, dict):
        raise HarnessError(f"arms must return a dict of calls by name; it returned {found!r:.80}")
    return dict(found)


def workspace_of(harness: Harness, inputs: Inputs, variant: str | None) -> int:
    """The scratch memory that the operator needs.

    Raises:
        HarnessError: the harness gives no number of bytes.
    """
    found = harness.workspace_bytes(inputs, variant)
    if not _whole(found):
        raise HarnessError(f"workspace_bytes must return whole bytes; it returned {found!r:.80}")
    return int(found)


def load_harness(path: Path) -> Harness:
    """Import a kernel's harness.

    Raises:
        HarnessError: the file is missing, does not import, lacks part of the contract, or uses an
            old name of the contract.
    """
    module = load_module(path, f"kbtool_harness_{path.parent.name}")
    missing = [name for name in FUNCTIONS if not hasattr(module, name)]
    if hasattr(module, "arms") != hasattr(module, "PEERS"):
        missing += [name for name in ("arms", "PEERS") if not hasattr(module, name)]
    if missing:
        raise HarnessError(f"{path.name} of {path.parent.name} lacks {', '.join(missing)}")
    if hasattr(module, "terms") and not hasattr(module, "error_scale"):
        # If it were ignored, outputs whose terms cancel would get too narrow a tolerance.
        raise HarnessError(
            f"{path.name} of {path.parent.name} defines terms; rename it to error_scale, or"
            " run `kbtool migrate`"
        )
    harness = cast("Harness", module)
    _add_defaults(harness, path.parent.name)
    try:
        metrics_declared(harness)
    except HarnessError as error:
        raise HarnessError(f"{path.name} of {path.parent.name}: {error}") from None
    if isinstance(harness.PEERS, str):
        raise HarnessError(
            f"{path.name} of {path.parent.name}: PEERS is {harness.PEERS!r}; write a tuple of"
            f" names: ({harness.PEERS!r},)"
        )
    if harness.BASELINE_ARM not in harness.PEERS:
        raise HarnessError(
            f"{path.name} of {path.parent.name}: BASELINE_ARM is {harness.BASELINE_ARM!r}, which is"
            f" none of its PEERS: {', '.join(harness.PEERS)}"
        )
    harness.work = _checked(harness.work)  # type: ignore[assignment, method-assign]
    return harness


def _add_defaults(harness: Harness, kernel: str) -> None:
    """What a harness need not define."""

    def arms(
        inputs: Inputs, variants: Sequence[str] = (), peers: Sequence[str] = ()
    ) -> dict[str, Callable[[], Any] | str]:
        def calls(variant: str | None) -> Callable[[], Any]:
            return lambda: _first(harness.call(inputs, variant=variant, poison=False))

        return {
            harness.SUBJECT: calls(None),
            **{name: calls(name) for name in variants},
            **{name: lambda: _first(harness.baseline(inputs)) for name in peers},
        }

    defaults = {
        "SUBJECT": kernel,
        "PEERS": (PEER,),
        "arms": arms,
        "workspace_bytes": lambda inputs, variant=None: 0,
    }
    for name, default in defaults.items():
        if not hasattr(harness, name):
            setattr(harness, name, default)
    if not hasattr(harness, "BASELINE_ARM") and harness.PEERS:
        harness.BASELINE_ARM = harness.PEERS[0]


def _first(outputs: Mapping[str, Any]) -> Any:
    return next(iter(outputs.values()))


def _checked(
    work: Callable[[Mapping[str, Any]], dict[str, int]],
) -> Callable[[Mapping[str, Any]], dict[str, int]]:
    """``work`` of a harness, wrapped to raise ``HarnessError`` if its result is invalid."""

    def checked(case: Mapping[str, Any]) -> dict[str, int]:
        found = work(deepcopy(case))
        counts = found if isinstance(found, dict) else {}
        if not all(_whole(counts.get(name)) for name in ("bytes", "flops")):
            raise HarnessError(
                f"work must return bytes and flops, two whole numbers; it returned {found!r:.80}"
            )
        return found

    return checked


def _whole(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 2**63 and value % 1 == 0


def unknown_peer(wanted: Sequence[str], peers: Sequence[str]) -> str | None:
    """An error message for the first unknown peer among ``wanted``, or ``None``."""
    unknown = [name for name in wanted if name not in peers]
    return f"the harness has no peer {unknown[0]!r}; it has {', '.join(peers)}" if unknown else None


def peers_named_in(path: Path) -> list[str] | None:
    """The peers of a harness, read from its source without running it.

    ``None`` if ``PEERS`` is not a literal; then the harness has to run to tell.
    """
    try:
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PEERS":
                return [str(name) for name in ast.literal_eval(node.value)]
    except (OSError, SyntaxError, ValueError, TypeError):
        return None
    return None if "PEERS" in text else [PEER]


class UncachedLoader(SourceFileLoader):
    """Always compiles the source. Python's byte code cache misses an edit that keeps the file size
    and happens within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_module(path: Path, name: str) -> ModuleType:
    """Import the Python file at ``path`` under ``name``.

    Raises:
        HarnessError: the file is missing or does not import.
    """
    loader = UncachedLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None or not path.is_file():
        raise HarnessError(f"{path} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        beside = f"{error.name}.py" if isinstance(error, ModuleNotFoundError) else path.name
        hint = f"; list {beside} in the target's sources, before what imports it"
        if beside == path.name or not path.with_name(beside).is_file():
            hint = ""
        raise HarnessError(
            f"{path.name} of {path.parent.name} does not import: {type(error).__name__}:"
            f" {error}{hint}"
        ) from error
    return module
