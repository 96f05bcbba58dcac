"""The prompts that a runtime keeps with its conversations: which personality each has, and how it gets the new one."""

from engine.conversations.host_script import fingerprint, spoken
from engine.conversations.prompts import (
    HOST_SCRIPT,
    Conversation,
    Conversations,
    Renewal,
    ask,
    check,
    host_settings,
    is_personality,
    owe,
)

__all__ = [
    "HOST_SCRIPT",
    "Conversation",
    "Conversations",
    "Renewal",
    "ask",
    "check",
    "fingerprint",
    "host_settings",
    "is_personality",
    "owe",
    "spoken",
]
