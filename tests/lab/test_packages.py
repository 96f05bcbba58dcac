"""Packages on a real host, from a small repository of our own: locks, prompts, interruptions."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.errors import PackagesInterrupted, PackagesLocked, TenantryError
from engine.steps import StepContext
from engine.steps.packages import require_packages
from engine.updater.fleet import ask_many
from tests.lab.light_fleet import LightFleet
from tests.lab.waiting import until

CONTROL = (
    "Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.invalid>\nDescription: {name}\n"
)

# What a package's own script sees: whether it could ask somebody, and what needrestart was told.
WITNESS = """\
#!/bin/sh
echo "$DEBIAN_FRONTEND $NEEDRESTART_MODE $(test -t 0 && echo terminal || echo none)" > /run/witness
"""
DIES_ONCE = """\
#!/bin/sh
[ -e /run/died-once ] && exit 0
touch /run/died-once
kill -9 $(pgrep -x dpkg)
"""
PACKAGES = {"gentle": WITNESS, "mortal": DIES_ONCE, "plain": "#!/bin/sh\nexit 0\n"}

LOCKER = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o640)
fcntl.lockf(descriptor, fcntl.LOCK_EX)
open("/run/locked", "w").close()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.05)
time.sleep(float(sys.argv[2]))
"""

# The first question of an installation tells when it was put.
ASKED = "/run/asked"
WITNESSED_QUERY = f"""\
#!/bin/sh
touch {ASKED}
exec /usr/bin/dpkg-query "$@"
"""

REPLACE_A_LIBRARY = """
library=$(grep -o '/usr/lib/[^ ]*/libz\\.so[^ ]*\\|/usr/lib/[^ ]*/libexpat\\.so[^ ]*' /proc/{pid}/maps | head -n 1)
cp -a "$library" "$library.new"
mv "$library.new" "$library"
echo "$library"
"""


@dataclass
class Apt:
    """The host of `fleet` and what phases said while they installed packages there."""

    fleet: LightFleet
    told: list[str]

    def require(self, *names: str, lock_seconds: float = 30, repair: bool = False) -> None:
        self.told.clear()
        self.fleet.change_settings(provision={"package_lock_seconds": lock_seconds, "repair_packages": repair})
        workspace = self.fleet.workspace()
        tenant = workspace.fleet.tenants["maple"]

        def install(_: object, session: object) -> None:
            context = StepContext(
                tenant=tenant,
                settings=workspace.fleet.settings,
                session=session,
                status=session.probe(),
                fleet_root=workspace.fleet.root,
                state_directory=workspace.state_directory,
                tell=self.told.append,
            )
            require_packages(context, *names)

        (answer,) = ask_many(workspace, [tenant], install)
        if isinstance(answer, TenantryError):
            raise answer

    def run(self, command: str, **options: object) -> str:
        return self.fleet.run("maple", command, **options)

    def lock(self, path: str, seconds: float, after: str = "/run/locked") -> str:
        """Hold a package manager's lock on the host for some seconds once `after` is there; the holder's process id."""
        self.run("rm -f /run/locked")
        self.run("cat > /run/locker.py", stdin=LOCKER.encode())
        pid = self.run(f"setsid python3 /run/locker.py {path} {seconds} {after} > /dev/null 2>&1 & echo $!").strip()
        until(lambda: "locked" in self.run("ls /run"), "the lock is held")
        return pid


@pytest.fixture
def apt(maple: LightFleet, tmp_path: Path) -> Iterator[Apt]:
    """A host whose only package source is a repository with `PACKAGES`."""
    fleet = Apt(maple, [])
    fleet.run("mkdir -p /srv/repository && tar -xC /srv/repository", stdin=repository(tmp_path))
    fleet.run("echo 'deb [trusted=yes] file:/srv/repository ./' > /etc/apt/sources.list.d/test.list")
    yield fleet
    fleet.run("rm -f /run/died-once; touch /run/died-once; dpkg --configure -a; dpkg --purge gentle mortal plain")
    fleet.run("rm -rf /run/died-once /run/witness /etc/gentle.conf* /etc/apt/sources.list.d/test.list")
    fleet.run("rm -f /etc/needrestart/conf.d/test.conf /usr/local/bin/dpkg-query")


