"""What a host is told at its first boot (cloud-init's NoCloud data source)."""

from __future__ import annotations

import json

import yaml


def meta_data(slug: str, instance_id: str) -> str:
    """Return the instance's name; another `instance_id` makes cloud-init run as on a new server."""
    return json.dumps({"instance-id": instance_id, "local-hostname": slug}) + "\n"


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
