"""The installed command on tenants whose servers are not there: answers, records, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import valid
from tests.fleets import write_whole_fleet

PROGRAM = (sys.executable, "-c", "from engine.cli.main import main; main()")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return write_whole_fleet(tmp_path)


def tenantry(fleet: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, "-C", str(fleet), *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def document(done: subprocess.CompletedProcess[str], schema: str) -> Any:
    return valid(schema, json.loads(done.stdout))


@pytest.mark.parametrize("command", ["plan", "verify", "drift"])
def test_a_question_to_a_server_that_is_not_there_exits_4_and_writes_nothing(fleet: Path, command: str):
    done = tenantry(fleet, command, "--json")
    assert done.returncode == 4
    errors = document(done, command)["errors"]
    assert [(error["slug"], error["exit_code"]) for error in errors] == [("maple", 4), ("harbor", 4)]
    assert "error: maple: " in done.stderr
    assert "maple probe: " in done.stderr
    assert not (fleet / "var" / "records").exists()
    assert not (fleet / "var" / "locks").exists()


def test_a_step_that_expects_what_it_does_not_write_is_refused_before_any_connection(fleet: Path):
    step = fleet / "deploys/steps/greeting.py"
    text = step.read_text().replace("import Answer,", "import Answer, File,")
    step.write_text(text.replace("writes=", 'expects=(File("/etc/other", content=b"x"),), writes='))
    done = tenantry(fleet, "drift", "maple")
    assert done.returncode == 2
    assert "step greeting expects file:/etc/other" in done.stderr and "maple probe: " not in done.stderr


def test_status_live_of_a_server_that_is_not_there_still_shows_the_records(fleet: Path):
    done = tenantry(fleet, "status", "--live", "--json")
    assert done.returncode == 4
    assert [entry["live"] for entry in document(done, "status")["tenants"]] == [None, None]


def test_a_converge_of_servers_that_are_not_there_is_recorded_for_each(fleet: Path):
    done = tenantry(fleet, "converge", "--all", "--json")
    assert done.returncode == 4
    outcomes = document(done, "converge")["tenants"]
    assert [outcome["result"] for outcome in outcomes] == ["unreachable", "unreachable"]
    entries = document(tenantry(fleet, "status", "--json"), "status")["tenants"]
    assert [entry["last_run"]["result"] for entry in entries] == ["unreachable", "unreachable"]
    runs = document(tenantry(fleet, "history", "maple", "--json"), "history")["runs"]
    assert [run["run"] for run in runs] == [outcomes[0]["run"]]
    assert document(tenantry(fleet, "logs", "maple", "--json"), "logs")["run"] == outcomes[0]["run"]


def test_the_state_directory_may_be_elsewhere(fleet: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    assert tenantry(fleet, "--state-dir", str(elsewhere), "converge", "maple").returncode == 4
    assert (elsewhere / "records").is_dir()
    assert not (fleet / "var").exists()


def test_a_plan_digest_of_several_tenants_cannot_be_held_to_without_their_answers(fleet: Path):
    done = tenantry(fleet, "converge", "--all", "--plan", "sha256:0")
    assert done.returncode == 4
    assert not (fleet / "var" / "records").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_ends_it_with_130_and_no_traceback(fleet: Path, name: str):
    (fleet / "deploys/steps/polite.py").write_text(
        f"import os, signal\nos.kill(os.getpid(), signal.{name})\nwhile True: pass\n"
    )
    child = subprocess.Popen(
        [*PROGRAM, "-C", str(fleet), "plan"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors == "interrupted; the same command may be given again\n"


def test_what_is_cleaned_up_is_not_cut_short_by_a_second_sigterm(fleet: Path):
    (fleet / "deploys/steps/polite.py").write_text(
        "import os, signal, sys\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n    while True: pass\n"
        "finally:\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('cleaned up', file=sys.stderr)\n"
    )
    done = tenantry(fleet, "plan")
    assert done.returncode == 130
    assert done.stderr == "cleaned up\ninterrupted; the same command may be given again\n"


def test_a_fleet_without_lab_tenants_needs_no_lab(fleet: Path):
    for number in (1, 2):
        server = f"provider: {{name: hetzner}}\n    address: 192.0.2.{number}"
        path = fleet / "inventory/tenants.yaml"
        path.write_text(path.read_text().replace("provider: {name: lab}", server, 1))
    done = tenantry(fleet, "lab", "up", "--provision", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"hosts": [], "provisioned": []})
    assert not (fleet / "var").exists()
