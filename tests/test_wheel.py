"""The wheel: built twice it is the same, it holds what it should, and it works on its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SHIPPED = ("kbtool", "kernels", "patterns", "symptoms", "docs/guide", "mkdocs.yml")
MOVED = {
    "kernels/": "kbtool/_kernels/",
    "patterns/": "kbtool/_patterns/",
    "symptoms/": "kbtool/_symptoms/",
    "docs/guide/": "kbtool/site/packaged/docs/guide/",
    "mkdocs.yml": "kbtool/site/packaged/mkdocs.yml",
}
LEFTOVERS = (
    "kbtool/__pycache__/attention.cpython-311.pyc",
    "kbtool/.records.tmp",
    "kernels/split_k_attention/__pycache__/harness.cpython-311.pyc",
    "kernels/split_k_attention/.kbtool/build/0123/split_k.so",
    "kernels/split_k_attention/split_k.so",
    "kernels/split_k_attention/.kernel.tmp",
    "docs/_generated/index.md",
    "sessions/2026-11-01-a/runs/.run.journal",
)
"""Files that building, testing and running leave in a checkout."""

pytestmark = pytest.mark.slow


def tracked(*paths: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in listed.stdout.split("\0") if (ROOT / path).is_file()]


def checkout(folder: Path, umask: int, changed: float) -> Path:
    """A copy of the files that git tracks, as a clone under this umask at this time has them."""
    for path in tracked():
        copy = folder / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, copy)
        copy.chmod((0o777 if os.access(ROOT / path, os.X_OK) else 0o666) & ~umask)
        os.utime(copy, (changed, changed))
    return folder


def build(folder: Path, out: Path, umask: int = 0o022, **env: str) -> dict[str, bytes]:
    """Build the source distribution and the wheel."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
        cwd=folder,
        env={**os.environ, **env},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel and the source distribution of a fresh clone."""
    clone = checkout(tmp_path_factory.mktemp("clone"), 0o022, 1_700_000_000)
    out = tmp_path_factory.mktemp("dist")
    build(clone, out, TZ="UTC", PYTHONHASHSEED="1")
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_another_folder_time_umask_and_what_work_leaves_change_no_byte(built: Path, tmp_path: Path):
    other = checkout(tmp_path / "of another" / "user", 0o077, 1_900_000_000)
    for name in LEFTOVERS:
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(b"left over")
    time.sleep(2)  # an archive may count time in steps of two seconds
    again = build(other, tmp_path / "dist", 0o077, TZ="Asia/Tokyo", PYTHONHASHSEED="2")
    first = {path.name: path.read_bytes() for path in built.iterdir()}
    assert sorted(path.rpartition(".")[2] for path in first) == ["gz", "whl"]
    assert again == first


def test_the_source_distribution_builds_the_same_wheel(built: Path, wheel: Path, tmp_path: Path):
    (archive,) = built.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    again = build(folder, tmp_path / "dist")
    assert again[wheel.name] == wheel.read_bytes()
    assert again[archive.name] == archive.read_bytes()


def moved(path: str) -> str:
    for start, target in MOVED.items():
        if path.startswith(start):
            return target + path.removeprefix(start)
    return path


def test_the_wheel_holds_what_git_tracks_of_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {moved(path) for path in tracked(*SHIPPED)}
    suffixes = {PurePosixPath(name).suffix for name in held}
    assert suffixes >= {".py", ".css", ".js", ".html", ".md", ".yml", ".yaml", ".cu", ".cuh", ".h"}


def test_the_source_distribution_holds_no_more_than_the_wheel_needs(built: Path, tmp_path: Path):
    (archive,) = built.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    held = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert held == {*tracked(*SHIPPED), ".gitignore", "PKG-INFO", "README.md", "pyproject.toml"}


def required(wheel: Path, extra: str) -> set[str]:
    """The names of all distributions that the wheel asks for, directly or not, with this extra."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        head = archive.read(metadata).decode().partition("\n\n")[0]
    lines = [line.partition(": ")[2] for line in head.splitlines() if line[:14] == "Requires-Dist:"]
    found: set[tuple[str, str]] = set()
    left = [(line, extra) for line in lines]
    while left:
        line, asked = left.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": asked}):
            continue
        for option in ("", *requirement.extras):
            this = (canonicalize_name(requirement.name), option)
            if this not in found:
                found.add(this)
                left += [(line, option) for line in distribution(requirement.name).requires or []]
    return {name for name, _ in found}


