"""One error tree for the whole engine.

Every class knows the exit code that the command line ends with, and every instance can say what
happened, where, and what the person should do next. Only :mod:`engine.cli` prints or exits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the public contract."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHANGES = 3
    UNREACHABLE = 4
    DEFERRED = 5
    BUSY = 75


SERIOUSNESS = (
    ExitCode.USAGE,
    ExitCode.FAILED,
    ExitCode.UNREACHABLE,
    ExitCode.DEFERRED,
    ExitCode.BUSY,
    ExitCode.CHANGES,
    ExitCode.DONE,
)
"""Most serious first: over several tenants the first that occurs wins."""


def most_serious(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the exit code that stands for all of `codes`; no codes at all is ``DONE``."""
    return min(codes, key=SERIOUSNESS.index, default=ExitCode.DONE)


class TenantryError(Exception):
    """Base of every error a person can meet.

    `message` says what happened, `where` names the place (a file and line, a tenant, a host),
    `hint` says what to do. None of them ever holds a secret.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class InvalidInput(TenantryError):
    """A file, an argument or a template that a person wrote is wrong; nothing was touched."""

    exit_code = ExitCode.USAGE


class Refused(TenantryError):
    """The request is well formed but must not be carried out; nothing was touched."""


class NotProvisioned(Refused):
    """The tenant has no marker and no provisioning receipt."""


class AheadOfHead(Refused):
    """The tenant's marker is above the head of this manifest."""


class EditedRelease(Refused):
    """A release that the tenant has applied no longer has the digest it had then."""


class StaleRun(Refused):
    """A newer run has claimed the host; this run must not touch it any more."""


class Busy(TenantryError):
    """Another job holds the subject, on this machine or on the host."""

    exit_code = ExitCode.BUSY


class Unreachable(TenantryError):
    """No authenticated connection to the host could be made."""

    exit_code = ExitCode.UNREACHABLE


class HostKeyMismatch(Unreachable):
    """The host proved another identity than the pinned one."""


class AuthenticationRefused(Unreachable):
    """The host refused the configured identity."""


class CommandLost(TenantryError):
    """The connection ended before the command's exit status arrived: its outcome is unknown."""

    exit_code = ExitCode.UNREACHABLE


class CommandTimedOut(CommandLost):
    """The command did not end within its bound; it may still run on the host."""


class ProbeFailed(TenantryError):
    """The probe gave no single whole answer, so the tenant's state is unknown."""

    exit_code = ExitCode.UNREACHABLE


class UnknownState(TenantryError):
    """A fact that the run depends on could not be established."""

    exit_code = ExitCode.UNREACHABLE


class CommandFailed(TenantryError):
    """A command on the host ended with a status that is not success."""


class PackagesLocked(TenantryError):
    """Another package manager on the host held its locks for longer than the fleet waits; nothing was broken."""


class PackagesInterrupted(TenantryError):
    """The host's dpkg was interrupted earlier, and this fleet does not let the engine finish its work."""


class ProviderRefused(TenantryError):
    """The provider answered that it will not do what it was asked; nothing was changed by that call."""


class DriverRefused(ProviderRefused):
    """An effect on an environment's resource was refused, and provably nothing was done."""


class DispatchLost(UnknownState):
    """An effect on an environment's resource was sent, and whether it took place is unknown; it is not sent again."""


class EnvironmentRefused(Refused):
    """A request about an environment was refused with a closed `word`; nothing was sent to a provider."""

    def __init__(self, word: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{word}: {message}", where=where, hint=hint)
        self.word = word


class NeedsAttention(TenantryError):
    """An environment stands still, with a closed `word`, until a person gives one of the verbs that go on."""

    def __init__(self, word: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{word}: {message}", where=where, hint=hint)
        self.word = word


class CopyFailed(TenantryError):
    """A copy of an environment could not be made or loaded, with a closed `word`; nothing of it counts."""

    def __init__(self, word: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{word}: {message}", where=where, hint=hint)
        self.word = word


class RollbackFailed(TenantryError):
    """The tenant could not be put back to a recovery set; what the set holds is untouched."""


class RehearsalFailed(TenantryError):
    """An archive was restored on a scratch server, but did not become a tenant at the head."""


class VerifyFailed(TenantryError):
    """The tenant is at its version, but the acceptance check found something wrong."""


class ArchiveRejected(TenantryError):
    """What should be an archive is not a whole one, or could not be kept; nothing was published or removed."""


class StepFailed(TenantryError):
    """A step failed, or its precondition does not hold after it ran."""


class LivenessFailed(TenantryError):
    """The owner could not be shown to reach the service after the change."""


class NotQuiet(TenantryError):
    """The gateway was in conversation until the last poll; the restart stays owed."""

    exit_code = ExitCode.DEFERRED


class OffsiteFailed(TenantryError):
    """An archive is published on this machine, but its copy did not reach the offsite repository."""


class MissingPart(TenantryError):
    """Something this machine needs is not installed or not permitted."""


class RecordFailed(TenantryError):
    """A record on the operator's machine could not be written; the old one is intact."""
