"""pyinfra's own CLI over the ``@tenant`` connector, under the same locks as the engine."""

from __future__ import annotations

import json
import re

import pytest

from engine.clock import SystemClock
from engine.locks import LockDirectory
from tests.lab.hosts.bare_fleet import BareFleet
from tests.lab.waiting import until

ARGUMENTS = """
from io import BytesIO, StringIO
from pyinfra.operations import files, server

files.put(name="text", src=StringIO('line $(x) "q" `y`'), dest="/root/text", mode="600", user="ops")
files.put(name="bytes", src=BytesIO(bytes(range(256)) * 8000), dest="/root/bytes")
files.get(name="get", src="/root/bytes", dest="fetched")
server.shell(name="stdin", commands=["cat > /root/stdin"], _stdin=b"raw\\xff")
server.shell(name="text stdin", commands=["cat > /root/words"], _stdin="words")
server.shell(name="lines", commands=["cat > /root/lines"], _stdin=["a", "b"])
server.shell(name="environment", commands=['echo "$WORDS" > /root/environment'], _env={"WORDS": "a  'b'"})
server.shell(name="su", commands=["id -un > /tmp/su"], _su_user="ops")
server.shell(name="sudo", commands=["id -un > /tmp/sudo"], _sudo=True, _sudo_user="ops")
server.shell(name="codes", commands=["exit 3"], _success_exit_codes=[3])
server.shell(name="terminal", commands=["test -t 0 && test -t 1"], _get_pty=True)
"""
FAILING = 'from pyinfra.operations import server\nserver.shell(commands=["echo broken >&2; exit 1"])\n'
ONLY_MAPLE = ("--limit", "@tenant/maple")


@pytest.fixture
def locks(bare: BareFleet) -> LockDirectory:
    return LockDirectory(bare.root / "var" / "locks", SystemClock())


def test_an_ad_hoc_command_runs_everywhere_under_lock_and_claim(bare: BareFleet, locks: LockDirectory):
    done = bare.pyinfra("-y", "inventory/hosts.py", "exec", "--", "id -un > /root/who")
    assert done.returncode == 0, done.stdout
    for slug in bare.slugs:
        assert bare.run("cat /root/who", slug) == "root\n"
        assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}\n", bare.run("cat /var/lib/tenantry/run", slug))
        assert locks.holder(bare.access().tenant(slug).subject) is None
        until(lambda slug=slug: not bare.run("pgrep -f '^sshd: ops' || true", slug), "the connection is closed")


def test_groups_are_roles_and_trades(bare: BareFleet):
    for group in ("role_test", "trade_real_estate", "tenants"):
        done = bare.pyinfra("-y", "--limit", group, "inventory/hosts.py", "exec", "--", "true")
        assert done.returncode == 0 and "@tenant/cedar" in done.stdout, done.stdout


def test_a_busy_tenant_is_one_plain_line_and_a_failure(bare: BareFleet, locks: LockDirectory):
    subject = bare.access().tenant("maple").subject
    with locks.hold(subject, job="converge", run="run-7"):
        done = bare.pyinfra("-y", "inventory/hosts.py", *ONLY_MAPLE, "exec", "--", "touch /root/touched")
    assert done.returncode == 1, done.stdout
    assert "tenant/maple is busy: converge run run-7" in done.stdout
    assert "Traceback" not in done.stdout
    assert not bare.has("/root/touched") and not bare.has("/var/lib/tenantry")


def test_a_busy_tenant_leaves_the_others_alone(bare: BareFleet, locks: LockDirectory):
    with locks.hold(bare.access().tenant("maple").subject, job="converge", run="run-7"):
        done = bare.pyinfra("-y", "inventory/hosts.py", "exec", "--", "touch /root/touched")
    assert "is busy" in done.stdout and "Traceback" not in done.stdout
    assert bare.has("/root/touched", "cedar") and not bare.has("/root/touched", "maple")


