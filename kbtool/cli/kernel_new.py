"""``kbtool kernel new``: a kernel to begin with."""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.pasted import pasted
from kbtool.scaffolds import SCAFFOLDS, kernel_files, recipe_of

if TYPE_CHECKING:
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool kernel new softcap --like triton
  kbtool kernel new softcap --like cpu && kbtool run-recipe softcap

\b
The kinds:
""" + "\n".join(f"  {name:<8} {one.about}" for name, one in SCAFFOLDS.items())


@click.command("new", epilog=EPILOG)
@click.argument("name", metavar="NAME")
@click.option(
    "--like", type=click.Choice(list(SCAFFOLDS)), required=True, help="What it is written in."
)
@json_option
@click.pass_context
def new(ctx: click.Context, name: str, like: str, as_json: bool) -> None:
    """Make a small kernel that runs at once, and the pattern with its recipe.

    kernels/NAME/ gets kernel.yaml, which says what to build and which cases there are, harness.py,
    which says what is right and what to time, and the source. Replace them piece by piece.
    """
    from kbtool.store.lock import lock
    from kbtool.store.private import private_folder

    base = knowledge_base(ctx)
    _refuse(base, name)
    # From the choice of a number until the pattern has it, no other command may choose.
    with lock(private_folder(base.root, "locks") / "kernel.lock", timeout=30):
        files = kernel_files(name, like, _free_number(base))
        _write(base, name, files)
    recipe = recipe_of(name)
    if as_json:
        print_json({"kernel": name, "recipe": recipe, "written": list(files)})
        return
    for path in files:
        click.echo(base.shown(base.root / path))
    click.echo(pasted(f"next: `kbtool run-recipe {recipe}`"), err=True)


def _write(base: KnowledgeBase, name: str, files: dict[str, str]) -> None:
    """Write the kernel's folder, whole or not at all, and then what is outside of it."""
    from kbtool.store.write import new_folder, write_new

    folder = f"kernels/{name}/"
    of_kernel = {path: text for path, text in files.items() if path.startswith(folder)}

    def contents(given: str) -> dict[str, bytes]:
        if given != name:
            raise _taken(folder)
        return {path.removeprefix(folder): text.encode() for path, text in of_kernel.items()}

    new_folder(base.root / "kernels", name, contents)
    for path in files.keys() - of_kernel.keys():
        write_new(base.root / path, files[path].encode())


def _refuse(base: KnowledgeBase, name: str) -> None:
    """Refuse a name that cannot be a kernel's here.

    Raises:
        UsageError: it is none, or it is taken.
    """
    from pydantic import TypeAdapter, ValidationError

    from kbtool.model.base import KernelId
    from kbtool.model.errors import UsageError

    try:
        TypeAdapter(KernelId).validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r} is no name for a kernel: write lower-case letters, digits and _, a letter"
            " first"
        ) from None
    if keyword.iskeyword(name) or name in _TAKEN:
        raise UsageError(f"{name!r} is a word of Python's, or a module; call the kernel otherwise")
    if (base.root / "kernels" / name).exists():
        raise _taken(f"kernels/{name}/")
    if recipe_of(name) in base.recipes():
        raise UsageError(f"there is a recipe {recipe_of(name)} already; call the kernel otherwise")


_TAKEN = frozenset(("torch", "triton", "numpy", "kbtool", "harness"))


def _taken(folder: str) -> Exception:
    from kbtool.model.errors import UsageError

    return UsageError(
        f"{folder} is there already; nothing was written: call the kernel otherwise, or move"
        " that folder away"
    )


def _free_number(base: KnowledgeBase) -> int:
    """The number after the last of the patterns, those that cannot be read included."""
    import re

    names = (path.name for path in (base.root / "patterns").glob("P*.yaml"))
    used = [int(found[1]) for name in names if (found := re.match(r"P(\d{1,9})", name))]
    return max(used, default=0) + 1
