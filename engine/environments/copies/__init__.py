"""Copies of an environment's database and bucket, each whole or not there, and what a new environment is made from."""

from engine.environments.copies.backup import back_up
from engine.environments.copies.manifest import Copy
from engine.environments.copies.place import Place
from engine.environments.copies.restore import Source, is_restored, known, require_whole, restore
from engine.environments.copies.retention import due

__all__ = ["Copy", "Place", "Source", "back_up", "due", "is_restored", "known", "require_whole", "restore"]
