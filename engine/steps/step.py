"""A release step as the engine sees it: what it is, whether it holds, and how it is applied."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.exceptions import NestedOperationError

from engine.errors import InvalidInput, StepFailed, TenantryError, UnknownState
from engine.hosts.plain import HostError
from engine.hosts.status import Answer
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.releases.digests import digest_of, directory_digest
from engine.releases.model import StepClass, StepInfo
from engine.steps.context import StepContext
from engine.steps.expectations import Expectation, Expects, File, Link, Place, is_written

Body = Callable[..., Iterable[Any]]
Precondition = Callable[[StepContext], Answer] | type[FactBase]
Keys = Iterable[str] | Callable[[Mapping[str, Any]], Iterable[str]]


@contextmanager
def fleet_code(what: str, kind: type[TenantryError]) -> Iterator[None]:
    """Raise what the fleet's own code gets wrong as an error of `kind` that names it: one step on one tenant."""
    try:
        yield
    except (TenantryError, HostError, NestedOperationError):
        raise
    except Exception as error:
        raise kind(f"{what} raised {type(error).__name__}: {error}", hint="correct the step's file") from error


@dataclass(frozen=True)
class Step:
    """One step of a fleet, made by the decorators of :mod:`engine.steps`.

    `restart` says that a change owes the gateway a restart. `bundle` is a directory below
    ``deploys/bundles``, `inputs` are files below ``deploys`` that also decide what is installed;
    ``{argument}`` in their names is filled in. `expects` is what the step leaves on a tenant. There is no way back
    across an `irreversible` one but a restore. Subclasses are the three classes.
    """

    name: str
    function: Callable[..., Any]
    precondition: Precondition | None = None
    writes: Keys = ()
    trades: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    restart: bool = False
    bundle: str | None = None
    inputs: tuple[str, ...] = ()
    expects: Expects = ()
    deploys: Path | None = None
    irreversible: bool = False

    step_class = StepClass.INSTALL

    @cached_property
    def info(self) -> StepInfo:
        """What planning and lint need to know."""
        return StepInfo(
            name=self.name,
            step_class=self.step_class,
            check_arguments=self.check_arguments,
            writes=self.keys,
            trades=self.trades,
            roles=self.roles,
            shipped_digest=self.shipped_digest,
        )

    def shipped_digest(self, arguments: Mapping[str, Any]) -> str:
        """The digest of the bundle and of the input files that these arguments name; empty without any."""
        bundle = self.bundle_directory(arguments)
        parts = [directory_digest(bundle) if bundle else ""]
        parts += [digest_of(path.read_bytes()) for path in self.input_files(arguments)]
        return parts[0] if len(parts) == 1 else digest_of("\n".join(parts).encode())

    def input_files(self, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """The fleet's files that decide what the step installs; raises :class:`InvalidInput` for a missing one."""
        deploys = self.deploys or Path()
        paths = tuple(deploys / self._filled(name, arguments) for name in self.inputs)
        for path in paths:
            if not path.is_file():
                raise InvalidInput(f"step {self.name} needs a file that is not there", where=str(path), hint="add it")
        return paths

    def bundle_directory(self, arguments: Mapping[str, Any]) -> Path | None:
        """Where the bundle lies in the fleet, or None for a step that ships nothing.

        Raises :class:`InvalidInput` for a bundle that is not there.
        """
        if self.bundle is None or self.deploys is None:
            return None
        directory = self.deploys / "bundles" / self._filled(self.bundle, arguments)
        if not directory.is_dir():
            raise InvalidInput(
                f"step {self.name} ships a bundle that is not there", where=str(directory), hint="create the directory"
            )
        return directory

    def keys(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The keys this step writes with these arguments; ``{argument}`` in a key is filled in."""
        if callable(self.writes):
            return frozenset(self.writes(self.with_defaults(arguments)))
        return frozenset(self._filled(key, arguments) for key in self.writes)

    def expectations(self, tenant: Tenant, settings: Settings, arguments: Mapping[str, Any]) -> tuple[Expectation, ...]:
        """What the step leaves on `tenant`; raises :class:`InvalidInput` for a key that it does not write."""
        place = Place(
            tenant, settings, self.with_defaults(arguments), self.bundle_directory(arguments), self.deploys or Path()
        )
        with fleet_code(f"`expects` of step {self.name}", InvalidInput):
            found = [item.at(place) for item in self.declared(place)]
        for item in found:
            if not self.writes_key(item.key, arguments, settings):
                raise InvalidInput(
                    f"step {self.name} expects {item.key}, which is not among what it writes",
                    hint=f"add it to `writes`: {', '.join(sorted(self.keys(arguments))) or 'nothing so far'}",
                )
        return tuple(found)

    def writes_key(self, key: str, arguments: Mapping[str, Any], settings: Settings) -> bool:
        """Whether the step writes what the expectation's `key` is about; rendered files count by name and path."""
        written = self.keys(arguments)
        names = {rendered.path: rendered.name for rendered in settings.rendered}
        return is_written(key, written) or is_written(_by_name(key, names), written)

    def declared(self, place: Place) -> Iterable[Expectation]:
        """The step's own expectations, those that its class brings among them."""
        return self.expects(place) if callable(self.expects) else self.expects

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` unless the step takes exactly these arguments and types."""
        try:
            self._signature.bind(**arguments)
        except TypeError as error:
            raise InvalidInput(f"step {self.name}: {error}", hint=f"it takes {self._signature}") from error
        hints = get_type_hints(self.function)
        for name, value in arguments.items():
            wanted = hints.get(name)
            # bool is an int to Python, but `port: true` is a mistake to a person.
            if isinstance(wanted, type) and (
                not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)
            ):
                raise InvalidInput(
                    f"step {self.name}: {name} must be {wanted.__name__}, not {value!r}",
                    hint="quote texts in YAML",
                )

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the step's own defaults for those that are left out."""
        bound = self._signature.bind(**arguments)
        bound.apply_defaults()
        return dict(bound.arguments)

    def applies_to(self, tenant: Tenant) -> bool:
        """Whether the step's trade and role conditions include `tenant`."""
        return (not self.trades or tenant.trade in self.trades) and (not self.roles or tenant.role in self.roles)

    def check(self, context: StepContext) -> Answer:
        """Whether the step's effect is there; reads the host now."""
        if self.precondition is None:
            return Answer.DOES_NOT_HOLD
        with fleet_code(f"the precondition of step {self.name}", UnknownState):
            if isinstance(self.precondition, type):
                answer = context.fact(self.precondition, **self.with_defaults(context.arguments))
            else:
                answer = self.precondition(context)
        return answer if isinstance(answer, Answer) else Answer.UNKNOWN

    def owes(self, context: StepContext) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Restart reasons and link switches that the step's change will owe."""
        return ((f"step {self.name}",) if self.restart else ()), {}

    def files(self, context: StepContext) -> frozenset[str]:
        """The paths of the files that the step says it writes."""
        keys = self.keys(context.arguments)
        return frozenset(key.removeprefix("file:") for key in keys if key.startswith("file:"))

    def commands(self, context: StepContext) -> Iterator[Any]:
        """The pyinfra commands that bring the effect about, in order."""
        bundle = self.bundle_directory(context.arguments)
        if bundle:
            context.staging = context.ship(bundle)
        with fleet_code(f"step {self.name}", StepFailed):
            yield from self.function(context, **context.arguments)

    def located(self, deploys: Path) -> Step:
        """This step with the directory that holds its bundle."""
        return replace(self, deploys=deploys)

    def deploy(self) -> None:
        """Start the step under pyinfra's own CLI; does nothing while the engine loads the file."""
        from engine.steps.operation import deploy_from_cli

        deploy_from_cli(self)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments that the step takes."""
        return tuple(self._signature.parameters)

    def _filled(self, text: str, arguments: Mapping[str, Any]) -> str:
        """`text` with each ``{argument}`` filled in; raises :class:`InvalidInput` for one the step does not take."""
        try:
            return text.format(**self.with_defaults(arguments))
        except (AttributeError, IndexError, KeyError, ValueError) as error:
            raise InvalidInput(
                f"step {self.name}: {text!r} cannot be filled in: {error}", hint=f"it takes {self._signature}"
            ) from error

    @cached_property
    def _signature(self) -> inspect.Signature:
        """The function's signature without its first parameter, the context or the text."""
        signature = inspect.signature(self.function)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


@dataclass(frozen=True)
class PatchStep(Step):
    """A narrow edit of one file by a pure function from text to text.

    `file` is an absolute path or the name of a file of the rendered set; the latter is also folded
    into what the set renders, so that plan, diff, apply and drift use the same edit. The precondition
    is that the edit changes nothing any more.
    """

    file: str = ""

    step_class = StepClass.PATCH

    def edit(self, text: str, arguments: Mapping[str, Any]) -> str:
        """The text after the edit; raises :class:`InvalidInput` if the function gives no text."""
        edited = self.function(text, **arguments)
        if not isinstance(edited, str):
            raise InvalidInput(f"step {self.name}: the edit returned {type(edited).__name__}, not text")
        return edited

    def keys(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        return super().keys(arguments) | {f"file:{self.file}"}

    def files(self, context: StepContext) -> frozenset[str]:
        return super().files(context) | {self.path(context.settings)}

    def path(self, settings: Settings) -> str:
        """The file's path on the host."""
        if self.file.startswith("/"):
            return self.file
        paths = {rendered.name: rendered.path for rendered in settings.rendered}
        if self.file not in paths:
            raise InvalidInput(
                f"step {self.name} edits {self.file!r}, which is not in the rendered set",
                hint=f"known: {', '.join(paths)}",
            )
        return paths[self.file]

    def owes(self, context: StepContext) -> tuple[tuple[str, ...], Mapping[str, str]]:
        rendered_restart = any(file.name == self.file and file.restart for file in context.settings.rendered)
        return ((f"step {self.name}",) if self.restart or rendered_restart else ()), {}

    def check(self, context: StepContext) -> Answer:
        from engine.steps.patching import text_to_edit

        text = text_to_edit(self, context)
        if isinstance(text, Answer):
            return Answer.UNKNOWN
        with fleet_code(f"the edit of step {self.name}", UnknownState):
            return Answer.of(text is not None and self.edit(text, context.arguments) == text)

    def commands(self, context: StepContext) -> Iterator[Any]:
        from engine.steps.patching import edit_commands

        return edit_commands(self, context)


@dataclass(frozen=True)
class UpgradeStep(Step):
    """A component moved to a version, side by side with the old one.

    The function installs into `directory`; the engine stamps it as complete, records that `link` must
    point to it, and switches the link in the restart window after a copy of the state.
    """

    link: str = ""
    directory: str = ""

    step_class = StepClass.UPGRADE

    def target(self, arguments: Mapping[str, Any]) -> str:
        """The versioned directory for these arguments."""
        return self._filled(self.directory, arguments)

    def keys(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        return super().keys(arguments) | {f"link:{self.link}"}

    def declared(self, place: Place) -> Iterable[Expectation]:
        """The link, and behind it the stamp of this version: an older directory may be removed by a person."""
        target = self.target(place.arguments)
        stamp = f"{target.rpartition('/')[2]}\n".encode()
        yield Link(self.link, target)
        yield File(stamp_of(self.link), content=stamp, mode=None, owner=None, group=None)
        yield from super().declared(place)

    def owes(self, context: StepContext) -> tuple[tuple[str, ...], Mapping[str, str]]:
        return (f"step {self.name}",), {self.link: self.target(context.arguments)}

    def check(self, context: StepContext) -> Answer:
        """Holds when the component is at the version, or is complete beside it with the switch owed."""
        answer = super().check(context)
        target = self.target(context.arguments)
        # With the switch owed it does not matter what is, or cannot be found, behind the link now.
        if answer is Answer.HOLDS or context.status.owed.switches.get(self.link) != target:
            return answer
        return self.is_prepared(context)

    def is_prepared(self, context: StepContext) -> Answer:
        """Whether the versioned directory is completely installed."""
        from engine.steps.facts import FileText

        stamp = context.fact(FileText, path=stamp_of(self.target(context.arguments)))
        return Answer.UNKNOWN if stamp is Answer.UNKNOWN else Answer.of(stamp is not None)

    def commands(self, context: StepContext) -> Iterator[Any]:
        prepared = self.is_prepared(context)
        if prepared is Answer.HOLDS:
            return
        target = self.target(context.arguments)
        # A directory without its stamp is what an interrupted run left: it is never repaired in place.
        yield StringCommand("rm", "-rf", "--", target)
        yield from super().commands(context)
        yield StringCommand(completion_of(target))


def stamp_of(directory: str) -> str:
    """The file that says that a versioned directory is complete; it holds the directory's name, the version."""
    return f"{directory}/.tenantry-complete"


def completion_of(directory: str) -> str:
    """The shell command that stamps a versioned directory, once everything in it is on the disk."""
    quoted, stamp = shlex.quote(directory), shlex.quote(stamp_of(directory))
    return f"sync -f {quoted} && basename {quoted} > {stamp} && sync {stamp} {quoted}"


def _by_name(key: str, names: Mapping[str, str]) -> str:
    """The key of a rendered file, or of a value in it, by the file's name, as patches write it."""
    kind, _, what = key.partition(":")
    path = what.partition("#")[0]
    return f"file:{names.get(path, path)}" if kind in ("file", "value") else key
