"""Loading a fleet: values as typed, frozen; everything wrong named with file, line and key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from engine.errors import ExitCode, InvalidInput
from engine.registry import model
from engine.registry import settings as sections_of
from engine.registry.load import load_fleet
from engine.registry.schema import read_schema
from tests.unit.fleets import TENANT, tenants_text, write_fleet

TENANTS = "inventory/tenants.yaml"
SETTINGS = "inventory/fleet.yaml"


def refusal(root: Path, **texts: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load_fleet(write_fleet(root, **texts))
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def with_key(key: str, value: str) -> str:
    """The valid record with `key` set to `value`, in the line where it stands or in line 12."""
    lines = TENANT.splitlines(keepends=True)
    kept = [line if not line.strip().startswith(f"{key}:") else f"    {key}: {value}\n" for line in lines]
    return "".join(kept) if kept != lines else TENANT + f"    {key}: {value}\n"


def test_a_whole_record(tmp_path: Path) -> None:
    record = with_key("provider", "{name: hetzner, plan: cx22, zones: [a, b]}") + (
        '    address: "[2001:db8::1]"\n    ssh_user: admin\n    ssh_port: 2222\n'
        "    parameters: {tone: warm, hours: {monday: [9, 17]}}\n"
        "    secrets: {gateway_key: file:secrets/maple.key}\n"
    )
    tenant = load_fleet(write_fleet(tmp_path, tenants=tenants_text(record))).tenants["maple"]
    assert (tenant.slug, tenant.address, tenant.ssh_user, tenant.ssh_port) == (
        "maple",
        "2001:db8::1",
        "admin",
        2222,
    )
    assert tenant.role is model.Role.CLIENT
    assert tenant.provider.name == "hetzner"
    assert dict(tenant.provider.options) == {"plan": "cx22", "zones": ("a", "b")}
    assert tenant.parameters["hours"]["monday"] == (9, 17)
    assert dict(tenant.secrets) == {"gateway_key": "file:secrets/maple.key"}
    assert str(tenant.subject) == "tenant/maple"


def test_defaults_of_a_lab_tenant(tmp_path: Path) -> None:
    fleet = load_fleet(write_fleet(tmp_path))
    tenant = fleet.tenants["maple"]
    assert (tenant.address, tenant.ssh_user, tenant.ssh_port) == (None, "root", 22)
    assert fleet.settings == sections_of.Settings(brand="Queva")
    assert fleet.root == tmp_path


def test_every_value_is_frozen(tmp_path: Path) -> None:
    tenants = tenants_text(with_key("parameters", "{a: {b: [1]}}"))
    fleet = load_fleet(write_fleet(tmp_path, tenants=tenants, settings="brand: Q\ntemplate_values: {a: {b: 1}}\n"))
    for mapping in (fleet.tenants["maple"].parameters["a"], fleet.settings.template_values["a"]):
        with pytest.raises(TypeError):
            mapping["b"] = 2
    with pytest.raises(TypeError):
        fleet.tenants["maple"] = fleet.tenants["maple"]  # type: ignore[index]
    assert fleet.tenants["maple"].parameters["a"]["b"] == (1,)


def test_settings_replace_defaults_section_by_section(tmp_path: Path) -> None:
    text = """\
brand: Queva
parallel: 3
quiesce: {silence_seconds: 2.5}
services: [caddy.service]
routes: [{name: health, url: "http://127.0.0.1:8642/health"}]
rendered:
  - {name: soul, template: soul.md.j2, path: /srv/SOUL.md, owner: hermes, group: hermes, mode: "0644",
     since: 2026.10.22, restart: true, reload: [caddy.service]}
gateway:
  {unit: gateway.service, address: 127.0.0.1, port: 8642, health_path: /health, state_file: /srv/state.json,
   database: /srv/state.db, config_file: /srv/config.yaml, state_directory: /srv, runtime_link: /opt/current,
   channels: [api_server]}
