"""Unit tests read small files at most; a slow machine must not fail a property."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
