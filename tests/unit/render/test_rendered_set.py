"""The rendered set of a tenant at a version, with the edits of patch steps folded in."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.registry.freeze import freeze
from engine.releases.version import Version
from engine.render.rendered_set import Edit, Renderer, render_set
from tests.unit.fleets import make_fleet, make_rendered, make_tenant

VERSION = Version.parse("2026.10.22.3")


def append(line: str) -> Edit:
    return Edit("motto", "personality", lambda text: text if line in text else f"{text}{line}\n")


def test_the_context_holds_the_record_and_the_settings(tmp_path: Path) -> None:
    template = """\
{{ tenant.slug }} {{ tenant.owner_name }} {{ tenant.business }} {{ tenant.trade }} {{ tenant.role }}
{{ tenant.forwarding_address }} {{ tenant.page_host }} {{ tenant.parameters.tone }}
{{ brand }} {{ values.model }} {{ version }}
"""
    fleet = make_fleet(tmp_path, {"personality.j2": template}, template_values=freeze({"model": "m1"}))
    tenant = make_tenant(parameters=freeze({"tone": "warm"}))
    (rendered,) = render_set(fleet, tenant, VERSION)
    assert (
        rendered.content.decode()
        == """\
maple Mara Lindt Maple Realty real-estate client
mara@maple.example maple.example.com warm
Queva m1 2026.10.22.3
"""
    )
    assert rendered.digest == "sha256:" + hashlib.sha256(rendered.content).hexdigest()
    assert rendered.file.name == "personality"


def test_a_template_can_ask_for_a_version(tmp_path: Path) -> None:
    template = "{{ at_least('2026.10.22.3') }} {{ at_least('2026.10.22.10') }} {{ at_least('2026.9.30') }}"
    fleet = make_fleet(tmp_path, {"personality.j2": template})
    assert render_set(fleet, make_tenant(), VERSION)[0].content == b"true false true"


def test_a_version_that_is_none_is_an_error_in_the_template(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "\n{{ at_least('soon') }}"})
    with pytest.raises(InvalidInput, match="not a version") as caught:
        render_set(fleet, make_tenant(), VERSION)
    assert caught.value.where == f"{tmp_path}/templates/personality.j2:2"


@pytest.mark.parametrize(("version", "names"), [("2026.10.22", ["old"]), ("2026.10.22.10", ["old", "new"])])
def test_a_file_exists_since_its_version(tmp_path: Path, version: str, names: list[str]) -> None:
    files = (make_rendered("old", since="2026.9.1"), make_rendered("new", since="2026.10.22.10"))
    fleet = make_fleet(tmp_path, {"old.j2": "", "new.j2": ""}, rendered=files)
    rendered = render_set(fleet, make_tenant(), Version.parse(version))
    assert [item.file.name for item in rendered] == names


def test_edits_are_folded_in_order_by_name_or_path(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "a\n", "other.j2": "o\n"})
    by_path = Edit("swap", "/srv/personality", lambda text: text.replace("one", "two"))
    rendered = render_set(fleet, make_tenant(), VERSION, [append("one"), by_path])
    assert [item.content for item in rendered] == [b"a\ntwo\n", b"o\n"]


def test_an_edit_may_not_change_its_own_result(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "a\n"})
    with pytest.raises(InvalidInput, match="the step twice changes the file again when it runs twice"):
        render_set(fleet, make_tenant(), VERSION, [Edit("twice", "personality", lambda text: text + "x")])


def test_an_edit_that_fails_is_named(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "a\n"})
    with pytest.raises(InvalidInput, match=r"the step bad failed: ValueError"):
        render_set(fleet, make_tenant(), VERSION, [Edit("bad", "personality", lambda text: str(text.index("z")))])


def test_an_edit_must_return_text(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "a\n"})
    with pytest.raises(InvalidInput, match="the step none returned NoneType, not text"):
        render_set(fleet, make_tenant(), VERSION, [Edit("none", "personality", lambda text: None)])  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("file", ["persnality", "/srv/elsewhere", "later"])
def test_an_edit_of_a_file_that_is_not_there_is_refused(tmp_path: Path, file: str) -> None:
    files = (make_rendered("personality"), make_rendered("later", since="2026.11.1"))
    fleet = make_fleet(tmp_path, {"personality.j2": "", "later.j2": ""}, rendered=files)
    with pytest.raises(InvalidInput, match="which is no rendered file at") as caught:
        render_set(fleet, make_tenant(), VERSION, [Edit("motto", file, str)])
    assert caught.value.hint == "rendered files: personality"


def test_hostile_values_arrive_byte_for_byte_and_once(tmp_path: Path) -> None:
    hostile = 'redis://u:p&w<\'@h {{ tenant.slug }} %} {% raw %} "q" Zoë 😀'
    fleet = make_fleet(tmp_path, {"personality.j2": "{{ tenant.parameters.db_url }}"})
    tenant = make_tenant(parameters=freeze({"db_url": hostile}))
    assert render_set(fleet, tenant, VERSION, [Edit("same", "personality", str)])[0].content == hostile.encode()


def test_text_that_is_no_utf_8_is_refused_with_its_template(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, {"personality.j2": "a"})
    with pytest.raises(InvalidInput, match="cannot be written as UTF-8") as caught:
        render_set(fleet, make_tenant(), VERSION, [Edit("odd", "personality", lambda text: "\ud800")])
    assert caught.value.where == "templates/personality.j2"


def test_one_renderer_serves_many_tenants(tmp_path: Path) -> None:
    renderer = Renderer(make_fleet(tmp_path, {"personality.j2": "{{ tenant.slug }}"}))
    slugs = [renderer.render_set(make_tenant(slug=slug), VERSION)[0].content for slug in ("maple", "birch")]
    assert slugs == [b"maple", b"birch"]
