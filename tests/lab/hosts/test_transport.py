"""The channel on real hosts: bytes, statuses, bounds, and what a host refuses."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import socket
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import gevent.pool
import gevent.server
import pytest

from engine.errors import (
    AuthenticationRefused,
    CommandFailed,
    CommandLost,
    CommandTimedOut,
    HostKeyMismatch,
    MissingPart,
    Unreachable,
)
from engine.hosts import known_hosts
from engine.hosts.addresses import target_of
from engine.hosts.known_hosts import HostKey
from tests.lab.hosts.bare_fleet import BareFleet
from tests.lab.waiting import until

MIB = 1 << 20
OTHER_KEY = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32))


@pytest.fixture(params=["free", "claimed"])
def session(bare: BareFleet, request: pytest.FixtureRequest):
    with bare.session() as session:
        if request.param == "claimed":
            session.claim("run-1")
        yield session


# Bytes and statuses


@pytest.mark.parametrize(
    ("command", "status"), [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("nothing-of-that-name", 127)]
)
def test_the_status_is_the_real_one(session, command: str, status: int):
    assert session.execute(command).status == status


def test_a_failure_names_the_command_and_its_last_error_lines_but_not_its_input(session):
    with pytest.raises(CommandFailed) as failure:
        session.check("cat >/dev/null; echo 'no space' >&2; exit 3", stdin=b"hidden words")
    assert "no space" in str(failure.value) and "status 3" in str(failure.value)
    assert "hidden words" not in str(failure.value)


def test_commands_run_as_root_in_a_known_locale(session):
    assert session.check("id -un; echo $LC_ALL").text == "root\nC.UTF-8\n"


def test_bytes_pass_unchanged_in_both_directions(session):
    data = bytes(range(256)) * 400 + b"\n\n\r\n" * 1000
    assert session.check("cat", stdin=data).stdout == data


def test_what_the_login_shell_prints_is_no_output_of_the_command(session, bare: BareFleet):
    """Even when it holds braces, is no text, or is longer than a block."""
    noise = r"""printf '{"a": [1]}\377'; head -c 100000 /dev/zero; echo noise >&2"""
    bare.run("cat > /home/ops/.bashrc", stdin=f"{noise}\n".encode())
    try:
        assert session.check("printf text").stdout == b"text"
        assert session.execute("echo $0; exit 3", stdin=b"x").status == 3
        assert session.read_file("/root/absent") is None
    finally:
        bare.run("cp /etc/skel/.bashrc /home/ops/.bashrc")


def test_output_that_is_no_text_is_replaced_not_cut(session):
    output = session.check(r"printf 'a\377b\nc\n'")
    assert output.stdout == b"a\xffb\nc\n" and output.text == "a\ufffdb\nc\n"


def test_a_command_that_reads_its_input_sees_the_end(session):
    assert session.check("cat; echo done").stdout == b"done\n"


def test_a_command_may_leave_its_input_unread(session):
    assert session.execute("exit 5", stdin=bytes(3 * MIB)).status == 5
    assert session.execute("exec <&-; exit 6", stdin=io.BytesIO(bytes(3 * MIB))).status == 6


def test_ten_mebibytes_on_every_stream_do_not_deadlock(session):
    data = os.urandom(10 * MIB)
    output = session.execute("head -c 10485760 /dev/zero | tee /dev/stderr; sha256sum", stdin=io.BytesIO(data))
    assert output.status == 0 and output.truncated
    assert hashlib.sha256(data).hexdigest().encode() in output.stdout
    limit = session.settings.transport.output_limit_bytes
    assert len(output.stdout) == len(output.stderr) == limit


def test_a_stream_takes_constant_memory(session):
    size = 48 * MIB
    sink = _Counter()
    tracemalloc.start()
    try:
        output = session.execute("cat", stdin=_Zeros(size), stdout=sink)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (output.status, sink.size) == (0, size)
    assert peak < 12 * MIB


def test_a_source_that_fails_is_an_error_of_its_own(session):
    with pytest.raises(ValueError, match="no more"):
        session.execute("cat > /dev/null", stdin=_Broken())


# Bounds


def test_a_command_beyond_its_bound_is_named_and_its_outcome_unknown(session):
    with pytest.raises(CommandTimedOut, match=r"`sleep 30 .*outcome is unknown"):
        session.execute("sleep 30 # long", timeout_seconds=2)


def test_a_background_process_that_keeps_the_output_is_told_from_a_slow_command(bare: BareFleet):
    with bare.session() as session, pytest.raises(CommandTimedOut, match="ended with status 4"):
        session.execute("sleep 30 & exit 4", timeout_seconds=2)


def test_a_daemon_that_lets_go_of_the_output_does_not_hold_the_command_or_the_lock(bare: BareFleet):
    with bare.session() as session:
        session.claim("run-1")
        session.check("setsid sleep 60 </dev/null >/dev/null 2>&1 &")
        assert session.probe().host_lock.held is False
        session.check("pkill -x sleep")


def test_a_dead_link_is_found_within_its_bound(bare: BareFleet):
    with bare.session(keepalive_seconds=1, dead_link_seconds=4) as session:
        cut = gevent.spawn(_cut_when, bare, "/root/started")
        try:
            with pytest.raises(CommandLost, match=r"`touch /root/started; sleep 30`.*outcome is unknown"):
                session.execute("touch /root/started; sleep 30", timeout_seconds=20)
        finally:
            cut.join()
            bare.lab.restore_link("maple")


def test_nothing_is_sent_over_a_lost_connection(bare: BareFleet):
    with bare.session() as session:
        bare.run("pkill -f '^sshd: ops'")
        with pytest.raises(CommandLost):
            for _ in range(20):
                session.execute("echo x >> /root/n")
                gevent.sleep(0.05)


# Connecting


def test_another_host_key_is_refused_naming_both(bare: BareFleet):
    host = bare.lab.find_required("maple")
    path = known_hosts.known_hosts_file(bare.root / "var", "maple")
    known_hosts.replace(path, [host.address], 22, [OTHER_KEY])
    with pytest.raises(HostKeyMismatch) as mismatch:
        bare.access().connect(bare.tenant_at(host.address))
    text = str(mismatch.value)
    assert OTHER_KEY.fingerprint in text and HostKey.parse(host.host_key).fingerprint in text
    assert str(path) in text


def test_an_unknown_host_is_refused_and_never_learned(bare: BareFleet):
    path = known_hosts.known_hosts_file(bare.root / "var", "maple")
    path.unlink(missing_ok=True)
    with pytest.raises(HostKeyMismatch, match="no host key is pinned"):
        bare.access().connect(bare.tenant_at(bare.lab.find_required("maple").address))
    assert not path.exists()


def test_an_ipv6_host_with_a_port_is_reached_under_its_pinned_name(bare: BareFleet):
    host = bare.lab.find_required("maple")
    path = known_hosts.known_hosts_file(bare.root / "var", "maple")
    with _forwarded(host.address) as port:
        tenant = bare.tenant_at("::1", port)
        known_hosts.replace(path, ["::1"], port, [HostKey.parse(host.host_key)])
        assert path.read_text().startswith(f"[::1]:{port} ssh-ed25519 ")
        bare.access().connect(tenant).close()
        assert f"ops@[::1]:{port}" in str(target_of(tenant, bare.access().fleet, bare.root / "var"))


def test_only_the_configured_identity_is_offered(bare: BareFleet, tmp_path: Path):
    """The agent holds the key that the host knows, between others; the tenant's identity is another one."""
    stranger = _new_key(tmp_path / "stranger")
    keys = [_new_key(tmp_path / f"key{number}") for number in range(6)]
    (bare.root / "inventory/fleet.yaml").write_text(f"brand: T\nidentity_file: {stranger}\n")
    try:
        with _agent([*keys, bare.root / "var/ssh/id_ed25519"]), pytest.raises(AuthenticationRefused) as refusal:
            bare.access().connect(bare.access().tenant("maple"))
        assert str(stranger) in str(refusal.value)
    finally:
        (bare.root / "inventory/fleet.yaml").write_text("brand: T\n")
    with _agent(keys):
        bare.access().connect(bare.access().tenant("maple")).close()


