"""One edit of a source file: a text that stands in it exactly once, and what to put there.

No Pydantic here: ``kbtool check`` looks at every edit each time.
"""

from __future__ import annotations


def edited(text: str, find: str, put: str) -> str:
    """``text`` with ``put`` in the place of ``find``.

    Raises:
        ValueError: ``find`` is not there, or stands there more than once.
    """
    parts = text.split(find)
    if len(parts) == 2:
        return put.join(parts)
    if len(parts) == 1:
        raise ValueError(
            f"the text to find is gone: {_first_line(find)}; write what stands there now, or take"
            " the entry out"
        )
    lines = [str(find.join(parts[: n + 1]).count("\n") + 1) for n in range(len(parts) - 1)]
    raise ValueError(
        f"the text to find stands in lines {', '.join(lines)}: {_first_line(find)}; take in more of"
        " what is around it"
    )


def _first_line(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return repr(first) + (" …" if rest else "")
