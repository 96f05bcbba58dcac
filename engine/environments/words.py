"""Closed words: why an environment waits for a person, and why a request was refused. Others are never said.

Those of providers and parents are :class:`engine.environments.drivers.trouble.Trouble` and
:class:`engine.environments.parents.recognition.Deviation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Attention(StrEnum):
    """Why a subject stands still until one of the verbs goes on."""

    CREATE_OUTCOME_UNKNOWN = "createOutcomeUnknown"
    DELETE_OUTCOME_UNKNOWN = "deleteOutcomeUnknown"
    DELETE_FAILED = "deleteFailed"
    RESOURCE_MISSING = "resourceMissing"
    RESOURCE_DIFFERS = "resourceDiffers"
    FOREIGN_RESOURCE = "foreignResource"
    STILL_PRESENT = "stillPresent"


WAYS_ON: Mapping[Attention, str] = {
    Attention.CREATE_OUTCOME_UNKNOWN: "`create` again if it may be there by now, else `reclaim-unjournalled-create`",
    Attention.DELETE_OUTCOME_UNKNOWN: "`reclaim-failed-delete`",
    Attention.DELETE_FAILED: "`reclaim-failed-delete`",
    Attention.RESOURCE_MISSING: "`reclaim-unjournalled-delete`; what is durable and ready is retired first",
    Attention.RESOURCE_DIFFERS: "`create` again once it is put back by hand, or `retire`",
    Attention.FOREIGN_RESOURCE: "the same command, once whoever made it took it away",
    Attention.STILL_PRESENT: (
        "`retire` while it is retiring; else `reclaim`, `expire-retained` for what was retained, or "
        "`reclaim-unjournalled-create` where a creation has no outcome"
    ),
}
"""What may go on with a subject that needs attention, for people."""


class Refusal(StrEnum):
    """Why a request was refused; nothing was sent to a provider."""

    NOT_KNOWN = "environmentNotKnown"
    TOMBSTONED = "alreadyTombstoned"
    SPECIFICATION_CHANGED = "specificationChanged"
    FENCED = "fenced"
    INTENT_STANDS = "intentStands"
    NOT_CREATING = "notCreating"
    NOT_READY = "notReady"
    NOT_LETTING_GO = "notLettingGo"
    CREATE_NOT_ENDED = "createNotEnded"
    RETENTION_APPLIES = "retentionApplies"
    RETENTION_RUNNING = "retentionRunning"
    NOT_RETAINED = "notRetained"
    NO_FAILED_DELETE = "noFailedDelete"
    DELETE_FAILED = "deleteFailed"
    NO_UNJOURNALLED_DELETE = "noUnjournalledDelete"
    NO_UNJOURNALLED_CREATE = "noUnjournalledCreate"
    FOREIGN_RESOURCE = "foreignResource"
    OBSERVATION_UNKNOWN = "observationUnknown"
    PROVIDER_REFUSED = "providerRefused"
    NO_REQUEST = "requestNotMade"
    TIER_NOT_READY = "tierNotReady"
    TIER_HAS_MEMBERS = "tierHasMembers"
    SPEC_UNRECOGNIZED = "specUnrecognized"
    PARENT_UNRECOGNIZED = "parentUnrecognized"
    CARRIES_NO_BACKUP = "carriesNoBackup"
    COPY_UNKNOWN = "copyUnknown"
    COPY_DAMAGED = "copyDamaged"


class Noted(StrEnum):
    """How the outcome of an effect that was sent came to be known later."""

    PRESENT = "observedPresent"
    ABSENT = "observedAbsent"


class Fault(StrEnum):
    """Why an environment that is all there is not ready."""

    NOT_SERVING = "notServing"


class CopyFault(StrEnum):
    """Why a copy could not be made or loaded; what was begun of it counts for nothing."""

    DUMP_FAILED = "dumpFailed"
    LOAD_FAILED = "loadFailed"
    COPY_DAMAGED = "copyDamaged"
    RESTORED_DIFFERS = "restoredDiffers"
