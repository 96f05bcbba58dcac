"""The Jinja environment of a fleet's templates: strict, without escaping, and repeatable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import walk_tb
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound
from jinja2.exceptions import TemplateSyntaxError

from engine.errors import InvalidInput, TenantryError
from engine.render.filters import FILTERS

_NOT_REPEATABLE = ("lipsum", "random")


class _Undefined(StrictUndefined):
    """Undefined that names what there is, in the words of the registry instead of Python's."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        if not isinstance(self._undefined_obj, Mapping):
            return super()._undefined_message
        known = ", ".join(str(key) for key in self._undefined_obj) or "nothing"
        return f"there is no value {self._undefined_name!r} here, only {known}"


class _TemplateLoader(FileSystemLoader):
    """Reads templates below one directory; a link that leads out of it is not followed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._root = directory.resolve()

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, name, current = super().get_source(environment, template)
        if not Path(name).resolve().is_relative_to(self._root):
            raise TemplateNotFound(template, f"{template} leads out of {self._root}")
        return source, name, current


class _Environment(Environment):
    """Looks into mappings by key first: a parameter may be called ``items`` or ``keys``."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def make_environment(directory: Path) -> Environment:
    """Return the environment for the templates in `directory`."""
    environment = _Environment(
        loader=_TemplateLoader(directory),
        undefined=_Undefined,
        finalize=_finalize,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(FILTERS)
    for name in _NOT_REPEATABLE:
        environment.globals.pop(name, None)
        environment.filters.pop(name, None)
    return environment


def render_template(environment: Environment, directory: Path, name: str, context: Mapping[str, Any]) -> str:
    """Render the template `name`; raises :class:`InvalidInput` with the template's file and line.

    `directory` is the directory the environment was made for: it names the place of an error.
    """
    try:
        return environment.get_template(name).render(context)
    except Exception as error:  # whatever an expression raises, the template has to answer for it
        raise _explain(error, directory, name) from error


def _explain(error: Exception, directory: Path, name: str) -> InvalidInput:
    where = _place(error, directory) or str(directory / name)
    match error:
        case TemplateSyntaxError():
            place = f"{error.filename or directory / name}:{error.lineno}"
            return InvalidInput(f"not a valid template: {error.message}", where=place)
        case TemplateNotFound():
            return InvalidInput(f"there is no template {error.name!r} in {directory}", where=where)
        case UnicodeDecodeError():
            return InvalidInput(f"not UTF-8 text: {error}", where=where)
        case TenantryError():
            return InvalidInput(error.message, where=where, hint=error.hint)
        case _:
            return InvalidInput(f"cannot be rendered: {error}", where=where)


def _place(error: BaseException, directory: Path) -> str:
    """The innermost template line that `error` passed through; Jinja shows templates as frames."""
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).is_relative_to(directory):
            place = f"{frame.f_code.co_filename}:{line}"
    return place


def _finalize(value: Any) -> Any:
    """Let through what has one obvious text; a list, a mapping or nothing has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        raise InvalidInput("an expression has no value (null)", hint="give it a value in the registry")
    if not isinstance(value, (str, int, float, StrictUndefined)):
        raise InvalidInput(f"an expression is {_kind(value)}, not text", hint="write it with the filter json")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, (list, tuple)) else f"of the type {type(value).__name__}"
