"""A host's disk as it is at one moment, kept as another host that is off and can be started later."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.provision.providers.lab import Lab
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.network import free_index
from engine.provision.providers.lab.state import Phase
from tests.lab.waiting import until

# Installed runtimes are never written to in place, so the copy may share their files; overlay attributes stay.
COPY = """
set -euo pipefail
mkdir -p "$2/opt"
tar --create --xattrs --xattrs-include='*' --exclude=./opt/runtime --directory="$1" . |
    tar --extract --xattrs --xattrs-include='*' --same-owner --same-permissions --directory="$2"
if [ -d "$1/opt/runtime" ]; then cp --archive --link "$1/opt/runtime" "$2/opt/"; fi
"""


def park(lab: Lab, slug: str, parked: str) -> None:
    """Keep the running host's disk as the new host `parked`, which is the same one but for its address.

    All processes stand still meanwhile: the copy is what a power cut at this moment would leave.
    """
    record = lab.state.read_host(slug)
    assert record is not None
    index = free_index(known.index for known in lab.state.read_hosts())
    disk = lab.state.disk(parked)
    (disk / "volume/upper").mkdir(parents=True)
    (disk / "base").symlink_to((lab.state.disk(slug) / "base").readlink())
    with frozen(lab, slug):
        own = lab.state.disk(slug) / "volume/upper"
        subprocess.run(["bash", "-c", COPY, "copy", str(own), str(disk / "volume/upper")], check=True)
    lab.state.write_host(replace(record.stopped(), slug=parked, index=index, phase=Phase.PREPARED))


@contextmanager
def frozen(lab: Lab, slug: str) -> Iterator[None]:
    """Let no process of the host run."""
    group: Path = ControlGroup.of_machine(lab.names.group, slug).directories[0]
    (group / "cgroup.freeze").write_text("1")
    try:
        until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), f"{slug} stands still")
        yield
    finally:
        (group / "cgroup.freeze").write_text("0")
