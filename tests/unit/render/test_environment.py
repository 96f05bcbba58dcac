"""Templates: strict, byte-exact, confined, repeatable; every error has the template's file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ExitCode, InvalidInput
from engine.registry.freeze import freeze
from engine.registry.yaml_loader import parse
from engine.render.environment import make_environment, render_template

HOSTILE = "\"double\" 'single' {{ tenant }} {% if %} %} {# x #} & < > \\ $HOME `id` Zoë 株式会社 😀 \r\n tail"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "templates/parts").mkdir(parents=True)
    return tmp_path / "templates"


def render(directory: Path, text: str, **context: Any) -> str:
    (directory / "file.j2").write_bytes(text.encode())
    return render_template(make_environment(directory), directory, "file.j2", context)


def refusal(directory: Path, text: str, **context: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        render(directory, text, **context)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_values_arrive_as_they_are(directory: Path) -> None:
    assert render(directory, "<{{ value }}>\n", value=HOSTILE) == f"<{HOSTILE}>\n"


def test_values_are_not_rendered_again_through_includes_macros_and_loops(directory: Path) -> None:
    (directory / "parts/one").write_text("{{ value }}")
    macro = "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(value) }}"
    loop = "{% for item in [value] %}{{ item }}{% endfor %}"
    text = "|".join(["{% include 'parts/one' %}", macro, loop])
    assert render(directory, text, value=HOSTILE) == "|".join([HOSTILE] * 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_value_arrives_byte_for_byte(directory: Path, value: str) -> None:
    assert render(directory, "{{ value }}", value=value).encode() == value.encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_any_value_comes_back_from_yaml_through_the_json_filter(directory: Path, value: str) -> None:
    rendered = render(directory, "key: {{ value | json }}\nother: 1\n", value=value)
    assert parse(rendered, Path("x")).value == {"key": value, "other": 1}


@pytest.mark.parametrize("text", ["a\n", "a", "a\n\n", "\n"])
def test_line_ends_are_kept(directory: Path, text: str) -> None:
    assert render(directory, text) == text


def test_lines_of_blocks_leave_nothing_behind(directory: Path) -> None:
    text = "a\n  {% if flag %}\nb\n  {% endif %}\n{# note #}\nc\n"
    assert render(directory, text, flag=True) == "a\nb\nc\n"


def test_truth_values_are_written_as_configuration_files_have_them(directory: Path) -> None:
    assert render(directory, "{{ a }} {{ b }} {{ n }}", a=True, b=False, n=1.5) == "true false 1.5"


def test_a_parameter_may_have_the_name_of_a_method(directory: Path) -> None:
    values = freeze({"items": "a", "keys": "b", "get": "c"})
    assert render(directory, "{{ v.items }}{{ v.keys }}{{ v.get }}", v=values) == "abc"
    pairs = "{% for key, value in v.items() %}{{ key }}={{ value }};{% endfor %}"
    assert render(directory, pairs, v=freeze({"x": 1})) == "x=1;"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n\n{{ missing }}\n", "'missing' is undefined"),
        ("\n\n{{ tenant.nmae }}\n", "there is no value 'nmae' here, only name, none, list"),
        ("\n\n{{ tenant['nmae'] }}\n", "there is no value 'nmae' here"),
        ("\n\n{{ tenant.nmae | json }}\n", "there is no value 'nmae' here"),
        ("\n\n{{ tenant.nmae | unit }}\n", "there is no value 'nmae' here"),
        ("\n\n{% if tenant.nmae %}{% endif %}\n", "there is no value 'nmae' here"),
        ("\n\n{% for x in tenant.nmae %}{% endfor %}\n", "there is no value 'nmae' here"),
        ("\n\n{{ tenant.nmae.deeper }}\n", "there is no value 'nmae' here"),
        ("\n\n{{ tenant.none }}\n", "an expression has no value (null)"),
        ("\n\n{{ tenant.none | default('x') }}\n", "an expression has no value (null)"),
        ("\n\n{{ none }}\n", "an expression has no value (null)"),
        ("\n\n{{ tenant.list }}\n", "an expression is a list, not text"),
        ("\n\n{{ tenant }}\n", "an expression is a mapping, not text"),
        ("\n\n{{ tenant.keys }}\n", "not text"),
        ("\n\n{{ 1 / 0 }}\n", "cannot be rendered: division by zero"),
        ("\n\n{{ tenant.name() }}\n", "cannot be rendered"),
        (
            "\n\n{{ tenant.list | unit }}\n",
            "cannot be rendered: this filter takes text or a number, found list",
        ),
        ("\n\n{% include 'gone' %}\n", "there is no template 'gone'"),
        ("\n\n{% include '../secret' %}\n", "there is no template '../secret'"),
        ("\n\n{% include '/etc/passwd' %}\n", "there is no template '/etc/passwd'"),
        ("\n\n{% include 'parts/link' %}\n", "there is no template 'parts/link'"),
        ("\n\n{% if %}\n", "not a valid template: Expected an expression"),
        ("\n\n{{ x\n", "not a valid template"),
        ("\n\n{{ [1] | random }}\n", "No filter named 'random'"),
        ("\n\n{{ lipsum() }}\n", "'lipsum' is undefined"),
    ],
)
def test_errors_have_the_line_of_the_template(directory: Path, text: str, words: str) -> None:
    (directory.parent / "secret").write_text("secret")
    (directory / "parts/link").symlink_to("../../secret")
    error = refusal(directory, text, tenant={"name": "x", "none": None, "list": [1]})
    assert error.where == f"{directory / 'file.j2'}:3"
    assert words in error.message


def test_an_error_in_an_included_file_has_its_place(directory: Path) -> None:
    (directory / "parts/one").write_text("fine\n{{ gone }}\n")
    (directory / "parts/two").write_text("{% if %}")
    assert refusal(directory, "{% include 'parts/one' %}").where == f"{directory}/parts/one:2"
    assert refusal(directory, "{% include 'parts/two' %}").where == f"{directory}/parts/two:1"


def test_an_error_in_an_imported_macro_has_its_place(directory: Path) -> None:
    (directory / "parts/macros").write_text("{% macro m() %}\n{{ gone }}\n{% endmacro %}\n")
    error = refusal(directory, "{% from 'parts/macros' import m %}\n{{ m() }}\n")
    assert error.where == f"{directory}/parts/macros:2"


def test_a_missing_template_has_its_path(directory: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        render_template(make_environment(directory), directory, "gone.j2", {})
    assert caught.value.where == f"{directory}/gone.j2"


def test_a_template_that_is_no_text_is_refused(directory: Path) -> None:
    (directory / "file.j2").write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        render_template(make_environment(directory), directory, "file.j2", {})
