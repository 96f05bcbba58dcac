"""What a killed test session leaves running ends with the next one's start, and nobody else's does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.conftest import MakeLab
from tests.lab.dead_sessions import end_dead_labs, living_session
from tests.lab.lab_tools import light, traces

SESSION = """
import pathlib, sys
from tests.lab.dead_sessions import living_session
with living_session(pathlib.Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_labs_end_with_the_session_that_comes_after_a_killed_one(
    make_lab: MakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    others, mine = make_lab("others/fleet/var"), make_lab("unmarked/var")
    others.up([light(others, "maple")])
    mine.up([light(mine, "maple")])
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path / "others")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert session.stdout and session.stdout.readline() == "ready\n"
        end_dead_labs(tmp_path / "next")
        assert others.find_required("maple").running
    finally:
        session.kill()
        session.wait()
    broken = tmp_path / "others/broken/var"
    (broken / "lab/hosts").mkdir(parents=True)
    (broken / "lab/lock").touch()
    (broken / "lab/hosts/maple.json").write_text("{")
    end_dead_labs(tmp_path / "next")
    assert f"{broken} is left over" in capsys.readouterr().out
    assert others.list() == () and traces(others) == set()
    assert mine.find_required("maple").running


def test_a_session_that_ends_leaves_no_mark(tmp_path: Path):
    with living_session(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
