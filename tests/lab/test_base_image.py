"""Builds of the base image; the builder itself is replaced by one that waits to be told to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.waiting import until

BUILDER = """#!/bin/sh
for argument; do case $argument in /*/.*.partial) tree=$argument;; esac; done
mkdir -p "$tree/etc/ssh" "$tree/etc/cloud/cloud.cfg.d" "$tree/etc/systemd/system" "$tree/etc/apt/apt.conf.d"
mkdir -p "$tree/var/lib/apt/lists" "$tree/var/cache/apt" "$tree/var/log"
echo private > "$tree/etc/ssh/ssh_host_rsa_key"
while [ ! -e "$GO" ]; do sleep 0.05; done
echo built >> "$BUILDS"
echo complete > "$tree/complete"
[ ! -e "$BROKEN" ] || { echo no such package >&2; exit 25; }
"""

BUILD = """
import sys
from pathlib import Path
from engine.errors import CommandFailed
from engine.provision.providers.lab.base_image import ImageCache, ImageRecipe
try:
    print(ImageCache(Path(sys.argv[1]), lambda text: print(text, flush=True)).ensure(ImageRecipe("bookworm", ())))
except CommandFailed as error:
    sys.exit(str(error))
"""


class Builds:
    """Image builds in processes of their own, with a stand-in for the builder."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cache"
        self.go, self.broken, self.builds = directory / "go", directory / "broken", directory / "builds"
        tools = directory / "tools"
        tools.mkdir()
        (tools / "mmdebstrap").write_text(BUILDER)
        (tools / "mmdebstrap").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "GO": str(self.go),
            "BROKEN": str(self.broken),
            "BUILDS": str(self.builds),
        }

    def start(self) -> subprocess.Popen[str]:
        argv = (sys.executable, "-c", BUILD, str(self.cache))
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    @property
    def begun(self) -> bool:
        return any(self.cache.glob(".*.partial/var/log"))

    @property
    def images(self) -> list[Path]:
        return [path for path in self.cache.glob("[0-9a-f]*") if path.is_dir()]


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def test_an_image_appears_whole_and_once(builds: Builds) -> None:
    running = [builds.start() for _ in range(3)]
    until(lambda: builds.begun, "a build has begun")
    assert builds.images == []
    builds.go.touch()
    said = {process.communicate()[0].splitlines()[-1] for process in running}
    (image,) = builds.images
    assert said == {str(image)}
    assert builds.builds.read_text() == "built\n"
    assert (image / "complete").exists()
    assert not list((image / "etc/ssh").iterdir())
    assert (image / "etc/machine-id").read_text() == ""


def test_a_killed_build_is_waited_for_and_done_again(builds: Builds) -> None:
    killed = builds.start()
    until(lambda: builds.begun, "a build has begun")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    again = builds.start()
    assert again.stdout is not None
    assert "waiting" in again.stdout.readline()
    builds.go.touch()
    again.communicate()
    assert again.returncode == 0
    assert len(builds.images) == 1
    assert builds.builds.read_text() == "built\nbuilt\n"


def test_what_a_killed_build_left_mounted_does_not_stop_the_next_one(builds: Builds) -> None:
    builds.go.touch()
    assert builds.start().wait() == 0
    (image,) = builds.images
    partial = image.with_name(f".{image.name}.partial")
    image.rename(partial)
    inner = partial / "dev" / "a b"
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "--mkdir", partial / "dev"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "--mkdir", inner], check=True)
    _, said = builds.start().communicate()
    assert said == ""
    assert builds.images == [image] and not partial.exists()


def test_a_failed_build_says_why_and_leaves_no_image(builds: Builds) -> None:
    builds.go.touch()
    builds.broken.touch()
    _, said = builds.start().communicate()
    assert "no such package" in said and "apt-get update" in said
    assert builds.images == []
    builds.broken.unlink()
    assert builds.start().wait() == 0
