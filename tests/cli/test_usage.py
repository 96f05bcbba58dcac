"""What is refused before anything is touched, and how it is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli import app
from engine.cli.app import COMMANDS
from engine.errors import RecordFailed
from tests.cli.conftest import Tenantry
from tests.fleets import MANIFEST, TENANTS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("converge",), "--all, --role or --trade"),
        (("converge", "maple", "--all"), "in one way"),
        (("plan", "--all", "--role", "test"), "in one way"),
        (("converge", "--role", "owner"), "--role"),
        (("converge", "--all", "--parallel", "0"), "--parallel"),
        (("converge", "--all", "--plan", "sha256:0", "--repair"), "one of --plan and --repair"),
        (("provision", "maple"), "--confirm maple"),
        (("provision", "maple", "--confirm", "harbor"), "does not name"),
        (("provision",), "Missing argument"),
        (("provision", "maple", "--confirm", "harbor", "--dry-run"), "does not name"),
        (("resume",), "Missing argument"),
        (("restore", "maple"), "replaces the files of maple: add --confirm maple"),
        (("restore", "maple", "--onto"), "destroys the server of maple: add --confirm maple"),
        (("restore", "maple", "--confirm", "harbor"), "does not name"),
        (("restore", "maple", "--confirm", "maple", "--onto", "--path", "/srv"), "leave out --path"),
        (("restore", "maple", "--onto", "--dry-run"), "leave one of them out"),
        (("rehearse",), "--all, --role or --trade"),
        (("rehearse", "--all", "--archive", "20261101T000000Z"), "name that tenant"),
        (("history",), "Missing argument"),
        (("nonsense",), "nonsense"),
        (("release", "lint", "--bogus"), "--bogus"),
    ],
)
def test_wrong_usage_exits_2_and_touches_nothing(tenantry: Tenantry, arguments: tuple[str, ...], words: str):
    result = tenantry(*arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert words in result.err
    assert "Traceback" not in result.err
    assert not tenantry.state_directory.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("converge", "nobody"),
        ("plan", "maple", "nobody"),
        ("provision", "nobody", "--confirm", "nobody"),
        ("provision", "nobody", "--dry-run"),
        ("resume", "nobody"),
        ("restore", "nobody", "--confirm", "nobody"),
        ("rehearse", "nobody"),
        ("status", "nobody"),
        ("history", "nobody"),
        ("logs", "nobody"),
        ("verify", "nobody"),
        ("drift", "nobody"),
        ("render", "nobody"),
        ("lab", "up", "nobody"),
    ],
)
def test_an_unknown_tenant_exits_2_and_names_the_known_ones(tenantry: Tenantry, arguments: tuple[str, ...]):
    result = tenantry(*arguments)
    assert result.code == 2
    assert "unknown tenant: nobody" in result.err
    assert "maple, harbor" in result.err
    assert not tenantry.state_directory.exists()


def test_a_trade_that_nobody_has_exits_2_and_names_the_trades(tenantry: Tenantry):
    result = tenantry("converge", "--trade", "bakerry")
    assert result.code == 2
    assert "no tenant has trade bakerry" in result.err
    assert "bakery, real-estate" in result.err


@pytest.mark.parametrize(
    "command", ["plan", "converge", "verify", "drift", "status", "render", "release lint", "lab up"]
)
def test_a_wrong_registry_exits_2_and_names_file_line_and_key(tenantry: Tenantry, command: str):
    text = TENANTS.replace("daily_backup: true", "daily_backup: 7", 1)
    (tenantry.root / "inventory/tenants.yaml").write_text(text)
    needs_choice = ("--all",) if command in ("converge",) else ()
    result = tenantry(*command.split(), *needs_choice)
    line = text.splitlines().index("    daily_backup: 7") + 1
    assert result.code == 2
    assert f"inventory/tenants.yaml:{line}: " in result.err
    assert "maple.daily_backup" in result.err
    assert result.out == ""
    assert not tenantry.state_directory.exists()


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (MANIFEST.replace("[greeting]", "[greting]"), "greting"),
        (MANIFEST.replace('"2026.10.22.2"', "2026.10"), "quote it"),
        (MANIFEST.replace('"2026.10.22.2"', '"2026.10.22"'), "equals"),
        (MANIFEST.replace("{word: hi}", "{size: 3}"), "size"),
        (MANIFEST.replace("{word: hi}", "{word: 3}"), "word"),
    ],
)
def test_a_wrong_manifest_exits_2_and_names_the_line(tenantry: Tenantry, manifest: str, words: str):
    (tenantry.root / "releases.yaml").write_text(manifest)
    result = tenantry("converge", "--all")
    assert result.code == 2
    assert "releases.yaml:" in result.err
    assert words in result.err
    assert not tenantry.state_directory.exists()


def test_a_directory_that_is_no_fleet_is_named(tmp_path: Path, tenantry: Tenantry):
    result = tenantry("-C", str(tmp_path / "nowhere"), "plan")
    assert result.code == 2
    assert "nowhere" in result.err
    assert "-C" in result.err


def test_paths_below_the_current_directory_are_shown_as_typed(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch):
    (tenantry.root / "inventory/tenants.yaml").write_text("tenants: {maple: 1, maple: 2}\n")
    monkeypatch.chdir(tenantry.root)
    assert tenantry("plan").err.startswith("error: inventory/tenants.yaml:1")


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_that_begins_like_its_line_in_the_overview(tenantry: Tenantry, command: str):
    result = tenantry(command, "--help")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert COMMANDS[command].summary in text or COMMANDS[command].summary.rstrip(".") in text


def test_status_help_says_that_only_live_asks_the_tenant(tenantry: Tenantry):
    assert "Only --live tells the version of record" in " ".join(tenantry("status", "--help").out.split())


def test_help_imports_neither_pyinfra_nor_yaml():
    program = "import sys; from engine.cli.app import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = done.stderr
    assert "'pyinfra'" not in modules
    assert "'yaml'" not in modules


def test_the_installed_command_runs_under_cooperative_sockets(tenantry: Tenantry):
    program = "import sys; sys.argv = ['tenantry', '--version']; from engine.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tenantry, version ")


def test_a_defect_is_one_line_and_its_traceback_is_kept_in_a_private_file(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch
):
    tenantry.state_directory.mkdir()
    monkeypatch.setattr(app.Invocation, "fleet", _broken)
    result = tenantry("status")
    assert result.code == 1
    (log,) = tenantry.state_directory.glob("internal-error-*.log")
    assert result.err == f"internal error: ZeroDivisionError; the traceback is in {log}\n"
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_defect_shows_its_traceback_where_that_is_asked_for(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app.Invocation, "fleet", _broken)
    monkeypatch.setenv("TENANTRY_DEBUG", "1")
    monkeypatch.setenv("TMPDIR", str(tenantry.root))
    assert "Traceback" in tenantry("status").err
    assert not tenantry.state_directory.exists(), "a state directory is not made for a log"


def test_an_interruption_exits_130_and_says_that_it_may_be_given_again(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app.Invocation, "fleet", _interrupted)
    result = tenantry("status")
    assert result.code == 130
    assert "interrupted" in result.err
    assert "given again" in result.err


def test_an_error_of_the_engine_is_shown_without_control_characters(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch
):
    def fail(self: app.Invocation) -> None:
        raise RecordFailed("bad \x1b[31m news", where="maple", hint="look")

    monkeypatch.setattr(app.Invocation, "fleet", fail)
    result = tenantry("status")
    assert (result.code, result.err) == (1, "error: maple: bad \\x1b[31m news\n  hint: look\n")


def _broken(self: app.Invocation) -> None:
    raise ZeroDivisionError


def _interrupted(self: app.Invocation) -> None:
    raise KeyboardInterrupt
