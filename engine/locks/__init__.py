"""One lock for each subject, held by a job from its first action to its exit."""

from engine.locks.directory import HeldLock, Holder, LockDirectory

__all__ = ["HeldLock", "Holder", "LockDirectory"]
