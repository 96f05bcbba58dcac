"""Wheels are fetched once, checked by hash each time, and a directory is whole or not there."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import zipfile
from pathlib import Path

import pytest

from engine.errors import Busy, InvalidInput, MissingPart
from engine.steps import wheelhouse


def make_wheel(directory: Path, name: str, text: str = "") -> str:
    """Write a wheel that pip accepts; returns its sha256."""
    information = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": text,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = [f"{path},{_record_hash(content)},{len(content)}" for path, content in files.items()]
    files[f"{information}/RECORD"] = "\n".join([*records, f"{information}/RECORD,,"]) + "\n"
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _record_hash(content: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip may take wheels from."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return directory


@pytest.fixture
def locks(tmp_path: Path, index: Path) -> tuple[Path, Path]:
    """Two lock files, of two wheels and of one."""
    first, second, third = (make_wheel(index, name) for name in ("one", "two", "three"))
    program, installer = tmp_path / "program.txt", tmp_path / "installer.txt"
    program.write_text(f"one==1.0 \\\n    --hash=sha256:{first}\ntwo==1.0 \\\n    --hash=sha256:{second}\n")
    installer.write_text(f"three==1.0 --hash=sha256:{third}\n")
    return program, installer


def test_wheels_and_locks_lie_together(tmp_path: Path, locks: tuple[Path, Path]) -> None:
    directory = wheelhouse.fetch(locks, tmp_path / "var")
    assert sorted(path.name for path in directory.iterdir()) == [
        "installer.txt",
        "one-1.0-py3-none-any.whl",
        "program.txt",
        "three-1.0-py3-none-any.whl",
        "two-1.0-py3-none-any.whl",
    ]


def test_a_second_fetch_needs_no_index(tmp_path: Path, index: Path, locks: tuple[Path, Path]) -> None:
    first = wheelhouse.fetch(locks, tmp_path / "var")
    for wheel in index.iterdir():
        wheel.unlink()
    assert wheelhouse.fetch(locks, tmp_path / "var") == first


def test_a_process_reads_each_wheel_once(
    tmp_path: Path, locks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = wheelhouse.fetch(locks, tmp_path / "var")
    wheelhouse.fetch(locks, tmp_path / "var")

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise AssertionError(f"{path} was read again")

    texts = {lock: lock.read_text() for lock in locks}
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_text", lambda path, **_: texts[path])
    assert wheelhouse.fetch(locks, tmp_path / "var") == directory


def test_a_damaged_wheel_is_fetched_again(tmp_path: Path, locks: tuple[Path, Path]) -> None:
    directory = wheelhouse.fetch(locks, tmp_path / "var")
    wheel = directory / "one-1.0-py3-none-any.whl"
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:-1])
    (directory / "two-1.0-py3-none-any.whl").unlink()
    assert wheelhouse.fetch(locks, tmp_path / "var") == directory
    assert wheel.read_bytes() == whole
    assert (directory / "two-1.0-py3-none-any.whl").exists()


def test_another_file_under_the_right_name_is_refused(tmp_path: Path, index: Path, locks: tuple[Path, Path]) -> None:
    make_wheel(index, "one", "print('changed')")
    with pytest.raises(MissingPart, match="pip could not download"):
        wheelhouse.fetch(locks, tmp_path / "var")
    assert [path.name for path in (tmp_path / "var/wheelhouse").iterdir()] == [".lock"]


def test_what_an_interrupted_fetch_left_is_cleared(tmp_path: Path, locks: tuple[Path, Path]) -> None:
    directory = wheelhouse.fetch(locks, tmp_path / "var")
    leftover = directory.with_name(f".{directory.name}.0123abcd.partial")
    directory.rename(leftover)
    assert wheelhouse.fetch(locks, tmp_path / "var") == directory
    assert not leftover.exists()


@pytest.mark.parametrize(
    "text", ["", "one==1.0\n", "one==1.0 --hash=sha256:12\n", f"one==1.0 --hash=sha256:{'0' * 64}\ntwo==1.0\n"]
)
def test_a_pin_without_a_hash_is_refused_before_anything_is_fetched(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "program.txt"
    lock.write_text(text)
    with pytest.raises(InvalidInput, match="no sha256 hash"):
        wheelhouse.fetch([lock], tmp_path / "var")
    assert not (tmp_path / "var").exists()


def test_one_process_downloads_at_a_time(
    tmp_path: Path, locks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheelhouse, "WAIT_SECONDS", 0.0)
    (tmp_path / "var/wheelhouse").mkdir(parents=True)
    with (tmp_path / "var/wheelhouse/.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another process"):
            wheelhouse.fetch(locks, tmp_path / "var")
    assert wheelhouse.fetch(locks, tmp_path / "var").is_dir()
