"""The rendered set: the files that are always what their template says for a tenant at a version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import InvalidInput
from engine.registry.model import Fleet, Tenant
from engine.registry.settings import RenderedFile
from engine.releases.digests import digest_of
from engine.releases.version import Version
from engine.render.environment import make_environment, render_template

TEMPLATES = "templates"


@dataclass(frozen=True)
class Edit:
    """A patch step's change of a rendered file: a pure function from its text to its text.

    `file` is the rendered file's name or its path on the tenant, `step` names the step in errors.
    """

    step: str
    file: str
    apply: Callable[[str], str]


@dataclass(frozen=True)
class Rendered:
    """What `file` must hold on the tenant; `digest` is ``sha256:…`` of `content`."""

    file: RenderedFile
    content: bytes
    digest: str


class Renderer:
    """Renders one fleet's files; over many tenants each template is compiled once."""

    def __init__(self, fleet: Fleet) -> None:
        self._settings = fleet.settings
        self._directory = fleet.root / TEMPLATES
        self._environment = make_environment(self._directory)

    def render_set(self, tenant: Tenant, version: Version, edits: Sequence[Edit] = ()) -> tuple[Rendered, ...]:
        """Return every file that `tenant` has at `version`, folded through `edits` in their order.

        Raises :class:`InvalidInput` with file and line for a template that cannot be rendered, and
        naming the step for an edit that fails, repeats itself or edits a file that is not there.
        """
        files = [file for file in self._settings.rendered if _exists_at(file, version)]
        self._check_edits(edits, files, version)
        context = self._context(tenant, version)
        return tuple(self._render(file, context, edits) for file in files)

    def _render(self, file: RenderedFile, context: Mapping[str, Any], edits: Sequence[Edit]) -> Rendered:
        text = render_template(self._environment, self._directory, file.template, context)
        for edit in edits:
            if edit.file in (file.name, file.path):
                text = _edited(edit, text)
        content = _encoded(file, text)
        return Rendered(file, content, digest_of(content))

    def _context(self, tenant: Tenant, version: Version) -> dict[str, Any]:
        return {
            "tenant": {
                "slug": tenant.slug,
                "owner_name": tenant.owner_name,
                "business": tenant.business,
                "trade": tenant.trade,
                "role": tenant.role.value,
                "forwarding_address": tenant.forwarding_address,
                "page_host": tenant.page_host,
                "parameters": tenant.parameters,
            },
            "brand": self._settings.brand,
            "values": self._settings.template_values,
            "version": version.text,
            "at_least": lambda text: version >= Version.parse(text),
        }

    def _check_edits(self, edits: Sequence[Edit], files: Sequence[RenderedFile], version: Version) -> None:
        known = {place for file in files for place in (file.name, file.path)}
        for edit in edits:
            if edit.file not in known:
                raise InvalidInput(
                    f"the step {edit.step} edits {edit.file!r}, which is no rendered file at {version}",
                    hint=f"rendered files: {', '.join(file.name for file in files) or 'none'}",
                )


def render_set(fleet: Fleet, tenant: Tenant, version: Version, edits: Sequence[Edit] = ()) -> tuple[Rendered, ...]:
    """Render one tenant's files; see :meth:`Renderer.render_set`."""
    return Renderer(fleet).render_set(tenant, version, edits)


def _exists_at(file: RenderedFile, version: Version) -> bool:
    return file.since is None or Version.parse(file.since) <= version


def _edited(edit: Edit, text: str) -> str:
    once = _applied(edit, text)
    if _applied(edit, once) != once:
        raise InvalidInput(
            f"the edit of {edit.file} by the step {edit.step} changes the file again when it runs twice",
            hint="let the edit look for its own result first",
        )
    return once


def _applied(edit: Edit, text: str) -> str:
    try:
        result = edit.apply(text)
    except Exception as error:  # the edit is the fleet's code: whatever it raises is its author's to read
        raise InvalidInput(f"the edit of {edit.file} by the step {edit.step} failed: {error!r}") from error
    if not isinstance(result, str):
        raise InvalidInput(
            f"the edit of {edit.file} by the step {edit.step} returned {type(result).__name__}, not text"
        )
    return result


def _encoded(file: RenderedFile, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"cannot be written as UTF-8: {error}", where=f"{TEMPLATES}/{file.template}") from error