lab: {packages: [caddy, python3-venv]}
"""
    settings = load_fleet(write_fleet(tmp_path, settings=text)).settings
    assert (settings.parallel, settings.batch_size) == (3, 250)
    assert settings.quiesce == dataclasses.replace(sections_of.Quiesce(), silence_seconds=2.5)
    assert settings.routes == (sections_of.Route("health", "http://127.0.0.1:8642/health"),)
    assert settings.rendered[0].since == "2026.10.22"
    assert settings.rendered[0].reload == ("caddy.service",)
    assert settings.gateway is not None
    assert settings.gateway.channels == ("api_server",)
    assert settings.lab.packages == ("caddy", "python3-venv")


@pytest.mark.parametrize(
    ("key", "value", "line", "wanted"),
    [
        ("owner_name", "~", 3, "wanted text, found nothing (null)"),
        ("owner_name", "", 3, "wanted text, found nothing (null)"),
        ("owner_name", '"a\\nb"', 3, "wanted one line of text without control characters, found U+000A"),
        ("owner_name", '"\\e[2J"', 3, "wanted one line of text without control characters, found U+001B"),
        ("business", "[a]", 4, "wanted text, found a list"),
        ("business", "42", 4, 'wanted text, found the number 42\n  hint: quote it: "42"'),
        ("business", "true", 4, 'wanted text, found the truth value true\n  hint: quote it: "true"'),
        ("trade", "Real Estate", 5, "wanted a slug"),
        ("role", "boss", 6, 'wanted test or client, found the text "boss"'),
        ("daily_backup", "yes", 7, 'wanted true or false, found the text "yes"'),
        ("text_updates", "True", 8, "True reads as the truth value true"),
        ("provider", "{name: cloud}", 9, "wanted lab or hetzner"),
        ("provider", "{name: lab, memory: ~}", 9, "found nothing (null)"),
        ("forwarding_address", "mara", 10, "wanted a mail address"),
        ("page_host", "maple.example.com:80", 11, "wanted a host name"),
        ("page_host", "http://maple", 11, "wanted a host name"),
        ("address", '"[2001:db8::1]:2222"', 12, "the port belongs into ssh_port"),
        ("address", "~", 12, "wanted text, found nothing (null)"),
        ("ssh_port", "0", 12, "wanted a port from 1 to 65535"),
        ("ssh_port", '"22"', 12, 'wanted a port from 1 to 65535, found the text "22"'),
        ("ssh_port", "022", 12, '022 reads as the number 22\n  hint: quote it: "022"'),
        ("ssh_port", "22.5", 12, "wanted a port"),
        ("ssh_user", '"root\\n"', 12, "wanted the name of a user"),
        ("ssh_user", "-oX", 12, "wanted the name of a user"),
        ("parameters", "{account: 010}", 12, 'parameters.account: 010 reads as the number 10'),
        ("parameters", "{motto: ~}", 12, "parameters.motto: wanted text, a number"),
        ("parameters", "{a: [{b: ~}]}", 12, "parameters.a[0].b: wanted text, a number"),
        ("secrets", "{key: hunter2}", 12, "wanted a reference: age:PATH, command:PROGRAM"),
        ("onwer_name", "x", 12, "unknown key\n  hint: did you mean 'owner_name'?"),
        ("ssh_prot", "22", 12, "unknown key\n  hint: did you mean 'ssh_port'?"),
    ],
)  # fmt: skip
def test_bad_values_name_file_line_and_key(tmp_path: Path, key: str, value: str, line: int, wanted: str) -> None:
    error = refusal(tmp_path, tenants=tenants_text(with_key(key, value)))
    assert error.where == f"{tmp_path / TENANTS}:{line}"
    assert error.message.startswith(f"tenants.maple.{key}")
    assert wanted in f"{error.message}\n  hint: {error.hint}"


@pytest.mark.parametrize("slug", ['".."', "a/b", "-x", '"maple\\n"', "Maple", "m", '"a\\0b"', "x-"])
def test_bad_slugs_are_refused_where_they_stand(tmp_path: Path, slug: str) -> None:
    error = refusal(tmp_path, tenants=tenants_text(slug=slug))
    assert error.where == f"{tmp_path / TENANTS}:2"
    assert "wanted a slug" in error.message


def test_duplicate_tenants_are_refused_with_both_lines(tmp_path: Path) -> None:
    error = refusal(tmp_path, tenants=tenants_text() + f"  maple:\n{TENANT}")
    assert error.where == f"{tmp_path / TENANTS}:12"
    assert error.message == "duplicate key 'maple', already on line 2"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, tenants=tenants_text(TENANT.replace("    trade: real-estate\n", "")))
    assert str(error) == f"{tmp_path / TENANTS}:2: tenants.maple: misses trade"


def test_a_tenant_outside_the_lab_needs_an_address(tmp_path: Path) -> None:
    error = refusal(tmp_path, tenants=tenants_text(with_key("provider", "{name: hetzner}")))
    assert str(error) == f"{tmp_path / TENANTS}:2: tenants.maple: misses address"


def test_two_tenants_do_not_share_a_server(tmp_path: Path) -> None:
    one, other = with_key("address", "2001:db8::1"), with_key("address", '"[2001:DB8::1]"')
    error = refusal(tmp_path, tenants=tenants_text(one) + f"  birch:\n{other}")
    assert error.where == f"{tmp_path / TENANTS}:23"
    assert error.message == ("tenants.birch.address: 2001:db8::1 with port 22 is the server of 'maple' already")
    tenants = tenants_text(one) + f"  birch:\n{other}    ssh_port: 2222\n"
    assert len(load_fleet(write_fleet(tmp_path, tenants=tenants)).tenants) == 2


def test_all_problems_of_a_file_are_reported_together_in_line_order(tmp_path: Path) -> None:
    record = with_key("role", "boss").replace("Mara Lindt", "~") + "    zork: 1\n"
    lines = str(refusal(tmp_path, tenants=tenants_text(record))).splitlines()
    file = tmp_path / TENANTS
    assert [line.split(" ")[0] for line in lines] == [f"{file}:3:", f"{file}:6:", f"{file}:12:"]


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    keys = "".join(f"    zork{number}: 1\n" for number in range(30))
    lines = refusal(tmp_path, tenants=tenants_text(TENANT + keys)).message.splitlines()
    assert (len(lines), lines[-1]) == (21, "and 10 more")


@pytest.mark.parametrize("text", ["# nothing\n", "tenants:\n", "- a\n", "tenants: [maple]\n"])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    assert "wanted a mapping" in refusal(tmp_path, tenants=text).message


def test_a_registry_without_tenants_is_one(tmp_path: Path) -> None:
    assert load_fleet(write_fleet(tmp_path, tenants="tenants: {}\n")).tenants == {}


@pytest.mark.parametrize("name", [TENANTS, SETTINGS])
def test_a_missing_file_hints_at_the_fleet_directory(tmp_path: Path, name: str) -> None:
    (write_fleet(tmp_path) / name).unlink()
    with pytest.raises(InvalidInput) as caught:
        load_fleet(tmp_path)
    assert caught.value.where == str(tmp_path / name)
    assert "-C" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("parallel: 1\n", 1, "misses brand"),
        ("brand: Q\nquiesce:\n  silence_second: 90\n", 3, "quiesce.silence_second: unknown key"),
        ("brand: Q\nquiesce:\n  silence_second: 90\n", 3, "did you mean 'silence_seconds'?"),
        ("brand: Q\nquiet: {}\n", 2, "did you mean 'quiesce'?"),
        ("brand: Q\nquiesce: {polls: 0}\n", 2, "quiesce.polls: wanted at least 1, found the number 0"),
        ("brand: Q\nquiesce: {silence_seconds: -1}\n", 2, "wanted at least 0"),
        ("brand: Q\nquiesce: {polls: 1.5}\n", 2, "wanted a whole number"),
        ("brand: Q\nliveness: {port_seconds: .inf}\n", 2, ".inf reads as the number"),
        ("brand: Q\nparallel: true\n", 2, "wanted a whole number, found the truth value true"),
        ("brand: Q\nbatch_size: 251\n", 2, "wanted at most 250"),
        ("brand: Q\ntransport: ~\n", 2, "transport: wanted a mapping, found nothing (null)"),
        ("brand: Q\ntemplate_values: {a: ~}\n", 2, "template_values.a: wanted text, a number"),
    ],
)
def test_bad_settings_name_file_line_and_key(tmp_path: Path, text: str, line: int, words: str) -> None:
    error = refusal(tmp_path, settings=text)
    assert error.where == f"{tmp_path / SETTINGS}:{line}"
    assert words in f"{error.message} {error.hint}"


GATEWAY = """gateway: {unit: g.service, address: 127.0.0.1, port: 1, health_path: /, state_file: /s, database: /d,
  config_file: /c, state_directory: /h, runtime_link: /l, channels: [local]}
