"""The facts that the checks of ``kbtool doctor`` judge. ``None`` is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbtool.model.kernel import Kernel
from kbtool.model.run import MachineInfo

SECONDS = 3.5
"""What is not known after so long stays unknown: the command has 5 s, with its start."""


@dataclass(frozen=True)
class Compiler:
    """The C++ compiler, after it compiled and ran a small program."""

    works: bool
    error: str | None = None
    """The first line that says why not."""
    family: str | None = None
    """gcc or clang."""
    major: int | None = None
    new_abi: bool | None = None
    """Whether it compiles for the newer C++ ABI of libstdc++ (_GLIBCXX_USE_CXX11_ABI=1)."""
    glibcxx: str | None = None
    """The newest symbol version of its libstdc++, such as 3.4.30."""
    path: str | None = None


@dataclass(frozen=True)
class Toolkit:
    """nvcc and its toolkit."""

    version: str
    gcc: int | None = None
    """The newest GCC that it accepts."""
    clang: int | None = None
    """The newest clang that it accepts."""
    codes: tuple[str, ...] = ()
    """The architectures that it compiles for: sm_90."""
    host: tuple[str, int] | None = None
    """Family and major version of the compiler that it calls for host code."""
    host_there: bool = True
    """Whether that compiler is there."""
    path: str | None = None


@dataclass(frozen=True)
class Torch:
    """Torch, as a process that imports it sees it."""

    imports: bool | None = None
    """``None`` if it had not ended in time."""
    error: str | None = None
    numpy_error: str | None = None
    """What it says of a NumPy that it was not built for."""
    new_abi: bool | None = None
    architectures: tuple[str, ...] = ()
    """sm_90 and compute_90: what its own kernels were compiled for."""
    card_error: str | None = None
    """Why it cannot use the card."""
    needs_glibcxx: str | None = None
    """The newest symbol version of libstdc++ that its libraries need."""
    has_glibcxx: str | None = None
    """The newest that the libstdc++ has which this Python loads."""


@dataclass(frozen=True)
class Card:
    """A card, as nvidia-smi describes it."""

    uuid: str
    """Compared, never shown."""
    name: str
    persistent: bool | None = None
    compute_mode: str | None = None
    mig: bool = False
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    slowdowns: tuple[str, ...] = ()
    """The reasons of a lower clock that are active: sw_power_cap, hw_thermal_slowdown …"""
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    utilisation: int | None = None
    """Percent."""
    memory_used_mib: int | None = None
    processes: int = 0
    """Those that nvidia-smi lists: in a container none of others."""
    rows_pending: bool = False
    """Whether memory rows wait for a reset of the card to be replaced."""


@dataclass(frozen=True)
class Driver:
    """What nvidia-smi says."""

    version: str | None
    cuda: str | None
    """The newest CUDA version that the driver supports."""
    cards: tuple[Card, ...]
    error: str | None = None
    """What nvidia-smi says where it cannot reach the driver."""


@dataclass(frozen=True)
class Git:
    """Git, as it works in the knowledge base."""

    there: bool
    repository: bool | None = None
    refused: bool = False
    """Whether git refuses the folder, since it belongs to another user."""
    user: bool | None = None
    """Whether user.name is set."""


@dataclass(frozen=True)
class Base:
    """The knowledge base."""

    writable: bool
    kernels: Mapping[str, Kernel]
    findings: int = 0
    """The records that do not load."""
    first: str | None = None
    """The first of these."""


@dataclass(frozen=True)
class Room:
    """Free space of the disk of one folder."""

    what: str
    """The folder, in words."""
    free_bytes: int
    writable: bool
    temporary: bool = False
    path: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that the checks judge."""

    machine: MachineInfo
    minimum: Mapping[str, str] = field(default_factory=dict)
    """Package, or python → the least version that kbtool supports."""
    site_missing: str | None = None
    """A package that the site needs and that is not installed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment."""
    installs: str = "python -m pip install"
    """The command that installs Python packages into this environment."""
    system: str | None = None
    """The package manager of the system: apt-get, dnf …"""
    root: bool = False
    """Whether this process is the administrator's."""
    compiler: Compiler | None = None
    toolkit: Toolkit | None = None
    home_toolkit: str | None = None
    """The version of the toolkit that CUDA_HOME names; empty if there is no nvcc in it."""
    path_toolkit: str | None = None
    """The version of the nvcc that PATH leads to."""
    library_runtimes: tuple[str, ...] = ()
    """Major versions of the CUDA runtime libraries in the folders of LD_LIBRARY_PATH."""
    library_stubs: bool = False
    """Whether LD_LIBRARY_PATH leads to the toolkit's stub of the driver library."""
    library_torch: bool = False
    """Whether LD_LIBRARY_PATH leads to libraries of another torch."""
    torch: Torch | None = None
    driver: Driver | None = None
    card_uuid: str | None = None
    """The card that CUDA gives this process."""
    profiler: str | None = None
    """Version of ncu."""
    sanitiser: str | None = None
    """Version of compute-sanitizer."""
    counters_restricted: bool | None = None
    """Whether only administrators may read the card's performance counters."""
    git: Git | None = None
    base: Base | None = None
    base_error: str | None = None
    """Why there is no knowledge base."""
    rooms: tuple[Room, ...] = ()
    memory_bytes: int | None = None
    """Memory that can be had now."""
    load: float | None = None
    """Processes that wanted a core, over the last minute."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be looked at → why."""

    @property
    def card(self) -> Card | None:
        """The card that is used, as nvidia-smi describes it."""
        cards = self.driver.cards if self.driver else ()
        return next((card for card in cards if card.uuid == self.card_uuid), None)
