"""The secrets that phase B takes to a tenant."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from engine.records import replace_file
from engine.registry.model import Tenant
from engine.secrets import SecretSources

LAB_SECRET_BYTES = 24


def secrets_of(tenant: Tenant, sources: SecretSources) -> Mapping[str, bytes]:
    """Every secret of `tenant` by name; raises before anything is touched if one cannot be had.

    A lab tenant has no real secrets: those of its files that are missing are made up once.
    """
    if tenant.provider.name == "lab":
        for reference in tenant.secrets.values():
            _make_up(reference, sources.root)
    return {name: sources.resolve(reference) for name, reference in tenant.secrets.items()}


def _make_up(reference: str, root: Path) -> None:
    scheme, _, name = reference.partition(":")
    path = root / name
    if scheme == "file" and not path.exists():
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
        replace_file(path, secrets.token_urlsafe(LAB_SECRET_BYTES).encode())
