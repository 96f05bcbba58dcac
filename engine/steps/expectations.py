"""What a step leaves on a tenant, in words that a probe can be held against. Pure.

Each expectation has a key, such as ``file:/etc/motd``. Of several with the same key the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.releases.digests import digest_of


@dataclass(frozen=True)
class Place:
    """For whom and with what a step is asked for its expectations.

    `arguments` include the step's defaults; `bundle` is its bundle's directory here, None without one.
    """

    tenant: Tenant
    settings: Settings
    arguments: Mapping[str, Any]
    bundle: Path | None
    deploys: Path

    def tree(
        self, part: str, target: str, *, mode: str = "0644", owner: str = "root", group: str = "root"
    ) -> Iterator[File]:
        """A file expectation for each file below `part` of the bundle, under the host's directory `target`."""
        root = (self.bundle or self.deploys) / part
        for path in sorted(root.rglob("*")):
            if path.is_file():
                place = f"{target}/{path.relative_to(root).as_posix()}"
                yield File(place, content=path.read_bytes(), mode=mode, owner=owner, group=group)

    def path_of(self, file: str) -> str:
        """The host's path of a rendered file's name; an absolute path is itself."""
        paths = {rendered.name: rendered.path for rendered in self.settings.rendered}
        if not file.startswith("/") and file not in paths:
            raise InvalidInput(f"{file!r} is not in the rendered set", hint=f"known: {', '.join(paths)}")
        return paths.get(file, file)


@dataclass(frozen=True)
class Expectation:
    """One thing that must be so on the tenant."""

    @property
    def key(self) -> str:
        """What it is about."""
        raise NotImplementedError

    def at(self, place: Place) -> Expectation:
        """The same with everything filled in that depends on the fleet."""
        return self


@dataclass(frozen=True)
class File(Expectation):
    """A file that nobody else may change: its bytes, mode, owner and group.

    The bytes are those of `source`, a file of the step's bundle, or `content` itself. Without both, or with
    a None among the others, that much is not compared.
    """

    path: str
    source: str | None = None
    content: bytes | None = None
    mode: str | None = "0644"
    owner: str | None = "root"
    group: str | None = "root"
    digest: str | None = None

    @property
    def key(self) -> str:
        return f"file:{self.path}"

    def at(self, place: Place) -> Expectation:
        content = self.content
        if self.source is not None:
            content = _of_bundle(place, self.source)
        digest = self.digest if content is None else digest_of(content)
        return replace(self, source=None, content=None, digest=digest)


@dataclass(frozen=True)
class EditableFile(Expectation):
    """A file that the owner may edit: it must be there and hold `fragments`, whatever else it holds."""

    path: str
    fragments: tuple[str, ...] = ()
    mode: str | None = None
    owner: str | None = None
    group: str | None = None

    @property
    def key(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True)
class Absent(Expectation):
    """Nothing may be at `path`; what was expected there or below it before is no longer."""

    path: str

    @property
    def key(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True)
class Directory(Expectation):
    """A directory with its mode, owner and group; nothing is said of what is in it."""

    path: str
    mode: str | None = "0755"
    owner: str | None = "root"
    group: str | None = "root"

    @property
    def key(self) -> str:
        return f"directory:{self.path}"


@dataclass(frozen=True)
class Link(Expectation):
    """A symbolic link that leads to exactly `target`."""

    path: str
    target: str

    @property
    def key(self) -> str:
        return f"link:{self.path}"


@dataclass(frozen=True)
class Package(Expectation):
    """A Debian package that is completely installed, in exactly `version` if one is named."""

    name: str
    version: str | None = None

    @property
    def key(self) -> str:
        return f"package:{self.name}"


@dataclass(frozen=True)
class Unit(Expectation):
    """A systemd unit's state; None for what does not matter."""

    name: str
    active: bool | None = True
    enabled: bool | None = True

    @property
    def key(self) -> str:
        return f"unit:{self.name}"


@dataclass(frozen=True)
class Group(Expectation):
    """A group that has at least these members."""

    name: str
    members: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"group:{self.name}"


@dataclass(frozen=True)
class Value(Expectation):
    """One value of a configuration file in YAML or JSON, by its dotted name; never a secret one.

    `file` is an absolute path or the name of a file of the rendered set.
    """

    file: str
    name: str
    value: Any

    @property
    def key(self) -> str:
        return f"value:{self.file}#{self.name}"

    def at(self, place: Place) -> Expectation:
        return replace(self, file=place.path_of(self.file))


@dataclass(frozen=True)
class Model(Expectation):
    """The model that the gateway is configured to use for `purpose`, such as ``chat``."""

    purpose: str
    name: str

    @property
    def key(self) -> str:
        return f"model:{self.purpose}"


@dataclass(frozen=True)
class RouteAnswer(Expectation):
    """The HTTP status that one of the fleet's routes answers with."""

    route: str
    status: int

    @property
    def key(self) -> str:
        return f"route:{self.route}"


Expects = Iterable[Expectation] | Callable[[Place], Iterable[Expectation]]
"""What a step may declare: the expectations, or a pure function that gives them."""


def shipped(files: Mapping[str, str], modes: Mapping[str, str] | None = None) -> tuple[File, ...]:
    """Files of the step's bundle on the host, root's with mode 0644 unless `modes` says otherwise.

    `files` maps the host's path to the name in the bundle.
    """
    return tuple(File(path, source=name, mode=(modes or {}).get(path, "0644")) for path, name in files.items())


def is_written(key: str, keys: Iterable[str]) -> bool:
    """Whether a step that writes `keys` writes what `key` is about.

    A directory or link that it writes covers what lies in it, a file covers the values in it.
    """
    kind, _, name = key.partition(":")
    place = name.partition("#")[0]
    return any(_covers(written, kind, name, place) for written in keys)


def _covers(written: str, kind: str, name: str, place: str) -> bool:
    by, _, what = written.partition(":")
    if (by, what) == (kind, name):
        return True
    if by == "file":
        return kind == "value" and what == place
    return by in ("directory", "link") and (place == what or place.startswith(f"{what}/"))


def _of_bundle(place: Place, name: str) -> bytes:
    if place.bundle is None:
        raise InvalidInput(f"the step ships no bundle, so no {name!r} either", hint="give the file's content instead")
    path = place.bundle / name
    if not path.is_file():
        raise InvalidInput("the bundle has no such file", where=str(path), hint="correct the name in `expects`")
    return path.read_bytes()
