"""A change of every thing that a tenant is expected to be, made from the expectations themselves."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping

from engine.drift.expected import Expected
from engine.registry.settings import Settings
from engine.steps.expectations import (
    Absent,
    Directory,
    EditableFile,
    Expectation,
    File,
    Group,
    Link,
    Model,
    Package,
    RouteAnswer,
    Unit,
    Value,
)

# No package index is there, so a package is made what an interrupted dpkg leaves: half configured.
UNCONFIGURE = """\
python3 - {name} <<'END'
import os, re, sys
path = "/var/lib/dpkg/status"
text = open(path).read()
stanza = re.compile(r"(^Package: %s\\nStatus: install ok )installed$" % re.escape(sys.argv[1]), re.MULTILINE)
assert len(stanza.findall(text)) == 1
open(path + ".new", "w").write(stanza.sub(r"\\1half-configured", text))
os.rename(path + ".new", path)
END
"""


def plants(expected: Mapping[str, Expected], settings: Settings) -> Iterator[str]:
    """A shell command for each key; units are stopped first, while their files are still what they were."""
    turns = itertools.count()
    items = sorted((item.expectation for item in expected.values()), key=lambda item: not isinstance(item, Unit))
    for item in items:
        yield plant(item, next(turns), settings)


def plant(item: Expectation, turn: int, settings: Settings) -> str:
    """The command that makes `item` untrue; `turn` lets files differ in another aspect each."""
    match item:
        case File():
            return plant_file(item, turn, settings)
        case EditableFile():
            path = shlex.quote(item.path)
            return f"echo edited > {path}" if item.fragments else f"rm {path}"
        case Absent():
            return f"touch {shlex.quote(item.path)}"
        case Directory():
            return f"chmod 0701 {shlex.quote(item.path)}"
        case Link():
            return f"ln -sfn $(ls -d {item.path.rpartition('/')[0]}/[0-9]* | head -n 1) {item.path}"
        case Package():
            return UNCONFIGURE.format(name=shlex.quote(item.name))
        case Unit():
            return f"systemctl disable --quiet --now {shlex.quote(item.name)}"
        case Group():
            return f"gpasswd --delete {shlex.quote(item.members[0])} {shlex.quote(item.name)}"
        case Model():
            assert settings.gateway
            return f"sed -i 's/{item.name}/another-model/' {settings.gateway.config_file}"
        case Value():
            first = item.value[0]
            return f"sed -i '/^  {item.name.rpartition('.')[2]}: /s/{first}/elsewhere.example/' {item.file}"
        case RouteAnswer():
            # Its parts are planted: the proxy does not run.
            return "true"
    raise TypeError(f"nothing plants {item!r}")


def plant_file(item: File, turn: int, settings: Settings) -> str:
    path = shlex.quote(item.path)
    if settings.gateway and item.path.startswith(f"{settings.gateway.runtime_link}/"):
        # Behind the link, which leads to another version's stamp.
        return "true"
    if item.digest is None or (settings.gateway and item.path == settings.gateway.config_file):
        return f"chmod 0604 {path}"
    aspects = (
        f"echo '# somebody was here' >> {path}",
        f"chmod 0604 {path}",
        f"chown nobody {path}",
        f"chgrp nogroup {path}",
        f"rm {path}",
        f"mv {path} /var/tmp/moved-{turn} && ln -s /var/tmp/moved-{turn} {path}",
    )
    return aspects[turn % len(aspects)]
