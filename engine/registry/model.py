"""The registry's records and the fleet that they belong to, as frozen values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.registry.safeguards import Provider
from engine.registry.settings import Settings, Window
from engine.subject import Subject


class Role(StrEnum):
    """Whether a tenant exists to try releases on, or belongs to a paying owner."""

    TEST = "test"
    CLIENT = "client"


@dataclass(frozen=True)
class Hold:
    """Why a rollout leaves a tenant alone, up to and with the day `until`."""

    reason: str
    until: datetime.date


@dataclass(frozen=True)
class Pin:
    """Why a rollout takes a tenant no higher than `version`, up to and with the day `until`."""

    version: str
    reason: str
    until: datetime.date


@dataclass(frozen=True)
class Tenant:
    """One owner, one server, one registry record.

    `address` is None where the provider tells it (lab hosts). `secrets` maps a secret's name to a
    reference such as ``age:secrets/maple.age``; the values are never held here. In `quiet_hours` the owner
    gets no message; it stays owed.
    """

    slug: str
    owner_name: str
    business: str
    trade: str
    role: Role
    daily_backup: bool
    text_updates: bool
    address: str | None
    ssh_user: str
    ssh_port: int
    provider: Provider
    forwarding_address: str
    page_host: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    hold: Hold | None = None
    pin: Pin | None = None
    quiet_hours: Window | None = None

    @property
    def subject(self) -> Subject:
        return Subject("tenant", self.slug)


@dataclass(frozen=True)
class Fleet:
    """A fleet directory, read and checked."""

    root: Path
    settings: Settings
    tenants: Mapping[str, Tenant]
