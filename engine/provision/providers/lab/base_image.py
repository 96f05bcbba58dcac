"""The read-only Debian tree that all hosts of a lab share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CommandFailed
from engine.provision.providers.lab import package_sources
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.filelock import held

ESSENTIAL_PACKAGES = (
    "ca-certificates",
    "cloud-init",
    "dbus",
    "iproute2",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "sudo",
    "systemd",
    "systemd-sysv",
)
"""What a cloud provider's plain Debian server has, and no more."""

RECIPE = 4
"""Raise it with every change of how an image is made: images of another recipe are not used."""

MASKED_UNITS = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "cloud-init-hotplugd.socket",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "systemd-pstore.service",
    "unattended-upgrades.service",
)
"""Units for consoles and block devices, which a lab host has none of, and for updates that start by themselves."""

JOURNAL_CONFIG = """\
[Journal]
SystemMaxFileSize=1M
RuntimeMaxFileSize=1M
SystemMaxUse=16M
"""
"""Small files: journald would set aside 8 MB of disk and 8 MB of memory a host at once."""

CLOUD_CONFIG = """\
# The host key is in place before the first boot, so that it can be pinned.
ssh_deletekeys: false
ssh_genkeytypes: [ed25519]
# The address is set from outside.
network: {config: disabled}
datasource_list: [NoCloud, None]
manage_etc_hosts: true
# Debian's default module fails where the locales package is not installed.
locale: C.UTF-8
cloud_init_modules:
  - bootcmd
  - write-files
  - set_hostname
  - update_hostname
  - update_etc_hosts
  - users-groups
  - ssh
cloud_config_modules:
  - locale
  - set-passwords
  - timezone
  - runcmd
cloud_final_modules:
  - package-update-upgrade-install
  - write-files-deferred
  - scripts-per-once
  - scripts-per-boot
  - scripts-per-instance
  - scripts-user
  - final-message
  - power-state-change
"""
"""System configuration of cloud-init: only the modules that a server without devices can use."""

_UNNEEDED_FILES = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)


@dataclass(frozen=True)
class ImageRecipe:
    """What decides an image's content."""

    suite: str
    packages: tuple[str, ...]

    @property
    def all_packages(self) -> tuple[str, ...]:
        return tuple(sorted({*ESSENTIAL_PACKAGES, *self.packages}))

    @property
    def digest(self) -> str:
        """Name of the image in a cache, 16 hexadecimal digits."""
        content = json.dumps([RECIPE, self.suite, self.all_packages])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class ImageCache:
    """Base images in a directory that several labs may share.

    An image appears whole under its digest or not at all, and is never changed afterwards.
    """

    def __init__(self, directory: Path, progress: Callable[[str], None]) -> None:
        self._directory = directory
        self._progress = progress

    def ensure(self, recipe: ImageRecipe) -> Path:
        """Return the image of `recipe`, built first if need be (half a minute, 400 MB).

        Raises `MissingPart` without package sources and `CommandFailed` if the build fails.
        """
        image = self._directory / recipe.digest
        if image.is_dir():
            return image
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = self._directory / f"{recipe.digest}.lock"
        with held(lock, lambda: self._progress("waiting for another build of the base image")) as descriptor:
            if not image.is_dir():
                self._build(recipe, image, Commands((descriptor,)))
        return image

    def _build(self, recipe: ImageRecipe, image: Path, commands: Commands) -> None:
        packages = len(recipe.all_packages)
        self._progress(f"building the base image: Debian {recipe.suite}, {packages} packages asked for")
        partial = image.with_name(f".{image.name}.partial")
        _discard(partial, commands)
        try:
            commands.run(*_bootstrap_command(recipe, partial, commands))
        except CommandFailed as failure:
            raise CommandFailed(
                f"the base image could not be built: {failure.message}",
                where=str(image),
                hint="see that this machine's package sources work: apt-get update",
            ) from failure
        finish(partial)
        commands.run("sync", "--file-system", str(partial))
        os.replace(partial, image)
        self._progress(f"base image {image.name} is ready")


def _discard(tree: Path, commands: Commands) -> None:
    """Remove what a killed build left, and first what it had mounted in there, such as this machine's devices."""
    for mount_point in reversed(mounts_below(tree, Path("/proc/self/mountinfo").read_text())):
        commands.run("umount", str(mount_point))
    commands.run("rm", "-rf", "--one-file-system", str(tree))


def mounts_below(directory: Path, mountinfo: str) -> tuple[Path, ...]:
    """Return the mount points below a directory, in the order in which they were mounted."""
    # The kernel writes blanks and backslashes of a path as octal escapes.
    points = (line.split(" ")[4].encode().decode("unicode_escape") for line in mountinfo.splitlines())
    paths = (Path(os.fsdecode(point.encode("latin-1"))) for point in points)
    return tuple(path for path in paths if path.is_relative_to(directory))


def _bootstrap_command(recipe: ImageRecipe, target: Path, commands: Commands) -> tuple[str, ...]:
    options = package_sources.carried_options(commands.run("apt-config", "dump"))
    return (
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(recipe.all_packages)}",
        *(f"--aptopt={option}" for option in options),
        *(f"--dpkgopt={line}" for line in _UNNEEDED_FILES),
        recipe.suite,
        str(target),
        *package_sources.of_machine(recipe.suite, commands),
    )


def finish(tree: Path) -> None:
    """Turn a fresh Debian tree into an image: no identity, no package sources, no needless units."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for leftover in ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/hostname"):
        (tree / leftover).unlink(missing_ok=True)
    for cache in ("var/lib/apt/lists", "var/cache/apt", "var/log"):
        _empty(tree / cache)
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/resolv.conf").write_text("")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (tree / "etc/cloud/cloud.cfg.d/90_tenantry_lab.cfg").write_text(CLOUD_CONFIG)
    journal = tree / "etc/systemd/journald.conf.d/90_tenantry_lab.conf"
    journal.parent.mkdir(exist_ok=True)
    journal.write_text(JOURNAL_CONFIG)
    for unit in MASKED_UNITS:
        link = tree / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def _empty(directory: Path) -> None:
    """Remove the files under a directory; packages rely on the directories themselves."""
    for path in directory.rglob("*"):
        if path.is_file() or path.is_symlink():
            path.unlink()