def repository(directory: Path) -> bytes:
    """A flat repository of `PACKAGES` as a tar archive."""
    index = []
    for name, postinst in PACKAGES.items():
        tree = directory / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "etc").mkdir()
        (tree / f"etc/{name}.conf").write_text("from = package\n")
        (tree / "DEBIAN/control").write_text(CONTROL.format(name=name))
        (tree / "DEBIAN/conffiles").write_text(f"/etc/{name}.conf\n")
        (tree / "DEBIAN/postinst").write_text(postinst)
        (tree / "DEBIAN/postinst").chmod(0o755)
        deb = directory / f"{name}.deb"
        build = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)]
        subprocess.run(build, check=True, capture_output=True)
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        index.append(
            f"{CONTROL.format(name=name)}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
        )
    (directory / "Packages").write_text("\n".join(index))
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in (*directory.glob("*.deb"), directory / "Packages"):
            archive.add(path, path.name)
    return content.getvalue()


def test_a_missing_package_comes_without_a_question_and_an_edited_file_stays(apt: Apt) -> None:
    apt.run("echo 'from = operator' > /etc/gentle.conf")
    apt.require("gentle", "python3")
    assert apt.run("cat /run/witness") == "noninteractive l none\n"
    assert apt.run("cat /etc/gentle.conf") == "from = operator\n"
    assert apt.told == [
        "installed gentle",
        "kept the host's own version of /etc/gentle.conf; the package's is beside it",
    ]
    assert apt.run("cat /etc/gentle.conf.dpkg-dist") == "from = package\n"


def test_what_is_installed_needs_no_index(apt: Apt) -> None:
    apt.run("rm /etc/apt/sources.list.d/test.list")
    pid = apt.lock("/var/lib/apt/lists/lock", 300)
    apt.require("python3", "sudo", lock_seconds=0)
    apt.run(f"kill {pid}")
    assert apt.told == []


@pytest.mark.parametrize("lock", ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock"])
def test_a_held_lock_is_waited_for(apt: Apt, lock: str) -> None:
    apt.run(f"rm -f {ASKED}; cat > /usr/local/bin/dpkg-query", stdin=WITNESSED_QUERY.encode())
    apt.run("chmod 755 /usr/local/bin/dpkg-query")
    apt.lock(lock, 2, after=ASKED)
    apt.require("plain")
    assert apt.told[0].startswith("waited ") and apt.told[-1] == "installed plain"


@pytest.mark.parametrize("lock", ["/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock"])
def test_a_lock_that_stays_held_is_a_failure_that_names_the_holder(apt: Apt, lock: str) -> None:
    pid = apt.lock(lock, 300)
    inode = apt.run(f"stat -c %i {lock}")
    with pytest.raises(PackagesLocked) as caught:
        apt.require("plain", lock_seconds=1)
    assert f"{lock} is held by process {pid} (python3 /run/locker.py {lock} 300" in caught.value.message
    assert "again" in caught.value.hint
    assert apt.run(f"stat -c %i {lock}") == inode
    apt.run(f"kill {pid}")
    apt.require("plain")


def test_an_interrupted_dpkg_is_a_condition_of_its_own(apt: Apt) -> None:
    apt.run("apt-get --quiet update && dpkg --install /srv/repository/mortal.deb || true")
    assert "half-configured" in apt.run("dpkg-query --show --showformat '${db:Status-Status}' mortal")
    with pytest.raises(PackagesInterrupted, match="interrupted"):
        apt.require("plain")
    apt.require("plain", repair=True)
    assert apt.told == ["finished what an interrupted dpkg had left", "installed plain"]
    assert apt.run("dpkg-query --show --showformat '${db:Status-Status}' mortal") == "installed"


def test_a_package_that_is_nowhere_is_told_in_apts_words(apt: Apt) -> None:
    with pytest.raises(TenantryError, match="Unable to locate package nowhere"):
        apt.require("nowhere")


def test_needrestart_never_restarts_the_gateway_meanwhile(apt: Apt) -> None:
    apt.run("mkdir -p /etc/needrestart/conf.d; echo '$nrconf{restart} = q(a);' > /etc/needrestart/conf.d/test.conf")
    pid = apt.run("systemctl show -P MainPID light-gateway").strip()
    assert apt.run(REPLACE_A_LIBRARY.replace("{pid}", pid)).strip()
    apt.require("plain")
    assert apt.run("systemctl show -P MainPID light-gateway").strip() == pid
    # Without the engine's care the same installation does restart it.
    apt.run("apt-get --yes install gentle")
    assert apt.run("systemctl show -P MainPID light-gateway").strip() != pid