def test_dry_runs_and_facts_need_no_lock(bare: BareFleet, locks: LockDirectory):
    (bare.root / "deploy.py").write_text(ARGUMENTS)
    with locks.hold(bare.access().tenant("maple").subject, job="converge", run="run-7"):
        dry = bare.pyinfra("inventory/hosts.py", *ONLY_MAPLE, "deploy.py", "--dry")
        fact = bare.pyinfra("--json", "inventory/hosts.py", *ONLY_MAPLE, "fact", "engine.hosts.Status")
    assert dry.returncode == 0 and "is busy" not in dry.stdout, dry.stdout
    assert fact.returncode == 0, fact.stdout
    assert not bare.has("/var/lib/tenantry") and not bare.has("/root/text")


def test_the_status_fact_prints_the_probes_object(bare: BareFleet):
    bare.run("mkdir -p -m 700 /var/lib/tenantry; echo 2026.10.22.3 > /var/lib/tenantry/version")
    done = bare.pyinfra("--json", "inventory/hosts.py", *ONLY_MAPLE, "fact", "engine.hosts.Status")
    document = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    status = json.dumps(document)
    assert '"version": "2026.10.22.3"' in status and '"state": "present"' in status


def test_the_global_arguments_of_operations_work(bare: BareFleet):
    (bare.root / "deploy.py").write_text(ARGUMENTS)
    done = bare.pyinfra("-y", "inventory/hosts.py", *ONLY_MAPLE, "deploy.py")
    assert done.returncode == 0, done.stdout
    assert bare.run("cat /root/text") == 'line $(x) "q" `y`'
    assert bare.run("stat -c '%U %a' /root/text").split() == ["ops", "600"]
    assert (bare.root / "fetched").read_bytes() == bytes(range(256)) * 8000
    assert bare.run("od -An -c /root/stdin").split() == ["r", "a", "w", "377"]
    assert bare.run("cat /root/words; echo; cat /root/lines") == "words\na\nb\n"
    assert bare.run("cat /root/environment /tmp/su /tmp/sudo") == "a  'b'\nops\nops\n"
    bare.run("rm /tmp/su /tmp/sudo")


def test_a_second_run_changes_nothing(bare: BareFleet):
    (bare.root / "deploy.py").write_text(
        "from io import StringIO\nfrom pyinfra.operations import files\n"
        'files.put(src=StringIO("$(x) \\"q\\" `y`"), dest="/root/f", mode="644")\n'
        'files.block(path="/root/g", content="$(x) \\"q\\" \'s\' `y`", try_prevent_shell_expansion=True)\n'
    )
    first = bare.pyinfra("-y", "inventory/hosts.py", *ONLY_MAPLE, "deploy.py")
    before = bare.run("cat /root/f /root/g; stat -c %i /root/f")
    second = bare.pyinfra("-y", "inventory/hosts.py", *ONLY_MAPLE, "deploy.py")
    assert first.returncode == second.returncode == 0, first.stdout + second.stdout
    assert bare.run("cat /root/f /root/g; stat -c %i /root/f") == before
    assert "$(x) \"q\" 's' `y`" in before


def test_a_failing_command_is_exit_1_with_its_error(bare: BareFleet):
    (bare.root / "deploy.py").write_text(FAILING)
    done = bare.pyinfra("-y", "inventory/hosts.py", *ONLY_MAPLE, "deploy.py")
    assert done.returncode == 1 and "broken" in done.stdout


def test_a_host_without_connection_is_one_plain_line(bare: BareFleet):
    bare.run("systemctl stop ssh")
    try:
        done = bare.pyinfra("-y", "inventory/hosts.py", "exec", "--", "touch /root/touched")
    finally:
        bare.run("systemctl start ssh")
    assert "cannot connect: Connection refused" in done.stdout and "Traceback" not in done.stdout
    assert bare.has("/root/touched", "cedar")


def test_a_tenant_can_be_named_without_the_inventory(bare: BareFleet):
    done = bare.pyinfra("-y", "@tenant/maple", "exec", "--", "touch /root/touched")
    assert done.returncode == 0 and bare.has("/root/touched"), done.stdout
    done = bare.pyinfra("-y", "@tenant/nobody", "exec", "--", "true")
    assert done.returncode == 1 and "there is no tenant 'nobody'" in done.stdout
    assert "Traceback" not in done.stdout
