"""What is in every archive and what is not, as the fleet declares it. Pure."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from engine.backups.reading import OWN
from engine.errors import InvalidInput
from engine.hosts.host_lock import HOME
from engine.registry.safeguards import Content
from engine.registry.settings import Settings

ENGINE = "engine"
RENDERED = "rendered"


@dataclass(frozen=True)
class Included:
    """A path that goes into every archive, with what below it stays out.

    `kind` is that of the content, or ``engine`` and ``rendered`` for what belongs to every tenant unlisted.
    """

    name: str
    kind: str
    path: str
    exclude: tuple[str, ...] = ()


def included(settings: Settings) -> tuple[Included, ...]:
    """Everything that goes into an archive where it is there; nothing else does."""
    own = [Included(f"engine's {name}", ENGINE, f"{HOME}/{name}") for name in ("version", "applied.json", "receipts")]
    listed = [Included(item.name, item.kind.value, item.path, item.exclude) for item in settings.contents]
    implied = [Included(path.rpartition("/")[2], RENDERED, path) for path in implied_files(settings)]
    return (*listed, *own, *implied)


def implied_files(settings: Settings) -> tuple[str, ...]:
    """The paths that belong to every tenant's configuration without being listed."""
    paths = [file.path for file in settings.rendered]
    if settings.gateway:
        paths += [f"/etc/systemd/system/{settings.gateway.unit}", settings.gateway.runtime_link]
    return tuple(dict.fromkeys(paths))


def check_contents(settings: Settings) -> None:
    """Raise :class:`InvalidInput` for contents that an archive could not hold as they are declared."""
    for item in settings.contents:
        if f"{item.path}/".startswith(f"/{OWN[1]}"):
            raise InvalidInput(f"content {item.name}: {item.path} is where an archive keeps its own description")
        for other in settings.contents:
            if item is not other and _is_excluded_by(item, other):
                raise InvalidInput(
                    f"content {item.name}: {item.path} is left out by the excludes of content {other.name}",
                    where="inventory/fleet.yaml",
                    hint="an exclude holds for the whole archive; exclude what is beside it instead",
                )


def _is_excluded_by(item: Content, other: Content) -> bool:
    if not item.path.startswith(other.path + "/"):
        return False
    parts = item.path[len(other.path) + 1 :].split("/")
    for pattern in other.exclude:
        wanted = pattern.strip("/").split("/")
        if len(wanted) <= len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted)):
            return True
    return False
