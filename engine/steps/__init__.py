"""Release steps: a pyinfra operation with a precondition fact, in one of three classes.

A fleet's step files import from here alone::

    from engine.steps import Answer, StepContext, install, patch, upgrade
"""

from engine.hosts.status import Answer, Status
from engine.steps.context import StepContext
from engine.steps.declare import install, patch, upgrade
from engine.steps.facts import Fact, FileText
from engine.steps.step import Step

__all__ = ["Answer", "Fact", "FileText", "Status", "Step", "StepContext", "install", "patch", "upgrade"]
