"""Waiting for a condition, as all tests do."""

from tests.waiting import until

__all__ = ["until"]
