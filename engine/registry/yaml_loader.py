"""YAML 1.2 core schema on PyYAML, with the line of every value.

PyYAML resolves plain scalars by YAML 1.1, which turns ``no`` into False, ``22:30`` into 1350 and
``0644`` into 420. Only the parser is used here; resolving and constructing follow the 1.2 core schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from engine.errors import InvalidInput

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_VALUE_LIMIT = 1_000_000
"""Aliases multiply: a file of a few lines could otherwise stand for more values than memory holds."""


class _CoreLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The parser with the implicit types of the 1.2 core schema and merge keys, nothing else."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


_IMPLICIT = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        tuple("-+.0123456789"),
    ),
    ("merge", r"<<", ("<",)),
)
for _name, _pattern, _first in _IMPLICIT:
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z", re.ASCII), list(_first))


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _integer(text: str) -> int:
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text)


def _floating(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text[-1:].isalpha() else float(text)


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda text: None,
    _TAG + "bool": _boolean,
    _TAG + "int": _integer,
    _TAG + "float": lambda text: _floating(text.lower()),
    _TAG + "str": str,
}


@dataclass(frozen=True)
class Coerced:
    """A plain scalar whose value no longer shows its text, such as ``010`` or ``2026.10``."""

    path: KeyPath
    text: str


@dataclass(frozen=True)
class Document:
    """One parsed file: plain dicts, lists and scalars in `value`, and where each of them stands.

    `coerced` lists the scalars that would not be written back as they were typed.
    """

    file: Path
    value: Any
    coerced: tuple[Coerced, ...]
    _root: Node | None

    def value_at(self, path: KeyPath) -> Any:
        """The value at `path`; raises KeyError or IndexError where there is none."""
        value = self.value
        for part in path:
            value = value[part]
        return value

    def line_of(self, path: KeyPath) -> int:
        """The line of the key or item at `path`, or of the nearest parent that exists."""
        line = 1
        for place, _ in self._walk(path):
            line = place.start_mark.line + 1
        return line

    def literal_of(self, path: KeyPath) -> str | None:
        """The text of the scalar at `path` as it stands in the file; None for anything else."""
        steps = list(self._walk(path))
        if len(steps) != len(path) + 1 or not isinstance(steps[-1][1], ScalarNode):
            return None
        return str(steps[-1][1].value)

    def _walk(self, path: KeyPath) -> Iterator[tuple[Node, Node]]:
        """Yield (the node that names it, its value) from the root along `path` as far as it exists."""
        if self._root is None:
            return
        node = self._root
        yield node, node
        for part in path:
            found = _child(node, part)
            if found is None:
                return
            yield found
            node = found[1]


def load(path: Path) -> Document:
    """Read `path`; raises :class:`InvalidInput` with file and line unless it is one plain document."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"not UTF-8 text: {error}", where=str(path)) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    return parse(text, path)


def parse(text: str, file: Path) -> Document:
    """Read `text` as the contents of `file`, which only names it in errors."""
    _check_characters(text, file)
    try:
        root = _compose(text, file)
        if root is None:
            return Document(file, None, (), None)
        builder = _Builder(file)
        value = builder.build(root, (), ())
        return Document(file, value, tuple(builder.coerced), root)
    except RecursionError as error:
        raise InvalidInput("values are nested too deeply", where=f"{file}:1") from error


def _check_characters(text: str, file: Path) -> None:
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidInput(
            f"holds the character U+{ord(found.group()):04X}, which YAML does not allow",
            where=f"{file}:{line}",
            hint='write it as an escape in a double-quoted text, such as "\\x1b"',
        )


def _compose(text: str, file: Path) -> Node | None:
    loader = _CoreLoader(text)
    try:
        root: Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InvalidInput(_problem(error), where=f"{file}:{line}", hint=_syntax_hint(error)) from error
    finally:
        loader.dispose()
    return root


def _problem(error: yaml.MarkedYAMLError) -> str:
    parts = (error.context, error.problem)
    return "not valid YAML: " + ", ".join(part for part in parts if part)


