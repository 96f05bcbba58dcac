"""Release steps: a pyinfra operation with a precondition fact, in one of three classes.

A fleet's step files import from here; the vocabulary of `expects` is part of it::

    from engine.steps import Answer, StepContext, install, patch, upgrade
"""

from engine.errors import InvalidInput
from engine.hosts.status import Answer, Status
from engine.registry.model import Tenant
from engine.steps.context import StepContext
from engine.steps.declare import install, patch, upgrade
from engine.steps.expectations import (
    Absent,
    Directory,
    EditableFile,
    Expectation,
    File,
    Group,
    Link,
    Model,
    Package,
    Place,
    RouteAnswer,
    Unit,
    Value,
    shipped,
)
from engine.steps.facts import Fact, FileText
from engine.steps.step import Step

__all__ = [
    "Absent",
    "Answer",
    "Directory",
    "EditableFile",
    "Expectation",
    "Fact",
    "File",
    "FileText",
    "Group",
    "InvalidInput",
    "Link",
    "Model",
    "Package",
    "Place",
    "RouteAnswer",
    "Status",
    "Step",
    "StepContext",
    "Tenant",
    "Unit",
    "Value",
    "install",
    "patch",
    "shipped",
    "upgrade",
]
