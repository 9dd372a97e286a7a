"""The interface of a kind of step: plan, run, report and page."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from kbtool.gpu.build_plan import BuildPlan
from kbtool.model.ablation import Ablation
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.identity import Identity
from kbtool.model.kernel import GIVEN, CaseValue, Kernel
from kbtool.model.kinds import StepResult
from kbtool.model.kinds.base import ResultBase, StepBase, names_in
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.validate import ValidationResult, unvalidated
from kbtool.model.mutant import Mutant
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, StepStatus
from kbtool.model.words import many


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    status: StepStatus
    message: str
    """The outcome in one line."""
    result: StepResult | None = None
    error: str | None = None
    """The first real error, as printed."""
    output: str = ""
    """What the step printed; the symptoms of patterns are searched in it."""
    symptoms: str = ""
    """Lines in which symptoms are searched even if the step passed."""


@dataclass
class Context:
    """State shared by the steps of a run."""

    root: Path
    """The knowledge base."""
    kernel: Kernel | None
    machine: MachineInfo
    seed: int
    """Seed for steps that draw inputs and set no seed."""
    on_line: Callable[[str], None] = lambda _: None
    """Called with each output line of compilers and programs."""
    on_progress: Callable[[int, int, str], None] = lambda done, total, label: None
    """Called with items done, items in total, and the name of the last one."""
    on_waiting: Callable[[str], None] = lambda _: None
    """Called with what the step waits for."""
    on_tick: Callable[[], None] = lambda: None
    """Called several times a second while a child process runs."""
    on_found: Callable[[StepResult], None] = lambda _: None
    """Called with the results so far, which are recorded if the step is cut short."""
    plan: BuildPlan | None = None
    """The plan of the built library."""
    auto: bool = False
    """Whether the machine decided which target that is."""
    built: BuildResult | None = None
    """The artifact."""
    validated: list[ValidationResult] = field(default_factory=list)
    """Validations that passed in this run. A benchmark requires one."""
    identity: Identity = field(default_factory=Identity)
    """What the steps have read so far, by content."""
    on_identity: Callable[[Identity], None] = lambda _: None
    """Called when a step has read more."""
    mutants: list[tuple[str, Mutant]] = field(default_factory=list)
    """The kernel's mutants, each with the bug that it puts back: SESSION#bugs.ID."""
    ablations: list[tuple[str, Ablation]] = field(default_factory=list)
    """The kernel's ablations, each with the id of its pattern."""
    deadline: float = 0.0
    """When the step is stopped, by ``time.monotonic``."""
    expected_s: float = 0.0
    """How long the step is expected to take: by past runs here, or as its recipe declares."""
    run: str = ""
    """The id of the run, for those who wait for it; empty where there is no record."""
    wait: bool = True
    """Whether a step that measures waits for another run that does."""
    waited: float = 0.0
    """Seconds that the step has waited for other runs: they are none of its time."""

    def waited_for(self, seconds: float) -> None:
        """Put off the deadline by a wait for another run."""
        self.deadline += seconds
        self.waited += seconds

    def hold(self, identity: Identity) -> None:
        """Keep what a worker has read: later workers must read the same."""
        merged = self.identity.merged(identity)
        if merged != self.identity:
            self.identity = merged
            self.on_identity(merged)

    @property
    def remaining(self) -> float:
        """Seconds until the step is stopped."""
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def kernel_folder(self) -> Path:
        """The folder of the recipe's kernel."""
        return self.root / "kernels" / self.manifest.id

    @property
    def manifest(self) -> Kernel:
        """The recipe's kernel, as it was built."""
        if self.plan is not None:
            return self.plan.kernel
        if self.kernel is None:
            raise UsageError("the recipe names no kernel")
        return self.kernel

    def cases(self, case_sets: str) -> list[tuple[str, dict[str, CaseValue]]]:
        """(case set, case) of every case in a comma-separated list of sets.

        Raises:
            UsageError: the manifest has no such set.
        """
        names = names_in(case_sets)
        if not names:
            raise UsageError("no case set is named")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"case set {twice[0]} is named twice")
        try:
            return [(name, case) for name in names for case in self.manifest.cases(name)]
        except ValueError as error:
            raise UsageError(str(error)) from None

    def accepted_cases(
        self, case_sets: str, variant: str | None = None
    ) -> tuple[list[tuple[str, dict[str, CaseValue]]], int]:
        """The cases that the built target, or one variant of it, takes; how many it does not."""
        cases = self.cases(case_sets)
        if self.plan is None:
            return cases, 0
        target = self.manifest.targets[self.plan.target]
        accepted = [(name, case) for name, case in cases if target.takes(case, variant)]
        return accepted, len(cases) - len(accepted)

    def none_accepted(self, case_sets: str) -> Outcome:
        """How a step ends if the built target takes no case of the sets."""
        left_out = many(len(self.cases(case_sets)), "case")
        return Outcome("failed", f"the built target takes none of {left_out} of {case_sets}")

    def variants(self, wanted: str) -> list[str | None]:
        """The variants of the built target in a comma-separated list; ``None`` is the kernel's own
        choice, ``default`` in the list. Before anything is built, those of any target.

        Raises:
            UsageError: there is no such variant.
            MachineError: a machine with another card has it.
        """
        names = names_in(wanted)
        if self.plan is not None:
            target = self.manifest.targets[self.plan.target]
            offered = target.variants_for(self.plan.architecture)
            whose = f"this build, for {self.plan.target},"
        else:
            targets = self.kernel.targets.values() if self.kernel else ()
            offered = list(dict.fromkeys(name for target in targets for name in target.variants))
            whose = "the kernel"
        if names == ["all"]:
            return [None, *offered]
        for name in names:
            if name != "default" and name not in offered:
                missing = f"{whose} has no variant {name!r}; "
                if elsewhere := self._elsewhere(name):
                    raise MachineError(missing + elsewhere)
                raise UsageError(f"{missing}it has {', '.join(['default', *offered])}, or all")
        if not names:
            raise UsageError("no variant is named; default is the kernel's own choice")
        return [None if name == "default" else name for name in dict.fromkeys(names)]

    def _elsewhere(self, variant: str) -> str:
        """Which machine has a variant that the build for this one lacks; empty if it is no matter
        of the machine."""
        if self.plan is None:
            return ""
        targets = self.manifest.targets
        if found := targets[self.plan.target].variants.get(variant):
            return f"cards of {' or '.join(found.architectures)} have it"
        others = [name for name, target in targets.items() if variant in target.variants]
        if not self.auto or not others:
            return ""
        return f"target {others[0]} has it, which needs a card, nvcc and a torch with CUDA"

    def gate(self, variants: Sequence[str | None] = (None,)) -> Outcome | None:
        """A refusal unless the library has passed validation in this run, else ``None``."""
        if self.built is None or self.plan is None:
            return Outcome("refused", "nothing was built in this run")
        missing = unvalidated(self.built.sha256, variants, self.validated)
        if missing is None:
            return None
        return Outcome("refused", f"{missing} has not passed validation in this run")

    def chosen(
        self, case_sets: str, case: str, variant: str | None = None
    ) -> list[tuple[str, dict[str, CaseValue]]]:
        """The one case that ``case`` names or describes; if it is empty, every case of the sets
        that the built target, or one variant of it, takes.

        Raises:
            UsageError: there is no such set or field, or that case is not taken.
        """
        if not case:
            return self.accepted_cases(case_sets, variant)[0]
        named = [entry for entry in self.cases(case_sets) if entry[1]["name"] == case]
        try:
            one = named[0] if named else (GIVEN, self.manifest.case_from(case))
        except ValueError as error:
            raise UsageError(f"{error}; and no case of {case_sets} has that name") from None
        if self.plan and not self.manifest.targets[self.plan.target].takes(one[1], variant):
            what = f"variant {variant} of " if variant else ""
            raise UsageError(f"{what}target {self.plan.target} does not take the case {case!r}")
        return [one]

    def inside(self, name: str) -> Path:
        """The path ``name`` inside the knowledge base.

        Raises:
            UsageError: the path leads out of the knowledge base.
        """
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise UsageError(f"{name} leads out of the knowledge base")
        return path