def _syntax_hint(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "another document" in problem:
        return "keep one document in a file: remove the second ---"
    if "start any token" in problem:
        return "indent with blanks, never with tabs; quote text that starts with a special character"
    return ""


class _Builder:
    """Turns nodes into values, refusing what the core schema or a reader of the file would trip over."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.coerced: list[Coerced] = []
        self._count = 0

    def build(self, node: Node, path: KeyPath, parents: tuple[Node, ...]) -> Any:
        self._count += 1
        if self._count > _VALUE_LIMIT:
            raise self._refuse(node, f"aliases expand to more than {_VALUE_LIMIT} values")
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        self._check_collection(node)
        inside = self._enter(node, parents)
        if isinstance(node, MappingNode):
            self._check_keys(node, parents)
            return {key: self.build(value, (*path, key), inside) for key, _, value in _entries(node)}
        return [self.build(item, (*path, index), inside) for index, item in enumerate(node.value)]

    def _enter(self, node: Node, parents: tuple[Node, ...]) -> tuple[Node, ...]:
        if any(node is parent for parent in parents):
            raise self._refuse(node, "an alias refers to the value that contains it")
        return (*parents, node)

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        construct = _SCALARS.get(node.tag)
        if construct is None:
            raise self._refuse(node, f"the tag {node.tag!r} is not part of the YAML 1.2 core schema")
        try:
            value = construct(node.value)
        except (ValueError, KeyError) as error:
            kind = node.tag.removeprefix(_TAG)
            raise self._refuse(node, f"{node.value!r} is not a value of type {kind}") from error
        if isinstance(value, (bool, int, float)) and _written(value) != node.value:
            self.coerced.append(Coerced(path, node.value))
        return value

    def _check_collection(self, node: Node) -> None:
        wanted = _TAG + ("seq" if isinstance(node, SequenceNode) else "map")
        if node.tag != wanted:
            raise self._refuse(node, f"the tag {node.tag!r} is not part of the YAML 1.2 core schema")

    def _check_keys(self, node: MappingNode, parents: tuple[Node, ...]) -> None:
        inside = self._enter(node, parents)
        seen: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                self._check_merge(value, inside)
            elif not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                raise self._refuse(key, f"a key must be text{_quoted(key)}")
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise InvalidInput(
                    f"duplicate key {name!r}, already on line {seen[name]}",
                    where=f"{self.file}:{line}",
                    hint=f"line {seen[name]} and line {line} both set it: keep one",
                )
            seen[name] = line

    def _check_merge(self, value: Node, parents: tuple[Node, ...]) -> None:
        for source in _merged(value):
            if not isinstance(source, MappingNode):
                raise self._refuse(value, "a merge key << takes a mapping or a list of mappings")
            self._check_keys(source, parents)

    def _refuse(self, node: Node, message: str) -> InvalidInput:
        return InvalidInput(message, where=f"{self.file}:{node.start_mark.line + 1}")


def _merged(value: Node) -> list[Node]:
    return list(value.value) if isinstance(value, SequenceNode) else [value]


def _entries(node: MappingNode) -> Iterator[tuple[str, Node, Node]]:
    """Yield (name, key node, value node) with merges resolved: a key of its own beats a merged one."""
    own = [(str(key.value), key, value) for key, value in node.value if key.tag != _MERGE]
    names = {name for name, _, _ in own}
    for key, value in node.value:
        if key.tag != _MERGE:
            continue
        sources = (source for source in _merged(value) if isinstance(source, MappingNode))
        for source in sources:
            for entry in _entries(source):
                if entry[0] not in names:
                    names.add(entry[0])
                    yield entry
    yield from own


def _child(node: Node, part: str | int) -> tuple[Node, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, MappingNode) and isinstance(part, str):
        return next(((key, value) for name, key, value in _entries(node) if name == part), None)
    return None


def _written(value: bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(key: Node) -> str:
    return f': quote it: "{key.value}"' if isinstance(key, ScalarNode) else ""
