"""The cloud-init document a clean server starts from, rendered from the fleet's own template."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import paramiko
import yaml

from engine.errors import InvalidInput, MissingPart
from engine.provision.host_keys import OneTimeKey
from engine.registry.model import Tenant
from engine.render.environment import make_environment, render_template
from engine.render.rendered_set import TEMPLATES
from engine.updater.workspace import Workspace

TEMPLATE = "user-data.yaml.j2"
HEADER = "#cloud-config"

SECRET_BYTES = 8
"""A shorter secret would be found in any document by chance."""


def render_user_data(
    workspace: Workspace,
    tenant: Tenant,
    public_key: str,
    host_key: OneTimeKey | None = None,
    secrets: Collection[bytes] = (),
) -> str:
    """The user-data of `tenant`; raises :class:`InvalidInput` before anything is rebuilt if it is not usable.

    It must start with exactly ``#cloud-config``, have LF line ends only and be a mapping: cloud-init takes
    anything else for some other format and ignores it silently. It must carry `host_key` where there is
    one, and none of `secrets`: whoever runs a process on the server can read it there.
    """
    directory = workspace.fleet.root / TEMPLATES
    values = {
        "slug": tenant.slug,
        "ssh_user": tenant.ssh_user,
        "public_key": public_key,
        "host_key": {"private": host_key.private, "public": str(host_key.public)} if host_key else None,
    }
    text = render_template(make_environment(directory), directory, TEMPLATE, values)
    problem = _problem(text, host_key, secrets)
    if problem:
        raise InvalidInput(f"the user-data {problem}", where=str(directory / TEMPLATE), hint="correct the template")
    return text


def operator_key(workspace: Workspace) -> str:
    """The public half of the operator's identity, as ``ssh-ed25519 AAAA…``; raises :class:`MissingPart`."""
    path = workspace.state_directory / Path(workspace.fleet.settings.identity_file).expanduser()
    try:
        key = paramiko.PKey.from_path(path)
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        raise MissingPart(
            f"the operator's key cannot be read: {error}",
            where=str(path),
            hint=f"mkdir -p -m 700 {path.parent} && ssh-keygen -t ed25519 -N '' -f {path}",
        ) from error
    return f"{key.get_name()} {key.get_base64()}"


def _problem(text: str, host_key: OneTimeKey | None, secrets: Collection[bytes]) -> str:
    if text.split("\n", 1)[0] != HEADER:
        return f"does not start with the line {HEADER}"
    if "\r" in text:
        return "has carriage returns; only LF ends a line"
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Its text is not shown: it holds the host key.
        mark = getattr(error, "problem_mark", None)
        return f"is not YAML, at line {mark.line + 1}" if mark else "is not YAML"
    if not isinstance(document, dict):
        return "is not a mapping"
    if host_key and not _carries(document, host_key):
        return "does not give the server `host_key.private` and `host_key.public` under ssh_keys"
    if any(len(secret) >= SECRET_BYTES and secret in text.encode() for secret in secrets):
        return "holds a secret of the tenant"
    return ""


def _carries(document: dict[str, Any], host_key: OneTimeKey) -> bool:
    keys = document.get("ssh_keys")
    expected = {"ed25519_private": host_key.private, "ed25519_public": str(host_key.public)}
    return isinstance(keys, dict) and keys == expected