def test_an_identity_that_is_not_there_is_named(bare: BareFleet):
    (bare.root / "inventory/fleet.yaml").write_text("brand: T\nidentity_file: /nowhere/id\n")
    try:
        with pytest.raises(MissingPart, match="/nowhere/id does not exist"):
            bare.access().connect(bare.access().tenant("maple"))
    finally:
        (bare.root / "inventory/fleet.yaml").write_text("brand: T\n")


def test_a_refused_port_is_unreachable(bare: BareFleet):
    tenant = bare.tenant_at(bare.lab.find_required("maple").address, port=2222)
    with pytest.raises(Unreachable, match="refused"):
        bare.access(retry_minimum_seconds=0, retry_maximum_seconds=0).connect(tenant)


def test_a_booting_host_says_so(bare: BareFleet):
    bare.run("echo 'System is booting up.' > /run/nologin")
    with pytest.raises(AuthenticationRefused, match="admits no user now"):
        bare.access().connect(bare.access().tenant("maple"))


def test_a_host_that_admits_few_at_a_time_is_asked_again(bare: BareFleet):
    """Ten connections at once to an sshd that drops all beyond two that are not authenticated."""
    with _sshd(bare, "MaxStartups 2:100:2\nMaxSessions 1"):
        access = bare.access(connect_attempts=12)

        def work(_: int) -> int:
            connection = access.connect(access.tenant("maple"))
            connection.close()
            return 1

        pool = gevent.pool.Pool(10)
        assert sum(pool.imap_unordered(work, range(10))) == 10


