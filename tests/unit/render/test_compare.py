"""Differences of a tenant's files from the rendered set, and how they are shown."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ExitCode, UnknownState
from engine.hosts.status import FileFacts
from engine.releases.digests import digest_of
from engine.render.compare import Aspect, Change, compare, text_diff
from engine.render.rendered_set import Rendered
from tests.unit.fleets import make_rendered

RENDERED = Rendered(make_rendered("soul", owner="hermes", mode="0640"), b"wanted\n", digest_of(b"wanted\n"))
SAME = FileFacts(RENDERED.digest, "0640", "hermes", "root")


def changes(found: FileFacts) -> tuple[Change, ...]:
    differences = compare([RENDERED], {"soul": found})
    return differences[0].changes if differences else ()


def test_a_file_that_is_as_it_should_be() -> None:
    assert changes(SAME) == ()
    assert changes(dataclasses.replace(SAME, mode="640")) == ()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"digest": "sha256:other"}, Change(Aspect.CONTENT, "sha256:other", RENDERED.digest)),
        ({"mode": "0644"}, Change(Aspect.MODE, "0644", "0640")),
        ({"mode": "4640"}, Change(Aspect.MODE, "4640", "0640")),
        ({"owner": "root"}, Change(Aspect.OWNER, "root", "hermes")),
        ({"group": "staff"}, Change(Aspect.GROUP, "staff", "root")),
        ({"owner": None}, Change(Aspect.OWNER, None, "hermes")),
    ],
)
def test_each_aspect_is_a_difference(found: dict[str, str | None], expected: Change) -> None:
    assert changes(dataclasses.replace(SAME, **found)) == (expected,)


def test_an_absent_file_is_one_difference() -> None:
    assert changes(FileFacts(None, None, None, None)) == (Change(Aspect.ABSENT, None, RENDERED.digest),)


def test_a_link_in_a_files_place_is_a_difference_whatever_it_leads_to() -> None:
    assert changes(FileFacts("link", "", "", "")) == (Change(Aspect.LINK, "link", RENDERED.digest),)


def test_a_file_that_the_probe_does_not_report_is_unknown_not_absent() -> None:
    with pytest.raises(UnknownState, match="soul") as caught:
        compare([RENDERED], {})
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_a_file_that_cannot_be_read_is_unknown_and_never_written_over() -> None:
    with pytest.raises(UnknownState, match=r"soul .*unreadable: Is a directory"):
        compare([RENDERED], {"soul": FileFacts("unreadable: Is a directory", "", "", "")})


def test_a_diff_of_texts() -> None:
    assert text_diff("soul", b"a\nb\nc", b"a\nx\nc\n") == (
        "--- soul (tenant)",
        "+++ soul (wanted)",
        "@@ -1,3 +1,3 @@",
        " a",
        "-b",
        "-c",
        "\\ No newline at end of file",
        "+x",
        "+c",
    )


def test_a_diff_of_an_absent_file() -> None:
    assert text_diff("soul", None, b"a\n") == ("--- /dev/null", "+++ soul (wanted)", "@@ -0,0 +1 @@", "+a")


def test_a_diff_of_an_absent_and_an_empty_file_says_so() -> None:
    assert text_diff("soul", None, b"") == ("soul is absent, wanted empty",)


def test_equal_contents_have_no_diff() -> None:
    assert text_diff("soul", b"\xff", b"\xff") == ()


@pytest.mark.parametrize("found", [b"\xff\xfe", b"a\0b", None])
def test_binary_contents_are_noted(found: bytes | None) -> None:
    wanted = b"\0" if found is None else b"text"
    (line,) = text_diff("soul", found, wanted)
    assert line.startswith("binary content of soul differs")


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_contents_differ_exactly_if_there_is_a_diff(found: bytes, wanted: bytes) -> None:
    assert bool(text_diff("x", found, wanted)) == (found != wanted)


lines = st.text(st.sampled_from("ab\r\u2028\x0c\n"), max_size=12)


@given(lines, lines)
def test_only_line_feeds_split_lines(found: str, wanted: str) -> None:
    shown = text_diff("x", found.encode(), wanted.encode())
    removed = [line[1:] for line in shown[2:] if line.startswith("-")]
    assert all(line in found.split("\n") for line in removed)
