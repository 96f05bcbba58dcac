"""A secret reaches its place byte for byte, and is nowhere else on either machine."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyrage
import pytest

from engine.provision.providers.lab import ensure_identity
from tests.lab.light_fleet import LightFleet

MARK = b"c4n4ryQ7vKx92mWz"
"""Is in every form of the secrets: quoted, escaped, as JSON. Its base64 is looked for as well."""

TEXT = b" " + MARK + ' it\'s "quoted" $HOME ${X} $(id) `id` \\back\\\\ %h %% #no; a=b\té€😀 '.encode()
BINARY = b"\x89PNG\r\n\x00" + MARK + bytes(range(256))
PLACES = {"/etc/light-gateway.env", "/etc/light-secret-blob", "/etc/light-secret-gateway_key"}

FORMS = [MARK, *(base64.b64encode(b"x" * pad + MARK)[4:-4] for pad in range(3)), MARK.hex().encode()]

FAILS = "\n    server.shell(name='Fails', commands=['echo so it is >&2; exit 1'])\n"
DEFECT = "\n    raise ZeroDivisionError(len(secrets))\n"

EVERYWHERE = """
cat > /run/patterns
grep --recursive --binary-files=text --files-with-matches --fixed-strings --file=/run/patterns \\
    --exclude=patterns /run /tmp /dev/shm /var/tmp 2> /dev/null
{ journalctl --output=export --all; systemctl show '*'; systemctl cat '*'; systemctl status --full --lines=999; } \\
    2> /dev/null | grep --binary-files=text --fixed-strings --file=/run/patterns
rm /run/patterns
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightFleet]:
    """A fleet whose tenant has two secrets, one of them encrypted for the operator's key."""
    root = tmp_path_factory.mktemp("secrets")
    fleet = LightFleet.create(root / "fleet", ["maple"])
    recipient = pyrage.ssh.Recipient.from_str(ensure_identity(fleet.state))
    (fleet.root / "gateway_key.age").write_bytes(pyrage.encrypt(TEXT, [recipient]))
    blob = root / "blob"
    blob.write_bytes(BINARY)
    blob.chmod(0o600)
    secrets = {"gateway_key": "age:gateway_key.age", "blob": "command:cat ../blob"}
    fleet.register(["maple"], maple={"secrets": secrets})
    try:
        yield fleet
    finally:
        fleet.lab.destroy()


@contextmanager
def sampled() -> Iterator[list[str]]:
    """What processes of this machine, its hosts' included, showed of the secrets during the body."""
    found: list[str] = []
    sampler = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("secret_sampler.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sampler.stdin and sampler.stdout
    sampler.stdin.write("".join(f"{base64.b64encode(form).decode()}\n" for form in FORMS) + "\n")
    sampler.stdin.flush()
    assert sampler.stdout.readline() == "ready\n"
    try:
        yield found
    finally:
        out, _ = sampler.communicate()
        *lines, rounds = out.splitlines()
        assert int(rounds.split()[1]) > 20, "it looked often"
        found += lines


def provision(fleet: LightFleet) -> str:
    """Everything that a provisioning at full verbosity prints."""
    done = fleet.cli("provision", "maple", "--confirm", "maple", "--json", debug=True)
    out, error = done.communicate(timeout=120)
    return f"{out}{error}exit {done.returncode}"


def files_with_a_secret(directory: Path) -> set[str]:
    """Files below `directory`, other than hosts' trees, that hold any form of a secret."""
    done = subprocess.run(
        ["grep", "-r", "-a", "-l", "-F", "-f", "-", "--exclude-dir=roots", "--exclude-dir=base", str(directory)],
        input=b"\n".join(FORMS),
        capture_output=True,
        check=False,
    )
    return {line.removeprefix(f"{directory}/") for line in done.stdout.decode().splitlines()}


def assert_nowhere_else(fleet: LightFleet, places: set[str]) -> None:
    upper = "lab/disks/maple/volume/upper"
    assert files_with_a_secret(fleet.state) == {f"{upper}{place}" for place in places}
    assert files_with_a_secret(fleet.root) == {f"var/{upper}{place}" for place in places}
    assert fleet.run("maple", EVERYWHERE, check=False, stdin=b"\n".join(FORMS)) == ""


@pytest.mark.parametrize("ending", [FAILS, DEFECT], ids=["a failing command", "a defect"])
def test_a_phase_b_that_fails_tells_nothing(fleet: LightFleet, ending: str) -> None:
    tenancy = fleet.root / "deploys/tenancy.py"
    good = tenancy.read_text()
    tenancy.write_text(good + ending)
    try:
        with sampled() as found:
            printed = provision(fleet)
    finally:
        tenancy.write_text(good)
    assert printed.endswith("exit 1")
    assert all(form.decode() not in printed for form in FORMS)
    assert [line for line in found if "gateway.py" not in line] == []
    assert_nowhere_else(fleet, PLACES)


def test_a_secret_reaches_its_place_byte_for_byte_and_is_nowhere_else(fleet: LightFleet) -> None:
    with sampled() as found:
        printed = provision(fleet)
    assert printed.endswith("exit 0"), printed
    assert all(form.decode() not in printed for form in FORMS)

    for name, value in (("gateway_key", TEXT), ("blob", BINARY)):
        encoded = fleet.run("maple", f"base64 -w0 /etc/light-secret-{name}")
        assert base64.b64decode(encoded) == value
    environ = fleet.run("maple", "base64 -w0 /proc/$(systemctl show -P MainPID light-gateway)/environ")
    assert b"GATEWAY_KEY=" + TEXT in base64.b64decode(environ).split(b"\0")
    for place in PLACES:
        assert fleet.run("maple", f"stat -c '%U %G %a' {place}").strip() == "root root 600"

    # The gateway itself has its key in its environment, and nobody else has.
    assert found and all("environ" in line and "gateway.py" in line for line in found), found
    assert_nowhere_else(fleet, PLACES)
