"""The two storage parents that all environments share. Nothing here, or anywhere, deletes one."""

from engine.environments.parents.lab import LabParents
from engine.environments.parents.recognition import ParentKind, ParentSeen, recognized, require

__all__ = ["LabParents", "ParentKind", "ParentSeen", "recognized", "require"]
