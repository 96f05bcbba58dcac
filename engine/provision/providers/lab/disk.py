"""The disk of a host: an overlay of its own files over the shared base image."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CommandFailed, UnknownState
from engine.provision.providers.lab.commands import Commands

UNMOUNT_SECONDS = 10.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Disk:
    """`root` is where the whole tree is mounted, `directory` keeps what is the host's own.

    With a limit, what is the host's own lives in memory: writing past `limit_bytes` fails with "no
    space left on device", and switching the host off loses it.
    """

    root: Path
    directory: Path
    limit_bytes: int | None = None

    @property
    def base(self) -> Path:
        """The link to the base image that this disk was made over, and only makes sense with."""
        return self.directory / "base"

    @property
    def usable(self) -> bool:
        """Whether the host can be started again with what it wrote."""
        survives = self.limit_bytes is None or os.path.ismount(self._volume)
        return survives and self.base.is_dir()

    @property
    def _volume(self) -> Path:
        return self.directory / "volume"

    def wipe(self) -> None:
        """Unmount and delete everything the host ever wrote."""
        self.unmount()
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def create(self, image: Path) -> None:
        """Lay out an empty disk over an image, replacing the present one."""
        self.wipe()
        self._volume.mkdir(parents=True)
        self.base.symlink_to(image)

    def copy(self, source: Disk, commands: Commands) -> None:
        """Become a copy of the disk of a host that is off, replacing the present one.

        Where the file system can share blocks, that costs next to nothing.
        """
        self.create(source.base.readlink())
        commands.run("cp", "--archive", "--reflink=auto", str(source._volume / "upper"), str(self._volume))

    def mount(self, commands: Commands) -> None:
        """Make the tree appear at `root`; raises `CommandFailed` if the file system cannot carry it."""
        self.unmount()
        self.root.mkdir(parents=True, exist_ok=True)
        if self.limit_bytes is not None:
            size = f"size={self.limit_bytes},mode=0755"
            commands.run("mount", "-t", "tmpfs", "-o", size, "tenantry-lab", str(self._volume))
        for part in ("upper", "work"):
            (self._volume / part).mkdir(exist_ok=True)
        # The upper directory's mode is the mode of the host's root directory.
        (self._volume / "upper").chmod(0o755)
        # Relative to the disk, because a state directory may have commas and colons in its name.
        layers = "lowerdir=base,upperdir=volume/upper,workdir=volume/work"
        root = os.path.relpath(self.root, self.directory)
        try:
            commands.run("mount", "-t", "overlay", "-o", layers, "overlay", root, directory=self.directory)
        except CommandFailed as failure:
            raise CommandFailed(
                failure.message,
                where=str(self.directory),
                hint="an overlay needs a real file system under it: choose another place with --state-dir",
            ) from failure

    def unmount(self) -> None:
        """Take the tree away again, as far as it is there."""
        for mount_point in (self.root, self._volume):
            while os.path.ismount(mount_point):
                _unmount(mount_point)
        if self.root.exists():
            self.root.rmdir()


def _unmount(mount_point: Path) -> None:
    """Unmount one layer; the kernel may need a moment to drop an ended host's last files."""
    deadline = time.monotonic() + UNMOUNT_SECONDS
    while True:
        try:
            Commands().run("umount", str(mount_point))
            return
        except CommandFailed as failure:
            if time.monotonic() > deadline:
                raise UnknownState(failure.message, where=str(mount_point)) from failure
            time.sleep(POLL_SECONDS)
