"""What a host is told at its first boot (cloud-init's NoCloud data source)."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

DISABLED = Path("etc/cloud/cloud-init.disabled")
"""Where this file exists, cloud-init does nothing."""

DIRECTORY = Path("var/lib/cloud/seed/nocloud")


def meta_data(slug: str, instance_id: str) -> str:
    """Return the instance's name; another `instance_id` makes cloud-init run as on a new server."""
    return json.dumps({"instance-id": instance_id, "local-hostname": slug}) + "\n"


def write(tree: Path, *, meta_data: str, user_data: str) -> None:
    """Leave both documents where cloud-init finds them; only root on the host may read them."""
    (tree / DISABLED).unlink(missing_ok=True)
    directory = tree / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {"meta-data": meta_data, "user-data": user_data}.items():
        (directory / name).write_text(text, encoding="utf-8")
        (directory / name).chmod(0o600)


def default_user_data(ssh_user: str, public_key: str) -> str:
    """Return a cloud-config document with one account: key only, and root through sudo."""
    account = {
        "name": ssh_user,
        "gecos": "Tenantry operator",
        "shell": "/bin/bash",
        "lock_passwd": True,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": [public_key],
    }
    document = {"users": [account], "ssh_pwauth": False, "disable_root": True}
    return "#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=1000)
