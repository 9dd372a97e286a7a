"""The step kind ``build``: compile a kernel for a target."""

from __future__ import annotations

from typing import ClassVar, Literal

from kbtool.model.base import HowMany, KernelId
from kbtool.model.kinds.base import Bytes, Count, ResultBase, Sha256, StepBase


class BuildStep(StepBase):
    """Build a kernel for a target with ninja."""

    judges: ClassVar[bool] = True
    prepares: ClassVar[bool] = True

    kind: Literal["build"]
    target: str = "auto"
    """A target of the manifest; auto takes cuda where there are a card, nvcc and CUDA sources."""
    specialisation: str = ""
    """A specialisation of the target, to be built alone; all of the target where empty. Later steps
    leave out cases that it does not take."""
    jobs: Count = 0
    """Compilers at once; 0 takes one a core."""


class BuildResult(ResultBase):
    """What a build step made."""

    type: Literal["build"] = "build"
    kernel: KernelId
    target: str
    key: str
    """Hash of sources, flags, compiler, torch, architecture: the name of the build folder."""
    artifact: str
    """File name of the library, or of the list of modules of a target in Python."""
    sha256: Sha256
    """Hash of that file: what validate and benchmark must find."""
    bytes: Bytes
    warm: bool
    """Whether it was there already and no compiler ran."""
    reused: HowMany = 0
    """Objects that earlier builds had left; their sources were not compiled again."""
    compiler: str
    flags: list[str]
    sources: dict[str, Sha256]
    """File → hash."""
    linked: dict[str, Sha256] = {}
    """File that the manifest's ``link_flags`` name → hash."""
    packages: dict[str, str] = {}
    """Installed package that the target needs → version."""
    specialisation: str = ""
    """The specialisation of the target that was built alone; empty where all of it was."""
