"""Checks a parsed file against its JSON Schema and says file, line, key and what is wanted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from engine.errors import InvalidInput
from engine.registry.formats import checker
from engine.registry.yaml_loader import Coerced, Document, KeyPath

_Error = Any
"""A ``jsonschema.ValidationError``: its attributes are typed as possibly unset, which they never are here."""

_SHOWN = 20
_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file: the place and what is wanted there."""

    path: KeyPath
    message: str
    hint: str = ""


@cache
def read_schema(package: str, name: str) -> Mapping[str, Any]:
    """Return the JSON Schema `name` that lies in the directory ``schemas`` of `package`."""
    schema: Mapping[str, Any] = json.loads(files(package).joinpath("schemas", name).read_text("utf-8"))
    return schema


def check(document: Document, schema: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` with every problem of `document`; one without problems returns."""
    problems = list(_schema_problems(document, schema))
    misplaced = {problem.path for problem in problems}
    coerced = [_coerced_problem(document, found, found.path in misplaced) for found in document.coerced]
    explained = {problem.path for problem in coerced}
    raise_problems(document, coerced + [problem for problem in problems if problem.path not in explained])


def raise_problems(document: Document, problems: list[Problem]) -> None:
    """Raise one :class:`InvalidInput` that names every one of `problems` in line order, if there are any."""
    if not problems:
        return
    lined = [(document.line_of(problem.path), problem) for problem in problems]
    placed = sorted(lined, key=lambda pair: pair[0])
    (line, first), *others = placed
    if not others:
        raise InvalidInput(_text(first), where=f"{document.file}:{line}", hint=first.hint)
    texts = [f"{document.file}:{line}: {_text_and_hint(problem)}" for line, problem in placed[:_SHOWN]]
    if len(placed) > _SHOWN:
        texts.append(f"and {len(placed) - _SHOWN} more")
    texts[0] = _text_and_hint(first)
    raise InvalidInput("\n".join(texts), where=f"{document.file}:{line}")


def _text_and_hint(problem: Problem) -> str:
    return f"{_text(problem)} ({problem.hint})" if problem.hint else _text(problem)


def _text(problem: Problem) -> str:
    return f"{key_path(problem.path)}: {problem.message}" if problem.path else problem.message


def key_path(path: KeyPath) -> str:
    """Return `path` the way a person writes it: ``releases[2].steps[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_shown_key(part)}"
    return text.removeprefix(".")


def _shown_key(part: str) -> str:
    plain = part and part.isprintable() and not set(part) & set(". []:")
    return part if plain else json.dumps(part, ensure_ascii=False)


def _coerced_problem(document: Document, coerced: Coerced, wants_text: bool) -> Problem:
    value = document.value_at(coerced.path)
    kind, shown = _kind(value), _shown(value)
    other = "" if wants_text else f", or write {shown} if the {kind} is meant"
    return Problem(coerced.path, f"{coerced.text} reads as the {kind} {shown}", f'quote it: "{coerced.text}"{other}')


def _schema_problems(document: Document, schema: Mapping[str, Any]) -> Iterator[Problem]:
    validator = Draft202012Validator(schema, format_checker=checker())
    for error in validator.iter_errors(document.value):
        yield from _problems(document, error)


def _problems(document: Document, error: _Error) -> Iterator[Problem]:
    path: KeyPath = tuple(error.absolute_path)
    if "propertyNames" in error.absolute_schema_path:
        yield Problem((*path, error.instance), _wanted(error))
    elif error.validator == "additionalProperties":
        yield from _unknown_keys(path, error)
    elif error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        yield Problem(path, f"misses {', '.join(missing)}")
    else:
        yield Problem(path, _wanted(error), _quote_hint(document, path, error))


def _unknown_keys(path: KeyPath, error: _Error) -> Iterator[Problem]:
    known = list(error.schema.get("properties", {}))
    for key in error.instance:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        yield Problem((*path, key), "unknown key", hint)


def _wanted(error: _Error) -> str:
    if error.validator == "format" and error.cause is not None:
        return f"{error.cause}, found {_shown(error.instance)}"
    return f"wanted {_expectation(error)}, found {_found(error.instance)}"


def _expectation(error: _Error) -> str:
    if "description" in error.schema:
        return str(error.schema["description"])
    wanted = error.validator_value
    match error.validator:
        case "type" if isinstance(wanted, str):
            return _TYPES[wanted]
        case "type":
            return " or ".join(_TYPES[name] for name in wanted)
        case "enum":
            return " or ".join(str(item) for item in wanted)
        case "minimum":
            return f"at least {wanted}"
        case "maximum":
            return f"at most {wanted}"
        case "exclusiveMinimum":
            return f"more than {wanted}"
        case "minItems":
            return f"at least {wanted} of them"
        case "maxLength":
            return f"at most {wanted} characters"
        case "pattern":
            return f"text that matches {wanted}"
    return str(error.message)


def _quote_hint(document: Document, path: KeyPath, error: _Error) -> str:
    literal = document.literal_of(path)
    wants_text = error.validator == "type" and "string" in error.validator_value
    if wants_text and literal and isinstance(error.instance, (bool, int, float)):
        return f'quote it: "{literal}"'
    return ""


def _found(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the {_kind(value)} {_shown(value)}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth value"
    return "number" if isinstance(value, (int, float)) else "text"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else text[:77] + "..."
