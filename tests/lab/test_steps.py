"""Steps on real hosts when the fleet's own code, an owner or an interruption gets in their way."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from engine.errors import ExitCode
from engine.updater.events import Event
from engine.updater.fleet import ask_many
from engine.updater.plan import plan_tenant
from tests.lab.light_fleet import SOURCE, LightFleet, cut_when_begun
from tests.lab.waiting import until

STAGED = "ls -A /var/lib/tenantry/staging"

SHIPPING = """
from engine.steps import Answer, FileText, install

def is_there(context):
    return Answer.of(isinstance(context.fact(FileText, path="/srv/light/effect"), str))

@install(bundle="greeting", precondition=is_there)
def odd(context):
    yield (
        f"touch /srv/light/began; for i in $(seq 1500); do [ -e /srv/light/go ] && break; sleep 0.2; done; "
        f"cat {context.staging}/install.sh > /srv/light/effect"
    )
"""

RAISING = """
from engine.steps import install

@install(precondition=lambda context: int("0rc1") > 0)
def odd(context):
    yield "true"
"""

WriteStep = Callable[[str], None]


@pytest.fixture
def write_step(maple: LightFleet) -> Iterator[WriteStep]:
    """Give the fleet a step `odd` with this text, in the only release."""
    path = maple.root / "deploys/steps/odd.py"

    def write(text: str) -> None:
        path.write_text(text)
        maple.write_releases(("2026.10.1", ["odd"]))

    yield write
    path.unlink()
    shutil.copy(SOURCE / "releases.yaml", maple.root / "releases.yaml")


def finish_when_awaited(fleet: LightFleet) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        if "still runs on the host" in event.message:
            fleet.run("maple", "touch /srv/light/go")

    return report


def test_an_interruption_ends_at_once_and_the_next_run_clears_what_was_shipped(
    maple: LightFleet, write_step: WriteStep
):
    write_step(SHIPPING)
    process = maple.cli("converge", "maple")
    until(lambda: maple.run("maple", "ls /srv/light/began || true") != "", "the step began")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=maple.workspace().fleet.settings.transport.survivor_seconds / 3) == 130
    assert maple.run("maple", STAGED) != ""
    outcome = maple.converge("maple", report=finish_when_awaited(maple))
    assert (outcome.exit_code, outcome.error) == (ExitCode.DONE, None)
    assert "Writes the greeting" in maple.run("maple", "cat /srv/light/effect")
    assert maple.run("maple", STAGED) == ""


def test_a_lost_step_is_said_to_be_of_unknown_outcome_though_it_shipped_something(
    maple: LightFleet, write_step: WriteStep
):
    write_step(SHIPPING)
    cut = gevent.spawn(cut_when_begun, maple)
    lost = maple.converge("maple")
    cut.join()
    maple.lab.restore_link("maple")
    assert lost.exit_code is ExitCode.UNREACHABLE and "its outcome is unknown" in str(lost.error)
    assert maple.converge("maple", report=finish_when_awaited(maple)).error is None
    assert maple.run("maple", STAGED) == ""


def test_a_precondition_that_raises_is_that_tenants_unknown(maple: LightFleet, write_step: WriteStep):
    write_step(RAISING)
    workspace = maple.workspace()
    tenant = workspace.fleet.tenants["maple"]
    (answer,) = ask_many(workspace, [tenant], lambda t, s: plan_tenant(workspace, t, s, with_diff=False))
    assert "maple: the precondition of step odd raised ValueError: invalid literal" in str(answer)
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.UNREACHABLE and "step odd raised ValueError" in str(outcome.error)


def patch_of(path: str, before: str = "") -> str:
    return f"""
import subprocess
from engine.steps import patch

@patch(file="{path}")
def odd(text):
    {before}
    return text if "added" in text else text + "added\\n"
"""


def test_a_patch_of_a_link_edits_what_it_leads_to(maple: LightFleet, write_step: WriteStep):
    maple.run("maple", "printf 'mine\\n' > /srv/light/real; chmod 0604 /srv/light/real; ln -s real /srv/light/link")
    write_step(patch_of("/srv/light/link"))
    assert maple.converge("maple").error is None
    assert maple.run("maple", "readlink /srv/light/link; cat /srv/light/real") == "real\nmine\nadded\n"
    assert maple.run("maple", "stat -c %a /srv/light/real").strip() == "604"


THEIRS = """
install -d -o nobody /srv/light/theirs
printf 'roots\n' > /srv/light/real
su nobody -s /bin/sh -c 'ln -s ../real /srv/light/theirs/link; ln -s .. /srv/light/theirs/up'
"""


@pytest.mark.parametrize(("path", "link"), [("theirs/link", "theirs/link"), ("theirs/up/real", "theirs/up")])
def test_a_patch_refuses_a_link_that_an_account_could_have_made(
    maple: LightFleet, write_step: WriteStep, path: str, link: str
):
    maple.run("maple", THEIRS)
    write_step(patch_of(f"/srv/light/{path}"))
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED
    assert f"step odd: /srv/light/{link} is a link" in str(outcome.error)
    assert maple.run("maple", "cat /srv/light/real; stat -c %U /srv/light/real") == "roots\nroot\n"


def test_a_patched_file_stays_its_owners_and_its_copy_is_roots_to_see(maple: LightFleet, write_step: WriteStep):
    maple.run("maple", "printf 'mine\\n' > /srv/light/notes; chown nobody /srv/light/notes")
    write_step(patch_of("/srv/light/notes"))
    assert maple.converge("maple").error is None
    assert maple.run("maple", "cat /srv/light/notes; stat -c %U /srv/light/notes") == "mine\nadded\nnobody\n"
    assert maple.run("maple", "find /var/lib/tenantry/copies -type d -perm /077") == ""


def test_what_an_owner_writes_during_a_patch_is_not_lost(maple: LightFleet, write_step: WriteStep):
    maple.run("maple", "printf 'mine\\n' > /srv/light/notes")
    command: Any = [*maple.lab.shell("maple", ("/bin/sh", "-c", "echo more >> /srv/light/notes"))]
    # The edit runs three times: for two answers of the precondition, then for good.
    write_step(patch_of("/srv/light/notes", f"subprocess.run({json.dumps(command)}, check=True)"))
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "was changed by somebody meanwhile" in str(outcome.error)
    assert set(maple.run("maple", "cat /srv/light/notes").splitlines()) == {"mine", "more"}
