"""The steps of a fleet, loaded by path so that two fleets in one process cannot collide."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

from engine.errors import InvalidInput, TenantryError
from engine.releases.model import StepInfo
from engine.steps.step import Step


class Catalog(Mapping[str, Step]):
    """The steps of one fleet by name."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._steps = MappingProxyType(dict(steps))

    def __getitem__(self, name: str) -> Step:
        return self._steps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def infos(self) -> Mapping[str, StepInfo]:
        """What planning and lint need, without the code."""
        return {name: step.info for name, step in self._steps.items()}


def load_catalog(fleet_root: Path) -> Catalog:
    """Load ``deploys/steps/*.py``; raises :class:`InvalidInput` naming the file that cannot be used."""
    deploys = fleet_root / "deploys"
    return Catalog(
        {
            path.stem: _load_step(path, deploys)
            for path in sorted((deploys / "steps").glob("*.py"))
            if path.stem != "__init__"
        }
    )


def load_module(path: Path) -> ModuleType:
    """Run a fleet's Python file under a name that only this path can have."""
    name = f"tenantry_fleet_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None or not path.exists():
        raise InvalidInput("the file cannot be loaded", where=str(path), hint="is it there and readable?")
    module = importlib.util.module_from_spec(specification)
    # Dataclasses and type hints look their module up by name while it runs.
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except TenantryError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{type(error).__name__}: {error}", where=_place(path, error), hint="correct the file"
        ) from error
    return module


def _load_step(path: Path, deploys: Path) -> Step:
    steps = [value for value in vars(load_module(path)).values() if isinstance(value, Step)]
    if len(steps) != 1 or steps[0].name != path.stem:
        found = ", ".join(step.name for step in steps) or "none"
        raise InvalidInput(
            f"a step file holds one step named like the file, found: {found}",
            where=str(path),
            hint=f"define one step called {path.stem}",
        )
    return steps[0].located(deploys)


def _place(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno}"
    line, traceback = 0, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"{path}:{line}" if line else str(path)
