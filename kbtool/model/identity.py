"""What a run measured, by content: results of different identities are never mixed."""

from __future__ import annotations

import hashlib
import json

from kbtool.model.base import Model
from kbtool.model.kinds.base import Sha256

MANIFEST = "/kernel.yaml"


class Identity(Model):
    """The files, libraries and packages that took part in a run besides the built library.

    Files are named relative to the knowledge base. What was compiled is in the result of the build
    step, and the library has its own hash.
    """

    problem: dict[str, Sha256] = {}
    """What makes inputs, reference, bound and cases: the manifest, the harness, and every file that
    the harness reads. File → SHA-256."""
    solution: dict[str, Sha256] = {}
    """What runs the operator besides the library: the interface and every file that it reads while
    it is imported. File → SHA-256."""
    libraries: dict[str, Sha256] = {}
    """Shared libraries that the built one is linked to, without those of the system and of torch.
    File name → SHA-256."""
    packages: dict[str, str] = {}
    """Installed packages that were imported. Package → version."""

    @property
    def files(self) -> dict[str, Sha256]:
        """The files of problem and solution."""
        return {**self.problem, **self.solution}

    @property
    def problem_digest(self) -> str:
        """One hash for the problem: runs that differ in it were asked for different things.

        The manifest is left out. It lists sources and flags too, which are the solution's, and
        cases are compared by the fields that each result has.
        """
        files = {name: of for name, of in self.problem.items() if not name.endswith(MANIFEST)}
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()

    def merged(self, other: Identity) -> Identity:
        """With what only ``other`` holds; what both hold stays."""
        return Identity(
            problem={**_without(other.problem, self.solution), **self.problem},
            solution={**_without(other.solution, self.problem), **self.solution},
            libraries={**other.libraries, **self.libraries},
            packages={**other.packages, **self.packages},
        )


def _without(files: dict[str, Sha256], others: dict[str, Sha256]) -> dict[str, Sha256]:
    return {name: digest for name, digest in files.items() if name not in others}
