"""The cloud-init document a clean server starts from, rendered from the fleet's own template."""

from __future__ import annotations

import yaml

from engine.errors import InvalidInput
from engine.registry.model import Tenant
from engine.render.environment import make_environment, render_template
from engine.render.rendered_set import TEMPLATES
from engine.updater.workspace import Workspace

TEMPLATE = "user-data.yaml.j2"
HEADER = "#cloud-config"


def render_user_data(workspace: Workspace, tenant: Tenant, public_key: str) -> str:
    """The user-data of `tenant`; raises :class:`InvalidInput` before anything is rebuilt if it is not usable.

    It must start with exactly ``#cloud-config``, have LF line ends only and be a mapping: cloud-init takes
    anything else for some other format and ignores it silently.
    """
    directory = workspace.fleet.root / TEMPLATES
    values = {"slug": tenant.slug, "ssh_user": tenant.ssh_user, "public_key": public_key}
    text = render_template(make_environment(directory), directory, TEMPLATE, values)
    problem = _problem(text)
    if problem:
        raise InvalidInput(f"the user-data {problem}", where=str(directory / TEMPLATE), hint="correct the template")
    return text


def _problem(text: str) -> str:
    if text.split("\n", 1)[0] != HEADER:
        return f"does not start with the line {HEADER}"
    if "\r" in text:
        return "has carriage returns; only LF ends a line"
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return f"is not YAML: {error}"
    return "" if isinstance(document, dict) else "is not a mapping"
