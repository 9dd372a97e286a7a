"""What the tests share: small knowledge bases, the command, built kernels and built sites."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
import site_trees
from commands import Result
from hypothesis import settings
from site_html import Site, read_site

from kbtool.store.lock import lock
from kbtool.store.turn import VARIABLE

# No test is timed: a machine that others use too is slow at times.
settings.register_profile("kbtool", deadline=None)
settings.load_profile("kbtool")

# A shell starts what runs in its background deaf to Ctrl-C, and every program that a test starts
# would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two processes with two threads each on two cores: a thread that waits must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# pytest-xdist and readline put a terminal's width into the environment, and tables would keep to
# it. readline sets it behind os.environ, so pop alone does not reach it.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# Benchmarks of the tests wait for each other, and for nobody else on this machine.
_LOCKS = tempfile.TemporaryDirectory(prefix="kbtool-locks-")
os.environ.setdefault(VARIABLE, _LOCKS.name)

FIXTURES = Path(__file__).parent / "fixtures"
REPOSITORY = Path(__file__).parent.parent


FIRST = ("browser/test_browser.py", "steps", "browser", "site", "gpu", "runner", "cli", ".")
BUILT = {"shared", "browser", "swept"}
"""Fixtures of what is built: kernels, sites, the browser that opens them; and sweeps, whose cells
are processes of their own."""


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of what is built as slow, and put folders with slow tests first.

    Else one process is left with a slow file at the end, alone: pytest-xdist would begin with the
    files of most tests, which are the quick ones. One file alone begins with this repository's
    site: other processes would wait while the first builds it.
    """
    for item in items:
        if BUILT & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    tests = Path(__file__).parent
    order = {tests / name: number for number, name in enumerate(FIRST)}

    def place(item: pytest.Item) -> int:
        return order.get(item.path, order.get(item.path.parent, len(FIRST)))

    items.sort(key=place)


COMPILERS = {name: path for name in ("c++", "g++", "cc", "gcc") if (path := shutil.which(name))}
REFUSED = """\
#!/bin/sh
case "$*" in --version) exec {path} --version ;; esac
echo "a test that is not marked slow started {name}: mark it (pyproject.toml)" >&2
exit 1
"""
_REFUSING = tempfile.TemporaryDirectory(prefix="kbtool-compilers-")
for _name, _path in COMPILERS.items():
    (Path(_REFUSING.name) / _name).write_text(REFUSED.format(name=_name, path=_path))
    (Path(_REFUSING.name) / _name).chmod(0o755)
PATH = os.environ.get("PATH", os.defpath)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """No compiler for the tests of ``make test-quick``: one that needs it gets the mark slow."""
    quick = not any(map(item.get_closest_marker, ("slow", "gpu")))
    os.environ["PATH"] = f"{_REFUSING.name}{os.pathsep}{PATH}" if quick else PATH


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line a reason, however many tests are skipped for it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count:,}: {reason}")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run have in common."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _card(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that need a card take turns at it."""
    if request.node.get_closest_marker("gpu") is None:
        yield
    else:
        with lock(request.getfixturevalue("shared") / "card.lock"):
            yield


@pytest.fixture(scope="session")
def build_cache(shared: Path) -> Path:
    """Libraries built by the tests: a hash names each."""
    cache = shared / "build"
    cache.mkdir(exist_ok=True)
    return cache


def built_site(folder: Path, make: Callable[[Path], Path]) -> Site:
    """The site of what ``make`` puts into a folder, built by the first process that asks for it."""
    from kbtool.site.html.build import build

    root, said = folder / "kb", folder / "built.pickle"
    out = root / "site"
    with lock(folder / ".lock"):
        if not said.exists():
            said.write_bytes(pickle.dumps(build(make(root), out)))
    return Site(root, out, pickle.loads(said.read_bytes()), read_site(out))


@pytest.fixture(scope="session")
def plain_site(shared: Path) -> Site:
    return built_site(shared / "plain", lambda root: site_trees.make(root, sessions=3))


@pytest.fixture(scope="session")
def hostile_site(shared: Path) -> Site:
    return built_site(shared / "hostile", lambda root: site_trees.make(root, site_trees.attack))


@pytest.fixture(scope="session")
def empty_site(shared: Path) -> Site:
    return built_site(shared / "empty", site_trees.empty)


@pytest.fixture(scope="session")
def real_site(shared: Path) -> Site:
    """The repository's own records, built from a copy so that nothing is written beside them."""

    return built_site(shared / "real", own_records)


def own_records(root: Path) -> Path:
    for name in ("sessions", "patterns", "symptoms", "kernels", "docs"):
        shutil.copytree(REPOSITORY / name, root / name)
    return root


@pytest.fixture(scope="session")
def zensical_site(shared: Path) -> Site:
    """``real_site``, laid out by Zensical."""
    return built_site(shared / "zensical", lambda root: with_zensical(own_records(root)))


@pytest.fixture(scope="session")
def hostile_zensical_site(shared: Path) -> Site:
    """``hostile_site``, laid out by Zensical."""
    return built_site(
        shared / "hostile-zensical",
        lambda root: with_zensical(site_trees.make(root, site_trees.attack)),
    )


def with_zensical(root: Path) -> Path:
    """The knowledge base at ``root``, with Zensical as its generator."""
    pytest.importorskip("zensical", reason="pip install 'kbtool[zensical]'")
    (root / "kbtool.yaml").write_text("format: 2\ngenerator: zensical\n", encoding="utf-8")
    return root


@pytest.fixture(params=["plain_site", "hostile_site", "empty_site", "real_site"])
def site(request: pytest.FixtureRequest, shared: Path) -> Site:
    """Each of the built sites."""
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def second_kernel_base(tmp_path: Path, build_cache: Path) -> Path:
    """A knowledge base of its own with the kernel ``scaled_add`` and pattern P01's recipes."""
    root = tmp_path / "base"
    for name in ("sessions", "patterns", "kernels"):
        (root / name).mkdir(parents=True)
    shutil.copytree(FIXTURES / "kernels" / "scaled_add", root / "kernels" / "scaled_add")
    shutil.copy(FIXTURES / "patterns" / "P01.yaml", root / "patterns" / "P01.yaml")
    (root / ".kbtool").mkdir()
    (root / ".kbtool" / "build").symlink_to(build_cache)
    return root


@pytest.fixture
def kbtool(tmp_path: Path) -> Callable[..., Result]:
    """Run the command as a user does, in a process of its own."""
    return _in_folder(tmp_path, commands.run)


@pytest.fixture
def started_kbtool(tmp_path: Path) -> Callable[..., Result]:
    """``kbtool``, with the command and its workers started by an interpreter, not forked."""
    return _in_folder(tmp_path, commands.in_an_interpreter)


def _in_folder(folder: Path, start: Callable[..., Result]) -> Callable[..., Result]:
    def run(*arguments: str, root: Path | None = None, env: dict[str, str] | None = None) -> Result:
        place = {"KBTOOL_ROOT": str(root)} if root else {}  # --root would be part of each hint
        done = start(list(arguments), folder, {**place, **(env or {})})
        assert "Traceback" not in done.err, done.err
        return done

    return run
