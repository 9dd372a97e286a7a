"""The worker's record of what it reads, by content, and its refusal of what has changed.

An audit hook sees every file that Python opens. A file of the knowledge base that an earlier worker
of the run has read must have the same content. A worker that measures may read no other: code that
was loaded only to be timed was never validated.

Out of sight are files that extensions open by themselves, and modules from outside the knowledge
base, of which only the version is recorded.

What times and judges must stay as it was before foreign code was imported (``originals``), and that
code may not look at the frames of its callers, where expected outputs and the schedule lie.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import kbtool
from kbtool.gpu.build_plan import sha256_of
from kbtool.gpu.harness import Harness, UncachedLoader
from kbtool.gpu.originals import Originals
from kbtool.model.identity import Identity

_SYSTEM = (
    "/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda", "/usr/local/nvidia/",
)  # fmt: skip


_LOOKS = frozenset(
    [
        "sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile",
        "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    ]
)  # fmt: skip
"""Events of Python that show frames, or what others hold."""
_FRAMES = frozenset(("tb_frame", "gi_frame", "cr_frame", "ag_frame"))


class ChangedError(Exception):
    """Something is not what it was when the library was validated, or was not read then."""


class Seal:
    """Records what this process reads from now on.

    Args:
        root: the knowledge base.
        harness: path of the harness; the files beside it belong to the knowledge base even if the
            folder is a symbolic link.
        known: what earlier workers of the run have read.
        closed: whether to refuse files that none of them has read.
    """

    def __init__(self, root: Path, harness: Path, known: Identity, *, closed: bool) -> None:
        folder = harness.parent
        self._roots = [
            (root.absolute(), Path()),
            (root.resolve(), Path()),
            (folder.resolve(), Path("kernels", folder.name)),
        ]
        own = {sys.prefix, sysconfig.get_path("stdlib"), str(Path(kbtool.__file__).parent)}
        self._excluded = [Path(path) for path in own | _installed()]
        self._known, self._closed = known, closed
        self._files: dict[Literal["problem", "solution"], dict[str, str]] = {
            "problem": {},
            "solution": {},
        }
        self._libraries: dict[str, str] = {}
        self._reading: Literal["problem", "solution"] = "problem"
        self._busy = False
        self._originals: Originals | None = None
        self._is_own: dict[str, bool] = {}
        self.refusal: str | None = None
        """Why the results of this process do not count; ``None`` if they do."""

    def begin(self) -> None:
        """Watch every file that is opened, and compile the knowledge base's modules from source."""
        self._originals = Originals()
        sys.addaudithook(self._audit)
        place = sys.meta_path.index(PathFinder)
        sys.meta_path.insert(place, _FromSource(self))

    @contextmanager
    def solution(self) -> Iterator[None]:
        """What is read in this block belongs to the solution."""
        self._reading = "solution"
        try:
            yield
        finally:
            self._reading = "problem"

    @contextmanager
    def linking(self, library: Path) -> Iterator[None]:
        """Shared libraries that are loaded in this block are linked to ``library``.

        Raises:
            ChangedError: one has changed since an earlier worker loaded it.
        """
        before = _mapped()
        yield
        for path in sorted(_mapped() - before - {library.resolve()}):
            if path.is_file() and not str(path).startswith(_SYSTEM) and not self._excludes(path):
                self._libraries[path.name] = digest = sha256_of(path)
                self._compare(path.name, self._known.libraries.get(path.name, digest), digest)

    def identity(self, *, packages: bool = False) -> Identity:
        """What was read so far; ``packages``: with the versions of what was imported."""
        return Identity(
            **self._files,
            libraries=self._libraries,
            packages=_packages() if packages else {},
        )

    def hold(self, harness: Harness) -> None:
        """What the harness says to be right must stay too."""
        if self._originals:
            self._originals.hold(harness)

    def look(self) -> None:
        """Refuse the results of this process if what times or judges was replaced."""
        replaced = self._originals and self._originals.replaced()
        if replaced:
            self._refuse(
                f"{replaced} was replaced or set while the kernel's code ran; times and verdicts of"
                " such a process do not count"
            )

    def check(self) -> None:
        """Raise what was refused again: the harness may have caught it.

        Raises:
            ChangedError: something was refused.
        """
        if self.refusal is not None:
            raise ChangedError(self.refusal)

    def finish(self) -> Identity:
        """What was read in all; a package of another version than before is a refusal."""
        self.look()
        found = self.identity(packages=True)
        for name, now in found.packages.items():
            before = self._known.packages.get(name, now)
            if before != now:
                self._refuse(f"{name} was {before} when the run began and is {now}")
        return found

    def name_of(self, path: str) -> str | None:
        """The name of a file of the knowledge base; ``None`` for any other, and for what no person
        writes: byte code, and hidden folders outside of ``kernels``."""
        absolute = Path(os.path.normpath(Path(path).absolute()))
        if self._excludes(absolute):
            return None
        for root, name in self._roots:
            if absolute.is_relative_to(root):
                found = name / absolute.relative_to(root)
                parts = found.parts
                hidden = parts[:1] != ("kernels",) and any(part.startswith(".") for part in parts)
                compiled = "__pycache__" in parts and found.suffix == ".pyc"
                return None if hidden or compiled else found.as_posix()
        return None

    def _excludes(self, path: Path) -> bool:
        return any(map(path.is_relative_to, self._excluded))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        if event in _LOOKS or (event == "object.__getattr__" and arguments[1] in _FRAMES):
            self._refuse_to_show(event)
        if event != "open":
            return
        path, mode, flags = arguments
        if isinstance(path, int) or path is None or _writes(mode, flags):
            return
        path = os.fsdecode(path)
        name = self.name_of(path)
        if name is None or not Path(path).is_file():
            return
        self._busy = True
        try:
            digest = sha256_of(Path(path))
        finally:
            self._busy = False
        first = next((files[name] for files in self._files.values() if name in files), None)
        if first is None:
            self._files[self._reading][name] = digest
        known = first or self._known.files.get(name)
        if known is None and self._closed:
            self._refuse(
                f"{name} was not read when the library was validated, and is read now: import or"
                " open it where the harness or the interface is loaded"
            )
            raise ChangedError(self.refusal)
        self._compare(name, known or digest, digest)

    def _refuse_to_show(self, event: str) -> None:
        """Refuse the results if the knowledge base's own code looks at frames; libraries do, to say
        where a warning comes from."""
        self._busy = True  # what follows looks at frames too
        try:
            frame = sys._getframe(2)
            # An error's own frames may be printed; those of callers are looked for by these.
            helpers = {"inspect", "traceback"} if event == "sys._getframe" else {}
            while frame.f_globals.get("__name__") in helpers and frame.f_back:
                frame = frame.f_back
            file = frame.f_code.co_filename
            if file not in self._is_own:
                self._is_own[file] = self.name_of(file) is not None
        finally:
            self._busy = False
        if self._is_own[file]:
            self._refuse(
                f"{self.name_of(file)} looks at the frames of its callers, which hold what is"
                " expected of it"
            )
            raise ChangedError(self.refusal)

    def _compare(self, name: str, before: str, now: str) -> None:
        if before != now:
            self._refuse(f"{name} has changed since this run first read it; start a new run")
            raise ChangedError(self.refusal)

    def _refuse(self, why: str) -> None:
        self.refusal = self.refusal or why


