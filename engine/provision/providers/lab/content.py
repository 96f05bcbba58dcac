"""What a host's disk holds before its first boot beyond the base image."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.provision.providers.lab.model import HostContent

UNITS = "etc/systemd/system"
BYTECODE = "__pycache__"


def place(tree: Path, content: HostContent) -> None:
    """Put `content` into a host's tree. Only whether a file can be run is taken over from this machine's modes."""
    for path, directory in content.trees.items():
        _copy(directory, tree / path.lstrip("/"))
    for path, file in content.files.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    wanted = tree / UNITS / "multi-user.target.wants"
    wanted.mkdir(mode=0o755, exist_ok=True)
    for unit in content.units:
        (wanted / unit).symlink_to(f"/{UNITS}/{unit}")
    for unit in content.masked:
        (tree / UNITS / unit).symlink_to("/dev/null")


def _copy(source: Path, target: Path) -> None:
    target.mkdir(mode=0o755, parents=True)
    target.chmod(0o755)
    for entry in sorted(source.iterdir()):
        if entry.name == BYTECODE:
            continue
        if entry.is_dir():
            _copy(entry, target / entry.name)
        else:
            shutil.copyfile(entry, target / entry.name)
            (target / entry.name).chmod(0o755 if entry.stat().st_mode & 0o100 else 0o644)
