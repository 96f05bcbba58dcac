"""A fleet of light lab hosts: real Debian, systemd and sshd, with a small gateway instead of the runtime."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.provision.installer import provision_many
from engine.provision.providers.lab import Lab
from engine.provision.servers import lab_of
from engine.updater.events import Event, Reporter
from engine.updater.fleet import converge_many
from engine.updater.outcome import Options, Outcome
from engine.updater.workspace import Workspace, open_workspace
from tests.lab.waiting import until

SOURCE = Path(__file__).with_name("light")
SIGNALLED = Path(__file__).with_name("signalled_cli.py")

HASTY: Any = {"liveness": {"port_seconds": 10, "channel_seconds": 5}}
"""Settings for a test that waits until a gateway is given up."""

DEAD_MAN_SOON: Any = {**HASTY, "recovery": {"dead_man_seconds": 20}}
"""Settings for a test that waits until the dead-man acts."""

PATIENT: Any = {
    "liveness": {"port_seconds": 20, "channel_seconds": 20},
    "recovery": {"dead_man_seconds": 60},
}
"""The light fleet's own: on a machine at work a good restart may take its time."""

NO_OPTIONS = Options()

# The armed dead-man is one of a run that died, of whose set nothing is left.
ARMED_WITHOUT_SET = """
mkdir -p /var/lib/tenantry/deadman
cat > /var/lib/tenantry/deadman/armed.json <<'END'
{"set": "r0", "run": "r0", "head": "2026.10.3", "seconds": 1000, "at": 1, "boot_id": "b"}
END
"""

RESET = """
set -e
cd /var/lib/tenantry
rm -rf version applied.json owed.json held.json copies recovery aside deadman
systemctl disable --now tenantry-deadman.timer 2>/dev/null || true
rm -f /etc/systemd/system/tenantry-deadman.*
systemctl stop light-gateway
find /srv/light -mindepth 1 ! -name SOUL.md -delete
sed -i /please/d /srv/light/SOUL.md
rm -rf /opt/light/1.1 /opt/light/2.* /etc/light
ln -sfn /opt/light/1.0 /opt/light/current
systemctl reset-failed light-gateway 2>/dev/null || true
systemctl start light-gateway
"""


