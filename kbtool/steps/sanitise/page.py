"""What compute-sanitizer reported, on the page of its run."""

from __future__ import annotations

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.figures import many
from kbtool.markdown.markup import bullets, chip, facts, folded, join
from kbtool.model.kinds.sanitise import SanitiseResult
from kbtool.steps.base import Links, not_reached
from kbtool.steps.sanitise.report import count


def page(result: SanitiseResult, links: Links) -> str:
    """The errors of each tool, and its reports as printed."""
    about = facts(
        [
            ("compute-sanitizer", inline(result.version)),
            ("Tools", f"{len(result.tools)}{not_reached(result.not_reached)}"),
            ("Artifact", code(result.sha256[:12])),
        ]
    )
    parts = []
    for tool in result.tools:
        verdict = chip("stopped" if tool.errors is None else "fail" if tool.errors else "pass")
        options = code(" ".join(tool.options))
        left_out = f", but for {', '.join(tool.excluded)}"
        parts += [
            f"**{inline(tool.tool)}** ({options}{inline(left_out) if tool.excluded else ''}):"
            f" {verdict} {count(tool)} in {many(len(tool.cases), 'case')}",
            *(block(report) for report in tool.reports),
        ]
    cases = dict.fromkeys(name for tool in result.tools for name in tool.cases)
    variants: dict[str, list[str]] = {}
    for name in cases:
        case, _, variant = name.partition(" as ")
        variants.setdefault(case, []).append(variant or "default")
    every = folded(
        f"Cases: {len(cases)}",
        bullets(inline(f"{case} as {', '.join(of)}") for case, of in variants.items()),
    )
    return join([about, *parts, every if cases else None])
