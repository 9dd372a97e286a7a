"""Change one value in a hand-written YAML file and keep every other character.

A YAML dumper, even one that keeps comments, rewrites the whole file with its own folding, quoting
and indentation. Instead the parser's marks give the position of a value, the new text is inserted
there, and the result is parsed again. If it is not exactly the wanted data, nothing is changed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import yaml

from kbtool.model.errors import UsageError
from kbtool.store.document import BOM, Document, DocumentError, parse
from kbtool.store.dump import Data, Fields, dump, flow, scalar


class Splice:
    """Edits of one record's text. ``text`` and ``data`` always agree."""

    def __init__(self, document: Document) -> None:
        self.path = document.path
        self.text = document.text.removeprefix(BOM)
        self.data: dict[str, Any] = copy.deepcopy(document.data)
        self._node = document.node
        self._newline = "\r\n" if "\r\n" in self.text else "\n"
        if self._node.flow_style:
            raise UsageError(
                f"{self.path} is one mapping in braces, which kbtool cannot edit: write each key on"
                " its own line"
            )

    def set(self, key: str, value: str, order: Sequence[str]) -> None:
        """Set a top-level key. A new key is inserted at its position in ``order``."""
        self.data[key] = value
        found = self._find(self._node, key)
        if found is None:
            self._insert(self._place(key, order), f"{key}: {scalar(value)}\n")
        else:
            self._put(found[1], value)

    def remove(self, path: Sequence[str | int]) -> None:
        """Remove the key at ``path``, and its mapping if that becomes empty.

        An item of a list is named by its index.
        """
        there = self._holder(path)
        if there is None:
            return
        mapping, holder = there
        if len(mapping.value) == 1 and len(path) > 1 and isinstance(path[-2], str):
            self.remove(path[:-1])
            return
        part = path[-1]
        del holder[part]
        index = [key.value for key, _ in mapping.value].index(part)
        key, value = mapping.value[index]
        if not mapping.flow_style:
            start, end = self._line_start(key.start_mark.index), self._after(value)
            if self.text[start : key.start_mark.index].strip():  # a dash before it, which stays
                start = key.start_mark.index
                end += len(self.text[end:]) - len(self.text[end:].lstrip(" "))
            self._replace(start, end, "")
        elif index + 1 < len(mapping.value):
            after = mapping.value[index + 1][0].start_mark.index
            self._replace(key.start_mark.index, after, "")
        else:
            before = mapping.value[index - 1][1].end_mark.index
            self._replace(before, value.end_mark.index, "")

    def remove_item(self, key: str, at: int) -> None:
        """Remove an item of a top-level list, and the list if that becomes empty."""
        found = self._find(self._node, key)
        assert found is not None
        node, items = found[1], found[1].value
        if len(items) == 1:
            self.remove([key])
            return
        del self.data[key][at]
        item = items[at]
        if not node.flow_style:
            self._replace(self._line_start(item.start_mark.index), self._after(item), "")
        elif at + 1 < len(items):
            self._replace(item.start_mark.index, items[at + 1].start_mark.index, "")
        else:
            self._replace(items[at - 1].end_mark.index, item.end_mark.index, "")

    def rename(self, path: Sequence[str | int], name: str) -> None:
        """Give the key at ``path`` another name. Its value and its place stay."""
        there = self._holder(path)
        if there is None:
            return
        mapping, holder = there
        holder[name] = holder.pop(path[-1])
        key = next(key for key, _ in mapping.value if key.value == path[-1])
        self._replace(key.start_mark.index, key.end_mark.index, scalar(name))

    def _holder(self, path: Sequence[str | int]) -> tuple[Any, Any] | None:
        """The mapping that has the last key of ``path``, and its data."""
        node: Any = self._node
        data: Any = self.data
        for part in path[:-1]:
            if isinstance(part, int):
                node, data = node.value[part], data[part]
            elif (found := self._find(node, part)) is not None:
                node, data = found[1], data[part]
            else:
                return None
        return None if self._find(node, str(path[-1])) is None else (node, data)

    def append(self, key: str, item: Fields | str, order: Sequence[str]) -> None:
        """Add an item to a top-level list."""
        self.data[key] = [*(self.data.get(key) or ()), _plain(item)]
        found = self._find(self._node, key)
        if found is None:
            self._insert(self._place(key, order), f"{key}:\n{_entry(item, 2)}")
        else:
            self._add_to(*found, item)

    def append_in(self, key: str, at: int, name: str, item: Fields) -> None:
        """Add an item to a list in one item of a top-level list."""
        held = self.data[key][at]
        held[name] = [*(held.get(name) or ()), _plain(item)]
        found = self._find(self._node, key)
        assert found is not None
        holder = found[1].value[at]
        there = self._find(holder, name)
        if there is not None:
            self._add_to(*there, item)
        elif holder.flow_style:
            end = holder.value[-1][1].end_mark.index
            self._replace(end, end, f", {flow({name: [item]})[1:-1]}")
        else:
            margin = holder.value[0][0].start_mark.column
            new = f"{' ' * margin}{name}:\n{_entry(item, margin + 2)}"
            self._insert(self._after(holder), new)

    def _add_to(self, key: Any, node: Any, item: Fields | str) -> None:
        """Add an item to the list ``node``, the value of ``key``."""
        margin = key.start_mark.column + 2
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            start = key.end_mark.index + 1
            if self._in_braces(key):
                self._replace(start, max(start, node.end_mark.index), f" [{_flow(item)}]")
                return
            entry = _entry(item, margin).removesuffix("\n")
            self._replace(start, max(start, node.end_mark.index), f"\n{entry}")
        elif node.flow_style:
            end = node.value[-1].end_mark.index
            self._replace(end, end, f", {_flow(item)}")
        else:
            self._insert(self._after(node), _entry(item, node.start_mark.column))

    def _in_braces(self, key: Any) -> bool:
        """Whether a key stands on one line with other keys, in braces."""
        before = self.text[self._line_start(key.start_mark.index) : key.start_mark.index]
        return before.strip(" -") != ""

    def set_in(self, key: str, at: int, name: str, value: str) -> None:
        """Set a key of one item of a top-level list."""
        self.set_at([key, at], name, value)

    def set_at(self, path: Sequence[str | int], name: str, value: str) -> None:
        """Set a key of the mapping at ``path``, which is there."""
        item, data = self._node, self.data
        for part in path:
            if isinstance(part, int):
                item = item.value[part]
            else:
                found = self._find(item, part)
                assert found is not None
                item = found[1]
            data = data[part]  # type: ignore[index, call-overload, unused-ignore]
        data[name] = value
        there = self._find(item, name)
        if there is not None:
            self._put(there[1], value)
        elif item.flow_style:
            end = item.value[-1][1].end_mark.index
            self._replace(end, end, f", {flow({name: value})[1:-1]}")
        else:
            margin = " " * item.value[0][0].start_mark.column
            self._insert(self._after(item), f"{margin}{name}: {scalar(value)}\n")

    def _put(self, node: Any, value: str) -> None:
        """Replace a value."""
        start, end = node.start_mark.index, node.end_mark.index
        space = "" if self.text[start - 1] in " \n" else " "
        tail = "\n" if isinstance(node, yaml.ScalarNode) and node.style in _BLOCK else ""
        self._replace(start, end, space + scalar(value) + tail)

    @staticmethod
    def _find(node: Any, key: str) -> tuple[Any, Any] | None:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == key:
                    return name, value
        return None

    def _place(self, key: str, order: Sequence[str]) -> int:
        """The position of a new key: behind the last key that ``order`` puts before it."""
        earlier = set(order[: order.index(key)])
        there = [value for name, value in self._node.value if name.value in earlier]
        return self._after(there[-1] if there else self._node.value[-1][1])

    def _after(self, node: Any) -> int:
        """The start of the line after ``node``."""
        last = node
        while not isinstance(last, yaml.ScalarNode) and not last.flow_style and last.value:
            last = last.value[-1]
            if isinstance(last, tuple):
                last = last[1]
        end: int = last.end_mark.index
        if isinstance(last, yaml.ScalarNode) and last.style in _BLOCK:
            return end  # it ends at the start of the next line
        newline = self.text.find("\n", end)
        return len(self.text) if newline < 0 else newline + 1

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _insert(self, index: int, new: str) -> None:
        if index > 0 and self.text[index - 1] != "\n":
            new = "\n" + new.removesuffix("\n")  # the last line has no newline
        self._replace(index, index, new)

    def _replace(self, start: int, end: int, new: str) -> None:
        new = new.replace("\n", self._newline)
        text = self.text[:start] + new + self.text[end:]
        try:
            document = parse(text.encode(), self.path)
            changed: Any = document.data
        except DocumentError:
            changed = None
        if changed != self.data:
            raise UsageError(
                f"kbtool cannot edit {self.path} safely, so nothing was changed: edit it by hand"
            )
        self.text = text
        self._node = document.node


def _plain(item: Fields | str) -> Data:
    return item if isinstance(item, str) else dict(item)


def _flow(item: Fields | str) -> str:
    """``item`` as it stands in a list on one line."""
    return flow({"x": item})[4:-1] if isinstance(item, str) else flow(item)


def _entry(item: Fields | str, margin: int) -> str:
    """A list item: in braces if that fits on one line, else one key per line."""
    if isinstance(item, str):
        return f"{' ' * margin}- {scalar(item)}\n"
    line = f"{' ' * margin}- {flow(item)}\n"
    if len(line) <= _LINE:
        return line
    block = dump(item, margin + 2)
    return f"{' ' * margin}- {block[margin + 2 :]}"


_LINE = 100
"""The longest line that kbtool writes into a record."""
_BLOCK = ("|", ">")