class Table(NamedTuple):
    """A table of a report."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: set[int]
    """The columns to align right."""


class Invocation(NamedTuple):
    """The step and parameters of a result, for the command that repeats it."""

    step: str
    """The id of the step."""
    recipe: Recipe
    """With parameters not yet substituted."""
    parameters: Mapping[str, str]
    """The values of the parameters."""
    kernel: Kernel | None = None
    """The recipe's kernel as it is now."""


class Links(Protocol):
    """The links on the page of a run. The site implements them; pages of steps use them."""

    def json(self) -> str:
        """The same page as JSON."""

    def compare(self, arm: str) -> str:
        """The Compare page with an arm of this run selected."""

    def meanings(self, shown: Iterable[str]) -> str:
        """What these implementations are, folded up; empty where the kernel does not say."""

    def arms(self) -> Sequence[str]:
        """The implementations of the run's kernel, in the order of their colours."""

    def case_set(self, name: str) -> str:
        """The title of a case set, as plain text; its name where the kernel has it no more."""

    def pattern(self, pattern: str) -> str:
        """A link to a pattern, by its id."""

    def bug(self, reference: str) -> str:
        """A link to the bug SESSION#bugs.ID, by its title."""

    def mutant(self, bug: str, mutant: str) -> str:
        """A link to the edit of a mutant, or its name if the bug no longer has it."""


S = TypeVar("S", bound=StepBase)
R = TypeVar("R", bound=ResultBase)


class ResultKind(Generic[R]):
    """How one kind of result is shown.

    A kind whose result needs no extra text keeps the defaults.
    """

    result: type[R]
    """The model of the result."""
    failure_says_all: bool = False
    """Whether the message of a step that failed says no more than ``found``."""

    def found(self, result: R, status: StepStatus) -> str:
        """The result in the headline of a run; empty if the step's message says it already."""
        return ""

    def report(self, result: R, invocation: Invocation) -> Sequence[str | Table]:
        """The result on the terminal at the end of the run: lines and tables."""
        return ()

    def page(self, result: R, links: Links) -> str:
        """The result on the page of its run, as Markdown."""
        return ""


class StepKind(ResultKind[R], ABC, Generic[S, R]):
    """One kind of step. ``kbtool.steps`` lists all kinds."""

    @abstractmethod
    def plan(self, step: S, context: Context) -> list[str]:
        """What ``run`` would do, one line per action. Writes nothing."""

    @abstractmethod
    def run(self, step: S, context: Context) -> Outcome:
        """Run the step. Errors that a user can fix are raised as ``UserError``."""


def not_reached(count: int) -> str:
    """``; 3 not reached`` if a step was cut short, else empty."""
    return f"; {count} not reached" if count else ""
