"""The policy of a bucket that keys are let into."""

from __future__ import annotations

import uuid

from engine.environments.drivers.object_keys import policy_text
from engine.environments.names import Owner, names_of
from engine.registry.environments import MEMBERS_PER_TIER

ROOM_BYTES = 20 * 1024


def test_a_tier_and_all_its_members_have_room_in_one_policy() -> None:
    tier = names_of(str(uuid.uuid4()), Owner.TIER)
    members = tuple(names_of(str(uuid.uuid4())).key for _ in range(MEMBERS_PER_TIER))
    assert len(policy_text(tier.bucket, (tier.key, *members))) <= ROOM_BYTES
