"""The reference fleet on real hosts: a copy of this repository's fleet with a lab of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import testinfra
import yaml

from engine.drift.repair import repairer
from engine.provision.providers.lab import Lab, ensure_identity
from engine.provision.servers import lab_of
from engine.updater.fleet import converge_many
from engine.updater.outcome import Options, Outcome
from engine.updater.workspace import Workspace, open_workspace

REPOSITORY = Path(__file__).parents[2]

# Nobody waits for 90 s of silence, nor ten seconds until SSH is tried again.
QUICK: Mapping[str, Mapping[str, Any]] = {
    "quiesce": {"silence_seconds": 1, "poll_seconds": 0.2, "polls": 100},
    "provision": {"poll_seconds": 0.2, "polls": 3000},
}

ASK = """
set -eu
key=$(sed -n 's/^API_SERVER_KEY="\\(.*\\)"$/\\1/p' /etc/tenant/gateway.env)
curl --silent --fail --show-error --max-time 60 http://127.0.0.1:{port}/v1/chat/completions \\
    --header @- --header 'Content-Type: application/json' --header X-Hermes-Session-Id:{session} --data {body} <<END
Authorization: Bearer $key
END
"""


@dataclass
class ReferenceFleet:
    """A copy of this repository's fleet in `root`, with a state directory and a lab of its own."""

    root: Path

    @classmethod
    def create(cls, root: Path, **sections: Mapping[str, Any]) -> Self:
        """Copy the fleet; downloads are shared, `sections` are merged into those of its settings."""
        root.mkdir()
        for name in ("deploys", "inventory", "templates"):
            shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "releases.yaml", root)
        changes = {**QUICK, **sections}
        change_yaml(
            root / "inventory/fleet.yaml",
            lambda found: {**found, **{key: {**found.get(key, {}), **value} for key, value in changes.items()}},
        )
        downloads = REPOSITORY / "var/wheelhouse"
        downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / "var").mkdir(mode=0o700)
        os.symlink(downloads, root / "var/wheelhouse")
        ensure_identity(root / "var")
        return cls(root)

    @property
    def workspace(self) -> Workspace:
        return open_workspace(self.root)

    @property
    def lab(self) -> Lab:
        return lab_of(self.workspace, print)

    def release(self, count: int | None = None) -> None:
        """Make the manifest that of this repository, or its first `count` releases."""
        shutil.copy(REPOSITORY / "releases.yaml", self.root)
        change_yaml(self.root / "releases.yaml", lambda found: {"releases": found["releases"][:count]})

    def run(self, slug: str, command: str, stdin: str = "") -> str:
        """Run a root shell command inside the host."""
        argv = self.lab.shell(slug, ("/bin/sh", "-c", command))
        done = subprocess.run(argv, input=stdin.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    def ask(self, slug: str, session: str, text: str, port: int = 8642) -> str:
        """Say something to the tenant's assistant, or to the one that answers at `port` there; returns its answer."""
        body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]})
        answer = json.loads(self.run(slug, ASK.format(port=port, session=session, body=shlex.quote(body))))
        content: str = answer["choices"][0]["message"]["content"]
        return content

    def host(self, slug: str) -> Any:
        """The host as testinfra sees it, over SSH as the operations account."""
        host = self.lab.find_required(slug)
        known_hosts = self.root / f"known_hosts.{slug}"
        known_hosts.write_text(f"{host.address} {host.host_key}\n")
        return testinfra.get_host(
            f"ssh://{host.ssh_user}@{host.address}",
            sudo=True,
            ssh_identity_file=str(self.root / "var/ssh/id_ed25519"),
            ssh_extra_args=f"-F none -o IdentitiesOnly=yes -o UserKnownHostsFile={known_hosts}",
        )

    def converge(self, *slugs: str, repair: bool = False) -> tuple[Outcome, ...]:
        """Converge the named tenants (default: all), with `repair` as ``converge --repair`` does."""
        workspace = self.workspace
        tenants = workspace.fleet.tenants
        mender = repairer(workspace) if repair else None
        return converge_many(workspace, [tenants[slug] for slug in slugs or tenants], Options(), mender=mender)


def change_yaml(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrite a YAML file as `change` makes it."""
    path.write_text(yaml.safe_dump(change(yaml.safe_load(path.read_text())), sort_keys=False))
