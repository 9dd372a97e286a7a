"""A knowledge base that was carried to a machine without its repository: its tree, in an archive.

The archive says in ``.kbtool/tree.json`` what it is of: commit, branch, whether the work tree
differed, and the digest of every file outside of the sessions, so that a change shows there too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from kbtool.model.errors import UsageError
from kbtool.model.run import RepositoryState
from kbtool.store.private import FOLDER
from kbtool.store.repository import RECORD, git_python, open_repository, repository_state

TREE = f"{FOLDER}/tree.json"
"""Where a carried tree says what it is of."""
_LEFT_OUT = ("runs", "sweeps")
"""The folders of a session that no recipe reads."""


def pack(root: Path, commit: str | None, session: str, archive: Path) -> str:
    """Write the tree of a knowledge base to an archive; returns its SHA-256.

    Args:
        root: the knowledge base.
        commit: the commit whose files are packed; ``None`` for the work tree.
        session: the session that runs go to, which is packed as it is now.
        archive: the file to write.

    Raises:
        UsageError: git cannot read the commit, or there was no knowledge base in it.
    """
    files = dict(_at_commit(root, commit) if commit else _in_work_tree(root))
    if not any(name.startswith("patterns/") for name in files):
        raise UsageError(f"{commit[:12] if commit else root} has no patterns, so no recipe to run")
    for path in (root / "sessions" / session).glob("*"):
        if path.is_file():
            files[f"sessions/{session}/{path.name}"] = (path.read_bytes(), 0o644)
    state = (
        repository_state(root) if commit is None else RepositoryState(commit=commit, dirty=False)
    )
    digests = {
        name: hashlib.sha256(data).hexdigest() for name, (data, _) in files.items() if _counts(name)
    }
    tree = {"repository": state.model_dump(mode="json"), "files": digests}
    files[TREE] = (json.dumps(tree, indent=1, sort_keys=True).encode(), 0o644)
    files[f"{FOLDER}/.gitignore"] = (b"*\n", 0o644)
    with archive.open("wb") as out:
        # Names in order, and no times or owners: the same tree has the same digest.
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted(files):
                data, mode = files[name]
                about = tarfile.TarInfo(name)
                about.size, about.mode = len(data), mode
                tar.addfile(about, io.BytesIO(data))
        out.flush()
        os.fsync(out.fileno())
    return digest_of_file(archive)


def unpack(archive: Path, digest: str, folder: Path) -> None:
    """Unpack an archive of ``pack`` into a new folder, in one step; one that is there is kept.

    Raises:
        UsageError: the archive is not what was packed.
    """
    if folder.exists():
        return
    if digest_of_file(archive) != digest:
        raise UsageError(f"{archive.name} is not what was packed: its digest differs")
    staged = folder.with_name(f".{folder.name}.{os.getpid()}")
    with tarfile.open(archive) as tar:
        tar.extractall(staged, filter="data")
    try:
        staged.rename(folder)
    except OSError:  # another process was quicker
        import shutil

        shutil.rmtree(staged, ignore_errors=True)
        if not folder.exists():
            raise


def carried_state(root: Path) -> RepositoryState | None:
    """What a carried tree is of; ``None`` if ``root`` is none.

    A file that was changed, added or removed since makes it dirty.
    """
    try:
        tree = json.loads((root / TREE).read_bytes())
        state = RepositoryState.model_validate(tree["repository"])
        digests = dict(tree["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    now = {name: path for name, path in _visible(root) if _counts(name)}
    same = now.keys() == digests.keys() and all(
        digest_of_file(path) == digests[name] for name, path in now.items()
    )
    return state if same else state.model_copy(update={"dirty": True})


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _counts(name: str) -> bool:
    """Whether a change of the file makes the tree another one, as it does for git: records do not,
    nor what programs hide."""
    hidden = any(part[0] == "." for part in name.split("/"))
    return not hidden and not RECORD.fullmatch(name)


def _carried(name: str) -> bool:
    parts = name.split("/")
    return not (parts[0] == "sessions" and len(parts) > 3 and parts[2] in _LEFT_OUT)


def _in_work_tree(root: Path) -> Iterator[tuple[str, tuple[bytes, int]]]:
    git = git_python()
    names: list[str] | None = None
    try:
        with open_repository(root) as repo:
            listed = repo.git(no_optional_locks=True).execute(
                ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
                 "--exclude-standard"]
            )  # fmt: skip
            names = [name for name in listed.split("\0") if name]
    except (git.GitError, OSError, ValueError):
        names = None
    found = {name: root / name for name in names} if names is not None else dict(_visible(root))
    for name, path in found.items():
        if _carried(name) and path.is_file() and not path.is_symlink():
            yield name, (path.read_bytes(), path.stat().st_mode & 0o755 | 0o644)


def _visible(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file under a root, without what programs hide."""
    for folder, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one[0] != "." and one != "__pycache__"]
        for name in files:
            path = Path(folder, name)
            yield path.relative_to(root).as_posix(), path


def _at_commit(root: Path, commit: str) -> Iterator[tuple[str, tuple[bytes, int]]]:
    git = git_python()
    try:
        with open_repository(root) as repo:
            above = root.resolve().relative_to(Path(repo.working_dir).resolve()).as_posix()
            inside = commit if above == "." else f"{commit}:{above}"
            raw = repo.git.execute(
                ["git", "-C", str(repo.working_dir), "archive", "--format=tar", inside],
                stdout_as_string=False, strip_newline_in_stdout=False,
            )  # fmt: skip
    except (git.GitError, OSError, ValueError) as error:
        why = getattr(error, "stderr", "").strip() or type(error).__name__
        raise UsageError(f"git cannot read commit {commit[:12]}: {why}") from None
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar:
            data = tar.extractfile(member) if member.isfile() else None
            if data is not None and _carried(member.name):
                yield member.name, (data.read(), member.mode & 0o755 | 0o644)