"""


def test_a_dead_man_that_would_act_while_liveness_is_proved_is_refused(tmp_path: Path) -> None:
    bounds = "liveness: {port_seconds: 30, channel_seconds: 60, steady_seconds: 10}\nrecovery:\n  kept: 2\n"
    text = f"brand: Q\n{GATEWAY}{bounds}  dead_man_seconds: 100\n"
    error = refusal(tmp_path, settings=text)
    assert error.where == f"{tmp_path / SETTINGS}:7" and "recovery.dead_man_seconds" in error.message
    assert "100 s are not longer than the 100 s that liveness may take" in error.message
    (tmp_path / SETTINGS).write_text(text.replace("dead_man_seconds: 100", "dead_man_seconds: 101"))
    assert load_fleet(tmp_path).settings.recovery.dead_man_seconds == 101
    (tmp_path / SETTINGS).write_text(text.replace(GATEWAY, ""))
    assert load_fleet(tmp_path).settings.gateway is None


RENDERED = {
    "name": "soul",
    "template": "s.j2",
    "path": "/s",
    "owner": "root",
    "group": "root",
    "mode": '"0644"',
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "0644"}, "0644 reads as the number 644"),
        ({"mode": "644"}, 'wanted a quoted file mode such as "0644"'),
        ({"mode": '"rwx"'}, 'wanted a quoted file mode such as "0644"'),
        ({"path": "srv/x"}, "wanted an absolute path"),
        ({"path": "/srv/../x"}, "wanted an absolute path"),
        ({"template": "../x"}, "wanted a path below the directory"),
        ({"since": "2026.10"}, "2026.10 reads as the number 2026.1"),
        ({"since": "soon"}, 'wanted a version such as "2026.10.22.3"'),
        ({"since": "2026.2.30"}, "rendered[0].since: '2026.2.30' does not start with a date"),
        ({"owner": "a:b"}, "wanted the name of a user or group"),
        ({"restrat": "true"}, "did you mean 'restart'?"),
    ],
)
def test_bad_rendered_files_are_refused(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    item = ", ".join(f"{key}: {value}" for key, value in {**RENDERED, **changes}.items())
    error = refusal(tmp_path, settings=f"brand: Q\nrendered:\n  - {{{item}}}\n")
    assert error.where == f"{tmp_path / SETTINGS}:3"
    assert words in f"{error.message} {error.hint}"


@pytest.mark.parametrize("key", ["name", "path"])
def test_a_rendered_file_is_there_once(tmp_path: Path, key: str) -> None:
    items = [dict(RENDERED), {**RENDERED, "name": "other", "path": "/o"}]
    items[1][key] = items[0][key]
    text = "".join(f"  - {{{', '.join(f'{k}: {v}' for k, v in item.items())}}}\n" for item in items)
    error = refusal(tmp_path, settings=f"brand: Q\nrendered:\n{text}")
    assert f"rendered[0].{key}: {items[0][key]!r} is there 2 times" in error.message


@pytest.mark.parametrize("name", ["tenants.json", "fleet.json"])
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(read_schema("engine.registry", name))


def test_the_settings_schema_has_the_keys_of_the_settings() -> None:
    schema = read_schema("engine.registry", "fleet.json")
    assert set(schema["properties"]) == {field.name for field in dataclasses.fields(sections_of.Settings)}
    sections = {
        "quiesce": sections_of.Quiesce,
        "liveness": sections_of.Liveness,
        "transport": sections_of.Transport,
        "notify": sections_of.Notify,
        "lab": sections_of.LabSettings,
        "gateway": sections_of.Gateway,
        "route": sections_of.Route,
        "rendered": sections_of.RenderedFile,
    }
    found = {**schema["properties"], **schema["$defs"]}
    for name, section in sections.items():
        assert set(found[name]["properties"]) == set(get_type_hints(section)), name


def test_the_registry_schema_has_the_keys_of_a_tenant() -> None:
    keys = set(read_schema("engine.registry", "tenants.json")["$defs"]["tenant"]["properties"])
    assert keys == {field.name for field in dataclasses.fields(model.Tenant)} - {"slug"}


def test_every_number_of_the_settings_has_a_minimum() -> None:
    def numbers(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in numbers(item)]
        if not isinstance(node, dict):
            return []
        own = [node] if node.get("type") in ("number", "integer") else []
        return own + [found for item in node.values() for found in numbers(item)]

    assert all("minimum" in number for number in numbers(dict(read_schema("engine.registry", "fleet.json"))))
