"""What a machine lacks is said with the command that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import MissingPart
from engine.provision.providers.lab.control_group import hierarchies
from engine.provision.providers.lab.machine import LIMITS, raise_limits, require, require_overlay

HYBRID = """\
25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 25 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_a_missing_package_comes_with_the_command() -> None:
    with pytest.raises(MissingPart) as error:
        require(which=lambda command: None if command in ("mmdebstrap", "nsenter", "setsid") else command)
    assert error.value.hint == "apt-get install --yes --no-install-recommends mmdebstrap util-linux"


def test_only_root_may_host_a_lab() -> None:
    with pytest.raises(MissingPart, match="root"):
        require(which=str, user_id=1000)
    require(which=str, user_id=0)


def test_a_kernel_without_overlay_is_named() -> None:
    require_overlay("nodev\ttmpfs\nnodev\toverlay\n")
    with pytest.raises(MissingPart, match="overlay"):
        require_overlay("nodev\ttmpfs\n\text4\n")


def test_control_groups_are_found_where_they_are_mounted() -> None:
    assert hierarchies(HYBRID) == (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))
    assert hierarchies("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n") == (Path("/sys/fs/cgroup"),)
    with pytest.raises(MissingPart):
        hierarchies("26 25 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")


def test_limits_are_only_ever_raised(tmp_path: Path) -> None:
    low, high = LIMITS
    for name, value in ((low, 128), (high, 10_000_000)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    raise_limits(tmp_path)
    assert int((tmp_path / low).read_text()) == LIMITS[low]
    assert int((tmp_path / high).read_text()) == 10_000_000


def test_a_limit_that_cannot_be_raised_is_named_with_the_command(tmp_path: Path) -> None:
    """A setting that not even root may change stands in for those of a container."""
    low = next(iter(LIMITS))
    (tmp_path / low).parent.mkdir(parents=True)
    (tmp_path / low).symlink_to("/proc/sys/kernel/cap_last_cap")
    with pytest.raises(MissingPart, match="cannot be raised") as error:
        raise_limits(tmp_path)
    assert error.value.hint.endswith("sysctl -w fs.inotify.max_user_instances=16384")
