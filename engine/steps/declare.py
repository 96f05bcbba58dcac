"""The decorators that turn a function into a release step of one of the three classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.errors import InvalidInput
from engine.steps.expectations import Expects
from engine.steps.step import Body, Keys, PatchStep, Precondition, Step, UpgradeStep


def install(
    *,
    precondition: Precondition,
    bundle: str | None = None,
    writes: Keys = (),
    trades: Iterable[str] = (),
    roles: Iterable[str] = (),
    inputs: Iterable[str] = (),
    expects: Expects = (),
    restart: bool = False,
    irreversible: bool = False,
) -> Callable[[Body], Step]:
    """An install step: ships a bundle and runs its installer.

    The function is ``f(context, *, argument: type = default)`` and yields pyinfra commands, or the
    commands of other operations through their ``_inner``. It runs only where `precondition` does not
    hold, and `precondition` must hold afterwards.

    `bundle` names a directory below ``deploys/bundles`` that lies at ``context.staging`` while the
    function runs. `inputs` are files below ``deploys`` that decide what is installed besides the bundle.
    Both may hold arguments: with ``robots-{edition}``, changed content is another directory, named by
    another release, and the releases before it stay as they were applied.

    `expects` is what the step leaves on a tenant, for ``tenantry drift``: a sequence of expectations, or a pure
    function of a :class:`engine.steps.expectations.Place` that gives them. Their keys must be in `writes`.
    """

    def declare(function: Body) -> Step:
        return Step(
            name=function.__name__,
            function=function,
            precondition=precondition,
            bundle=bundle,
            writes=writes,
            trades=frozenset(trades),
            roles=frozenset(roles),
            inputs=tuple(inputs),
            expects=expects,
            restart=restart,
            irreversible=irreversible,
        )

    return declare


def patch(
    *,
    file: str,
    writes: Keys = (),
    trades: Iterable[str] = (),
    roles: Iterable[str] = (),
    expects: Expects = (),
    restart: bool = False,
    irreversible: bool = False,
) -> Callable[[Callable[..., str]], PatchStep]:
    """A patch step: a pure function ``f(text, *, argument: type) -> text`` over one file.

    `file` is the name of a rendered file or an absolute path. A copy of the file as it was before the
    step's first edit is kept on the host and never overwritten. `writes` are keys besides the file's own.
    """

    def declare(function: Callable[..., str]) -> PatchStep:
        return PatchStep(
            name=function.__name__,
            function=function,
            file=file,
            writes=writes,
            trades=frozenset(trades),
            roles=frozenset(roles),
            expects=expects,
            restart=restart,
            irreversible=irreversible,
        )

    return declare


def upgrade(
    *,
    link: str,
    directory: str,
    precondition: Precondition,
    bundle: str | None = None,
    inputs: Iterable[str] = (),
    writes: Keys = (),
    expects: Expects = (),
    irreversible: bool = False,
) -> Callable[[Callable[..., Iterable[Any]]], UpgradeStep]:
    """An upgrade step: installs a version into `directory` (``/opt/x/{version}``) beside the old one.

    `precondition` says whether the component behind `link` is at the version or above. The link is
    switched in the restart window, after a copy of the state. The link, and the completion stamp behind it, are
    expected without being declared.

    Here and in the other classes, `irreversible` says that nothing can take the step back: the plan shows it, and a
    rollback across it is refused in favour of a restore.
    """
    if "{" not in directory:
        raise InvalidInput(
            f"upgrade directory {directory!r} names no argument", hint="use a form like /opt/x/{version}"
        )

    def declare(function: Callable[..., Iterable[Any]]) -> UpgradeStep:
        return UpgradeStep(
            name=function.__name__,
            function=function,
            precondition=precondition,
            bundle=bundle,
            inputs=tuple(inputs),
            writes=writes,
            expects=expects,
            restart=True,
            irreversible=irreversible,
            link=link,
            directory=directory,
        )

    return declare