def put(names: Iterable[str], site_packages: Path) -> None:
    """Link installed distributions into another environment."""
    for name in names:
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
            (site_packages / top).symlink_to(str(installed.locate_file(top)))


Kbtool = Callable[..., str]


def environment(folder: Path, wheel: Path, extra: str) -> Kbtool:
    """Install the wheel, with what it asks for and no more, where nothing else is installed."""
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    scheme = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    put(required(wheel, extra), Path(sysconfig.get_path("purelib", "venv", scheme)))
    install = ["pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, "-m", *install, str(wheel)], check=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    base = folder / "base"
    base.mkdir()

    def kbtool(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [python.with_name("kbtool"), *arguments],
            cwd=base,
            env={**env, "HOME": str(folder), "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return kbtool


def test_the_wheel_alone_keeps_a_knowledge_base(wheel: Path, tmp_path: Path):
    kbtool = environment(tmp_path, wheel, extra="")
    assert not list((tmp_path / "venv").rglob("torch")), "installed, and not asked for"
    assert "is a knowledge base" in kbtool("init")
    kbtool("session", "new", "First try")
    assert "passed: 1 of 1 step" in kbtool("run-recipe", "look")
    assert "checked 1 session, 1 pattern, 0 kernels, 1 run: no problems" in kbtool("check")
    kbtool("schema", "--check")
    assert "Build the site." in kbtool("site", "build", "--help")
    assert "pip install 'kbtool[site]'" in kbtool("site", "build", code=3)


NEEDED = {"site build": "site", "export parquet": "parquet", "mcp": "mcp"}
"""Command → the extra that it needs and ``make run`` does not install."""


def test_what_make_run_installs_is_enough_for_a_recipe(wheel: Path, tmp_path: Path):
    kbtool = environment(tmp_path, wheel, extra="kernels")
    kbtool("init")
    kbtool("kernel", "new", "mine", "--like", "python")
    pattern = tmp_path / "base" / "patterns" / "P02-mine.yaml"
    validating, timing, _ = pattern.read_text().partition("      - {id: benchmark,")
    assert timing, "a run that times may end noisy"
    pattern.write_text(validating)
    told = kbtool("run-recipe", "mine")
    installs = f"{tmp_path}/venv/bin/python -m pip install 'kbtool[%s]'"
    assert f"site: {installs % 'site'} && {tmp_path}/venv/bin/kbtool site serve" in told
    for command, extra in NEEDED.items():
        assert installs % extra in kbtool(*command.split(), code=3)


def test_make_installs_no_more_than_its_command_needs():
    for target, extras in [("run", ["[kernels]"]), ("site", ["[kernels]", "[site]"])]:
        done = subprocess.run(
            ["make", "--dry-run", "VENV=nowhere", target],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert re.findall(r"pip install .* '\.(.*)'", done.stdout) == extras


def test_the_wheel_with_its_extra_builds_a_site(wheel: Path, tmp_path: Path):
    kbtool = environment(tmp_path, wheel, extra="site")
    kbtool("init")
    kbtool("session", "new", "First try")
    kbtool("site", "build")
    site = tmp_path / "base" / "site"
    assert "First try" in (site / "index.html").read_text(encoding="utf-8")
    assets = ROOT / "kbtool" / "site"
    shipped = {str(path.relative_to(assets)) for path in (assets / "assets").rglob("*.*s")}
    written = {str(path.relative_to(site)) for path in site.rglob("*.*s")}
    assert len(shipped) > 10
    assert shipped <= written
    assert (site / "guide" / "records.html").is_file()