class _FromSource:
    """Finds modules as Python does. Those of the knowledge base are compiled from their source:
    byte code may be older than it, and its file is not what a person reads."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if (
            spec is not None
            and isinstance(spec.loader, SourceFileLoader)
            and self._seal.name_of(spec.loader.path) is not None
        ):
            spec.loader = UncachedLoader(spec.loader.name, spec.loader.path)
        return spec


def _writes(mode: str | None, flags: int) -> bool:
    if mode is None:
        return flags & os.O_ACCMODE != os.O_RDONLY
    return any(letter in mode for letter in "wax")


def _installed() -> set[str]:
    """The folders of installed packages."""
    own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return own | {path for path in sys.path if path and any(Path(path).glob("*.dist-info"))}


def _mapped() -> set[Path]:
    """The shared libraries that this process has mapped; none where there is no /proc."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    return {Path(found[5]) for found in fields if len(found) > 5 and ".so" in found[5]}


def _packages() -> dict[str, str]:
    """Each imported package that is installed, and its version."""
    folders = [Path(path) for path in _installed()]
    found = {}
    for name in sorted({module.partition(".")[0] for module in list(sys.modules)}):
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if not file or not any(map(Path(file).is_relative_to, folders)):
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            stated = getattr(module, "__version__", None)
            if isinstance(stated, str):
                found[name] = stated
    return found
