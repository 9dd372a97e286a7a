"""``kbtool kernel``: make kernels, and compile them without running them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import kernel_names
from kbtool.cli.kernel_new import new
from kbtool.model.words import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.gpu.build_plan import BuildPlan
    from kbtool.gpu.compile import Compiled, Usage
    from kbtool.store.tree import KnowledgeBase

_SECONDS = 3600.0

EPILOG = """\b
Examples:
  kbtool kernel new softcap --like triton            a kernel to begin with
  kbtool kernel compile                              every kernel, every architecture
  kbtool kernel compile KERNEL --architecture sm_90a
  kbtool kernel compile --json | jq '.compiled[] | select(.error)'"""


@click.group(epilog=EPILOG)
def kernel() -> None:
    """Make a kernel to begin with, and compile kernels without running them."""


kernel.add_command(new)


@kernel.command(
    epilog=EPILOG
    + """

\b
Exit status: 0 all compile, 1 one does not, 2 usage, 3 there is no nvcc."""
)
@click.argument("names", metavar="[KERNEL]...", nargs=-1, shell_complete=kernel_names)
@click.option("--target", "targets", multiple=True, help="Only this target; repeatable.")
@click.option(
    "--architecture",
    "architectures",
    metavar="SM",
    multiple=True,
    help="Only for this architecture: sm_90a; repeatable. Default: all that kernel.yaml lists.",
)
@click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Compilers at once. Default: one per core."
)
@click.option(
    "--quick",
    is_flag=True,
    default=False,
    help="Only check that all compile: unoptimised code, in a quarter of the time.",
)
@click.option(
    "--skip-without-nvcc",
    is_flag=True,
    default=False,
    help="If there is no nvcc, say so and exit with 0.",
)
@json_option
@click.pass_context
def compile(
    ctx: click.Context,
    names: tuple[str, ...],
    targets: tuple[str, ...],
    architectures: tuple[str, ...],
    jobs: int | None,
    quick: bool,
    skip_without_nvcc: bool,
    as_json: bool,
) -> None:
    """Compile CUDA sources for every architecture that kernel.yaml lists; no card is needed.

    It uses the compiler, the flags and the cache of a recipe's build step, so what a build has
    compiled is not compiled again. Lists the registers, static shared memory and local memory of
    each kernel, and warns of kernels that spill registers.
    """
    from kbtool.gpu.build import BuildTimeoutError
    from kbtool.gpu.compile import compile_cuda
    from kbtool.gpu.toolchain import find_nvcc
    from kbtool.model.errors import MachineError
    from kbtool.store.private import BUILD, private_folder

    base = knowledge_base(ctx)
    try:
        find_nvcc()
    except MachineError as error:
        if not skip_without_nvcc:
            raise
        click.echo(f"kbtool: CUDA sources are not compiled here: {error}", err=True)
        return
    plans = _plans(base, names, targets, architectures, quick)
    private_folder(base.root, BUILD)
    try:
        compiled = compile_cuda(
            plans,
            timeout=_SECONDS,
            jobs=jobs or 0,
            on_line=lambda line: click.echo(line, err=True),
            on_wait=lambda: click.echo("waiting for another build of the same sources", err=True),
        )
    except BuildTimeoutError as error:
        click.echo(f"kbtool: {error}; run it again", err=True)
        ctx.exit(4)
    if quick:  # the registers of unoptimised code say nothing about the kernel
        for one in compiled:
            one.functions.clear()
    if as_json:
        print_json({"compiled": [_row(one) for one in compiled]})
    else:
        _print_usage(compiled)
    _tell_spills(compiled)
    _print_errors(base, compiled)
    failed = [one for one in compiled if one.error]
    click.echo(f"{_count(compiled)}: {f'{len(failed)} failed' if failed else 'all compile'}",
               err=True)  # fmt: skip
    if failed:
        warn_unreadable(base)
        stopped = all(isinstance(one.error, BuildTimeoutError) for one in failed)
        ctx.exit(4 if stopped else 1)


def _plans(
    base: KnowledgeBase,
    names: Sequence[str],
    targets: Sequence[str],
    architectures: Sequence[str],
    quick: bool,
) -> list[BuildPlan]:
    from kbtool.gpu.compile import plan_compile
    from kbtool.model.errors import NotFoundError, UsageError
    from kbtool.store.private import build_cache

    kernels = {
        id_: entry.record for id_, entry in base.kernels.items() if id_ in names or not names
    }
    if base.findings and not names:
        raise UsageError(
            f"{base.findings[0]}; correct it first (`kbtool check` lists all problems)"
        )
    there = [spec for one in kernels.values() for spec in one.targets.values()]
    for what, wanted, known in (
        ("kernel", names, list(base.kernels)),
        ("target", targets, [name for one in kernels.values() for name in one.targets]),
        ("architecture", architectures, [name for spec in there for name in spec.architectures]),
    ):
        for name in wanted:
            if name not in known:
                all_ = ", ".join(dict.fromkeys(known)) or "none"
                broken = f" ({base.findings[0]})" if base.findings else ""
                raise NotFoundError(f"there is no {what} {name!r}; there is {all_}{broken}")
    cache = build_cache(base.root)
    plans = [
        plan
        for id_, one in kernels.items()
        for plan in plan_compile(
            one, base.root / "kernels" / id_, cache, targets, architectures, quick=quick
        )
    ]
    if not plans:
        click.echo("kbtool: no target lists CUDA sources and architectures", err=True)
    return plans


def _row(one: Compiled) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "kernel": one.kernel,
        "target": one.target,
        "source": one.source,
        "architecture": one.architecture,
        "functions": [asdict(usage) for usage in one.functions],
        "error": _error(one),
    }


def _print_usage(compiled: Sequence[Compiled]) -> None:
    """One row per ``__global__`` function, one column per architecture."""
    columns = list(dict.fromkeys(one.architecture for one in compiled))
    rows: dict[tuple[str, str, str], dict[str, Usage]] = {}
    for one in compiled:
        for usage in one.functions:
            key = (one.kernel, one.source, usage.function)
            rows.setdefault(key, {})[one.architecture] = usage
    if not rows:
        return
    click.echo("registers per thread, +bytes of local memory; static shared memory per block")
    print_table(
        ["source", "function", "shared", *columns],
        [
            [
                source,
                function,
                str(max(usage.shared_bytes for usage in by_card.values())),
                *(_registers(by_card.get(column)) for column in columns),
            ]
            for (_, source, function), by_card in rows.items()
        ],
        numeric=set(range(2, 3 + len(columns))),
    )


def _registers(usage: Usage | None) -> str:
    if usage is None:
        return "–"
    return f"{usage.registers}+{usage.local_bytes}" if usage.local_bytes else f"{usage.registers}"


def _tell_spills(compiled: Sequence[Compiled]) -> None:
    """One line per source with kernels that use local memory, which the table marks with a +."""
    for name in dict.fromkeys(_name(one) for one in compiled):
        spilling = [
            (one.architecture, usage)
            for one in compiled
            for usage in one.functions
            if _name(one) == name and usage.local_bytes
        ]
        if spilling:
            _, most = max(spilling, key=lambda item: item[1].local_bytes)
            cards = ", ".join(dict.fromkeys(card for card, _ in spilling))
            click.echo(
                f"warning: {name}: kernels use local memory, up to {most.local_bytes} bytes a"
                f" thread (spilled: {most.spill_store_bytes} stored, {most.spill_load_bytes}"
                f" loaded), for {cards}",
                err=True,
            )


def _name(one: Compiled) -> str:
    return f"{one.kernel}/{one.source}"


def _error(one: Compiled) -> str | None:
    """The first real error; it is the message of both exceptions."""
    return None if one.error is None else str(one.error)


def _print_errors(base: KnowledgeBase, compiled: Sequence[Compiled]) -> None:
    """The first real error of each source, once, with the patterns that know it."""
    from kbtool.gpu.build import BuildError
    from kbtool.runner.explain import matching
    from kbtool.runner.progress import known_lines

    by_message: dict[str, list[Compiled]] = {}
    for one in compiled:
        error = _error(one)
        if error is not None:
            by_message.setdefault(f"{_name(one)}: {error}", []).append(one)
    for message, several in by_message.items():
        cards = ", ".join(one.architecture for one in several)
        click.echo(f"error: {message} (for {cards})", err=True)
        failure = several[0].error
        output = failure.output if isinstance(failure, BuildError) else ""
        patterns = (entry.record for entry in base.patterns.values())
        for line in known_lines(matching(patterns, output, base.catalogue.values())):
            click.echo(f"    {line}", err=True)


def _count(compiled: Sequence[Compiled]) -> str:
    sources = len({(one.kernel, one.target, one.source) for one in compiled})
    cards = len({one.architecture for one in compiled})
    counts = (many(sources, "source"), many(cards, "architecture"), many(len(compiled), "object"))
    return ", ".join(counts)