def test_one_session_at_a_time_is_enough(bare: BareFleet, tmp_path: Path):
    (tmp_path / "file").write_text("content")
    with _sshd(bare, "MaxSessions 1"), bare.session() as session:
        session.claim("run-1")
        for _ in range(5):
            session.check("true")
        path = session.stage(tmp_path)
        assert session.read_file(f"{path}/file") == b"content"
        session.unstage(path)


def test_a_refused_session_does_not_end_the_one_that_runs(bare: BareFleet):
    with _sshd(bare, "MaxSessions 1"), bare.session() as session:
        running = gevent.spawn(session.execute, "touch /root/started; while [ ! -e /root/go ]; do sleep 0.1; done")
        until(lambda: bare.has("/root/started"), "the command runs")
        with pytest.raises(Unreachable, match="no further session"):
            session.execute("touch /root/second")
        bare.run("touch /root/go")
        assert running.get(timeout=30).status == 0
        session.check("true")
        assert not bare.has("/root/second")


def test_a_long_command_line_arrives(session):
    text = "'\"$x`" * 800 + "words" * 12_000
    assert session.check(f"printf %s {shlex.quote(text)} | wc -c").text.strip() == str(len(text))


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("Defaults requiretty\nops ALL=(ALL) NOPASSWD: ALL", "sudo demands a terminal"),
        ("ops ALL=(ALL) ALL", "sudo asks for a password"),
        ("# nothing", "sudo asks for a password"),
    ],
)
def test_a_host_that_lets_nobody_become_root_says_why(bare: BareFleet, rule: str, problem: str):
    with _sudoers(bare, rule), bare.session() as session:
        with pytest.raises(AuthenticationRefused, match=problem):
            session.execute("true")
        with pytest.raises(AuthenticationRefused, match=problem):
            session.claim("run-1")


def test_a_command_that_speaks_of_sudo_has_failed_by_itself(bare: BareFleet):
    command = "echo 'sudo: a password is required' >&2; exit 1"
    with bare.session() as session:
        assert session.execute(command).status == 1
        session.claim("run-1")
        assert session.execute(command).status == 1


class _Counter:
    size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)


class _Zeros:
    def __init__(self, left: int) -> None:
        self.left = left

    def read(self, size: int, /) -> bytes:
        taken = min(size, self.left)
        self.left -= taken
        return bytes(taken)


class _Broken:
    def read(self, size: int, /) -> bytes:
        raise ValueError("no more")


def _cut_when(bare: BareFleet, path: str) -> None:
    until(lambda: bare.has(path), f"{path} on the host")
    bare.lab.cut("maple")


@contextmanager
def _forwarded(address: str) -> Iterator[int]:
    """A port of the IPv6 loopback that leads to the SSH port of `address`."""

    def serve(near: socket.socket, _: object) -> None:
        far = socket.create_connection((address, 22))
        gevent.joinall([gevent.spawn(_pump, near, far), gevent.spawn(_pump, far, near)])

    server = gevent.server.StreamServer(("::1", 0), serve)
    server.start()
    try:
        yield server.server_port
    finally:
        server.stop()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@contextmanager
def _agent(keys: list[Path]) -> Iterator[None]:
    listing = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    values = dict(part.split("=", 1) for part in listing.replace("\n", " ").split("; ") if "=" in part)
    values = {name.strip().removeprefix("echo "): value for name, value in values.items()}
    environment = {"SSH_AUTH_SOCK": values["SSH_AUTH_SOCK"], "SSH_AGENT_PID": values["SSH_AGENT_PID"]}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        subprocess.run(["ssh-add", "-q", *map(str, keys)], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["ssh-agent", "-k"], check=True, capture_output=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextmanager
def _sshd(bare: BareFleet, options: str) -> Iterator[None]:
    bare.run("cat > /etc/ssh/sshd_config.d/test.conf; systemctl reload ssh", stdin=f"{options}\n".encode())
    try:
        yield
    finally:
        bare.run("rm /etc/ssh/sshd_config.d/test.conf; systemctl reload ssh")


@contextmanager
def _sudoers(bare: BareFleet, rule: str) -> Iterator[None]:
    bare.run(
        "mkdir /root/sudoers; mv /etc/sudoers.d/* /root/sudoers; cat > /etc/sudoers.d/test", stdin=f"{rule}\n".encode()
    )
    try:
        yield
    finally:
        bare.run("rm /etc/sudoers.d/test; mv /root/sudoers/* /etc/sudoers.d")
