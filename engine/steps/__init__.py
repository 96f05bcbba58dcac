"""Release steps: a pyinfra operation with a precondition fact, in one of three classes.

A fleet's step files import from here alone::

    from engine.steps import Answer, StepContext, install, patch, upgrade
"""

from engine.errors import InvalidInput
from engine.hosts.status import Answer, Status
from engine.registry.model import Tenant
from engine.steps.context import StepContext
from engine.steps.declare import install, patch, upgrade
from engine.steps.facts import Fact, FileText
from engine.steps.step import Step

__all__ = [
    "Answer",
    "Fact",
    "FileText",
    "InvalidInput",
    "Status",
    "Step",
    "StepContext",
    "Tenant",
    "install",
    "patch",
    "upgrade",
]