@dataclass
class LightFleet:
    """A copy of the light fleet in `root`, with its own lab and state directory."""

    root: Path
    settings: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def create(cls, root: Path, slugs: Iterable[str], **settings: Any) -> LightFleet:
        """Copy the fleet, register `slugs`, and change `settings` section by section."""
        shutil.copytree(SOURCE, root)
        fleet = cls(root, settings)
        fleet.register(slugs)
        fleet.change_settings(**settings)
        return fleet

    @property
    def state(self) -> Path:
        return self.root / "var"

    def register(self, slugs: Iterable[str], **changes: Any) -> None:
        """Write the registry: the first tenant is in real estate, the others bake."""
        records = {slug: _record(slug, "bakery" if number else "real-estate") for number, slug in enumerate(slugs)}
        for slug, change in changes.items():
            records[slug].update(change)
        (self.root / "inventory/tenants.yaml").write_text(
            yaml.safe_dump({"tenants": records}, allow_unicode=True, sort_keys=False)
        )

    def change_settings(self, **settings: Any) -> None:
        """Replace keys of ``fleet.yaml``; a mapping is merged into its section, None removes one."""
        path = self.root / "inventory/fleet.yaml"
        document = yaml.safe_load(path.read_text())
        for name, value in settings.items():
            if value is None:
                document.pop(name, None)
            elif isinstance(value, dict):
                document[name] = {**document.get(name, {}), **value}
            else:
                document[name] = value
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    def write_releases(self, *releases: tuple[str, Sequence[Any]]) -> None:
        """Replace the manifest by these versions and step entries."""
        document = [
            {
                "version": version,
                "title": version,
                "steps": list(steps),
                "details": version,
                "owner_note": f"Note {version}.",
            }
            for version, steps in releases
        ]
        (self.root / "releases.yaml").write_text(yaml.safe_dump({"releases": document}))

    def workspace(self, report: Reporter | None = None, **changes: Any) -> Workspace:
        """The checked fleet as it is now; events are kept in `events` and handed to `report`."""

        def take(event: Event) -> None:
            self.events.append(event)
            if report:
                report(event)

        return open_workspace(self.root, report=take, **changes)

    def reset(self, *slugs: str) -> None:
        """Put the fleet's files and these tenants back to where phases A and B left them."""
        for name in ("templates", "inventory", "releases.yaml"):
            _copy_again(SOURCE / name, self.root / name)
        self.register(slugs)
        self.change_settings(**self.settings)
        self.events.clear()
        for slug in slugs:
            self.run(slug, RESET)
        for slug in slugs:
            until(lambda: self.is_connected(slug), f"the gateway of {slug} is connected")  # noqa: B023

    @property
    def lab(self) -> Lab:
        return lab_of(self.workspace(), print)

    def provision(self, *slugs: str, report: Reporter | None = None) -> tuple[Outcome, ...]:
        workspace = self.workspace(report)
        return provision_many(workspace, [workspace.fleet.tenants[slug] for slug in slugs])

    def converge(
        self, *slugs: str, report: Reporter | None = None, options: Options = NO_OPTIONS, **more: Any
    ) -> Outcome:
        """Converge the named tenants (default: all) and return the outcome of the first."""
        return self.converge_all(*slugs, report=report, options=options, **more)[0]

    def converge_all(
        self, *slugs: str, report: Reporter | None = None, options: Options = NO_OPTIONS, **more: Any
    ) -> tuple[Outcome, ...]:
        workspace = self.workspace(report)
        tenants = [workspace.fleet.tenants[slug] for slug in slugs or workspace.fleet.tenants]
        return converge_many(workspace, tenants, options, **more)

    def run(self, slug: str, command: str, *, check: bool = True, stdin: bytes = b"") -> str:
        """Run a root shell command inside the host, whether its network is up or not."""
        return self.run_in(self.lab, slug, command, check=check, stdin=stdin)

    @staticmethod
    def run_in(lab: Lab, slug: str, command: str, *, check: bool = True, stdin: bytes = b"") -> str:
        """The same in a host of any lab."""
        shell = lab.shell(slug, ("/bin/sh", "-c", command))
        done = subprocess.run(shell, input=stdin, capture_output=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"{command}: {done.returncode} {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def is_connected(self, slug: str) -> bool:
        """Whether the gateway has reported itself since the reset, which removed its report."""
        return '"connected"' in self.run(slug, "cat /srv/light/gateway_state.json 2>/dev/null || true")

    def marker(self, slug: str) -> str | None:
        """The marker file's text, or None."""
        return self.run(slug, "cat /var/lib/tenantry/version 2>/dev/null || true").strip() or None

    def owed(self, slug: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run(slug, "cat /var/lib/tenantry/owed.json 2>/dev/null || echo {}"))
        return document

    def say(self, slug: str, text: str = "hello", age_seconds: float = 0) -> None:
        """Let somebody say something to the gateway now, or some seconds ago."""
        self.run(
            slug,
            'python3 -c \'import sqlite3, time; c = sqlite3.connect("/srv/light/state.db"); '
            f'c.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES (1, 2, \\"{text}\\", ?)", '
            f"(time.time() - {age_seconds},)); "
            "c.commit()'",
        )

    def cli(
        self, *arguments: str, debug: bool = False, signal_at: tuple[signal.Signals, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start the command line on this fleet as an operator would, in a process of its own.

        With `signal_at` it sends itself that signal at the first line of progress that holds those words.
        """
        program = [str(Path(sys.executable).with_name("tenantry"))]
        if signal_at is not None:
            number, words = signal_at
            program = [sys.executable, str(SIGNALLED), str(int(number)), words]
        return subprocess.Popen(
            [*program, "-C", str(self.root), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_COLOR": "1", **({"TENANTRY_DEBUG": "1"} if debug else {})},
            **{"stdin": subprocess.DEVNULL, **options},
        )


def cut_when_begun(fleet: LightFleet) -> None:
    """Cut the link of `maple` once its step has made ``/srv/light/began``."""
    until(lambda: fleet.run("maple", "ls /srv/light/began 2>/dev/null || true") != "", "the step began", 60)
    fleet.lab.cut("maple")


def _copy_again(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def _record(slug: str, trade: str) -> dict[str, Any]:
    return {
        "owner_name": f"Owner of {slug}",
        "business": f"{slug} 'and' \"sons\" & {{{{ co }}}} %}}",
        "trade": trade,
        "role": "test",
        "daily_backup": True,
        "text_updates": False,
        "ssh_user": "ops",
        "provider": {"name": "lab"},
        "forwarding_address": f"{slug}@example.org",
        "page_host": f"{slug}.example.org",
        "parameters": {},
        "secrets": {},
    }
