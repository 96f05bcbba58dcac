"""YAML 1.2 core: what a person typed is what the engine reads, or a refusal with file and line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.registry.yaml_loader import load, parse
from engine.render.filters import to_json

FILE = Path("inventory/tenants.yaml")


def refusal(text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse(text, FILE)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("22:30", "22:30"),
        ("1:2:3", "1:2:3"),
        ("2026-10-22", "2026-10-22"),
        ("2026-10-22T10:00:00Z", "2026-10-22T10:00:00Z"),
        ("2026.10.22", "2026.10.22"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("=", "="),
        ("nULL", "nULL"),
        ("tRUE", "tRUE"),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("010", 10),
        ("0644", 644),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("'true'", "true"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!int '3'", 3),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found = parse(f"key: {text}\n", FILE).value["key"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number_is_one() -> None:
    assert math.isnan(parse("a: .nan", FILE).value["a"])


@pytest.mark.parametrize("text", ["010", "0644", "0o17", "0x1F", "2026.10", "1.10", "1e3", "+7", "True", ".inf"])
def test_scalars_that_would_change_are_reported(text: str) -> None:
    (coerced,) = parse(f"a:\n  b: [x, {text}]\n", FILE).coerced
    assert (coerced.path, coerced.text) == (("a", "b", 1), text)


@pytest.mark.parametrize("text", ["0", "-7", "22", "1.5", "90.0", "true", "false", "~", "no", "22:30"])
def test_scalars_that_stay_as_typed_are_not_reported(text: str) -> None:
    assert parse(f"a: {text}\n", FILE).coerced == ()


def test_duplicate_keys_name_both_lines() -> None:
    error = refusal("tenants:\n  acme: {a: 1}\n  birch: {}\n  acme: {a: 2}\n")
    assert error.where == f"{FILE}:4"
    assert error.message == "duplicate key 'acme', already on line 2"
    assert "line 2 and line 4" in error.hint


def test_a_quoted_key_is_the_same_key() -> None:
    assert refusal("{a: 1, 'a': 2}").message == "duplicate key 'a', already on line 1"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a:\n\t- b\n", 2, "cannot start any token"),
        ("a: [1, 2\nb: 3\n", 2, "flow sequence"),
        ("a: 'x\n", 2, "end of stream"),
        ("a: *gone\n", 1, "undefined alias"),
        ("a:\n  b: \x1bx\n", 2, "U+001B"),
        ("1: a\n", 1, 'quote it: "1"'),
        ("a: 1\n? [b, c]\n: 2\n", 2, "a key must be text"),
        ("a: 1\nno: 2\n~: 3\n", 3, "a key must be text"),
        ("a: !!python/object:os.system x\n", 1, "not part of the YAML 1.2 core schema"),
        ("a: !!timestamp 2026-10-22\n", 1, "not part of the YAML 1.2 core schema"),
        ("a: !vault x\n", 1, "not part of the YAML 1.2 core schema"),
        ("a: !!set {b, c}\n", 1, "not part of the YAML 1.2 core schema"),
        ("a: !!int x\n", 1, "not a value of type int"),
        ("a:\n  - &x [*x]\n", 2, "an alias refers to the value that contains it"),
        ("a: 1\nb: &x {<<: *x}\n", 2, "an alias refers to the value that contains it"),
        ("a: 1\n<<: 3\n", 2, "a merge key << takes a mapping"),
        ("<<: {a: 1}\n<<: {b: 1}\n", 2, "duplicate key '<<'"),
        ("a: {<<: {b: 1, b: 2}}\n", 1, "duplicate key 'b'"),
        ("- " * 900 + "x", 1, "nested too deeply"),
    ],
)
def test_refusals_name_the_line(text: str, line: int, words: str) -> None:
    error = refusal(text)
    assert error.where == f"{FILE}:{line}"
    assert words in f"{error.message} {error.hint}"


def test_aliases_cannot_multiply_without_bound() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "aliases expand" in refusal("a0: &a0 [x]\n" + "\n".join(levels)).message


def test_merge_keys_yield_to_own_keys() -> None:
    value = parse("base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 3}\nx: {<<: [*base, *more], c: 4}\n", FILE).value
    assert value["x"] == {"a": 1, "b": 2, "c": 4}


def test_lines_of_keys_items_merged_values_and_missing_ones() -> None:
    document = parse("base: &base\n  a: 1\nx:\n  <<: *base\n  list:\n    - p\n    - q\n", FILE)
    assert document.line_of(()) == 1
    assert document.line_of(("x", "list", 1)) == 7
    assert document.line_of(("x", "a")) == 2
    assert document.line_of(("x", "gone", "deeper")) == 3
    assert document.literal_of(("x", "a")) == "1"
    assert document.literal_of(("x", "list")) is None
    assert document.literal_of(("x", "gone")) is None


def test_an_empty_file_is_nothing() -> None:
    document = parse("# only a comment\n", FILE)
    assert document.value is None
    assert document.line_of(("a",)) == 1


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert load(file).value == {"a": 1, "b": 2}


def test_bytes_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        load(file)


@given(st.text())
def test_any_text_written_by_the_json_filter_comes_back(text: str) -> None:
    assert parse(f"key: {to_json(text)}\n", FILE).value == {"key": text}


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30))
def test_the_parser_never_raises_another_error(text: str) -> None:
    try:
        value = parse(text, FILE).value
    except InvalidInput as error:
        assert error.where.startswith(f"{FILE}:")
    else:
        assert value is None or isinstance(value, (str, int, float, bool, list, dict))


plain = st.one_of(st.booleans(), st.none(), st.integers(), st.text(max_size=20))
trees = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner), max_leaves=20)


@given(trees)
def test_any_json_is_read_as_it_was(tree: Any) -> None:
    assert parse(to_json({"tree": tree}), FILE).value == {"tree": tree}
