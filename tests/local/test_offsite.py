"""Offsite copies in real restic repositories on this machine's disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backups.copies import Copies
from engine.backups.restic import ResticProgram
from engine.backups.store import ArchiveStore, manifest_path
from engine.errors import ArchiveRejected, CommandFailed, InvalidInput, OffsiteFailed, Refused
from engine.registry.safeguards import Restic
from engine.secrets import SecretSources
from engine.subject import Subject
from tests.conftest import needs
from tests.local.test_archive_store import MANIFEST
from tests.unit.backups.archives import compress, tar
from tests.waiting import until

PASSWORD = "correct horse"
NIGHTS = ("20261101T013000Z", "20261102T013000Z", "20261103T013000Z")
pytestmark = needs("restic")


def offsite(root: Path, password: str = PASSWORD, *, brand: str = "Queva, Ltd", **settings: object) -> Copies:
    secret = root / "password"
    secret.write_text(password + "\n")
    secret.chmod(0o600)
    given = {"repository": "copies", "password": "file:password", **settings}
    return Copies(ResticProgram(Restic(**given), SecretSources(root, root / "age"), root / "var"), brand)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """An archive and its manifest."""
    directory = tmp_path / "var/backups/tenant/maple"
    directory.mkdir(parents=True)
    archive = directory / "maple-20261129T013000Z.tar.zst"
    archive.write_bytes(os.urandom(300_000))
    manifest = archive.with_name(archive.name + ".json")
    manifest.write_text("{}")
    return [archive, manifest]


def restic(root: Path, *arguments: str) -> str:
    """restic as a person would give it."""
    argv = ("restic", "--repo", str(root / "var/copies"), "--password-file", str(root / "password"), *arguments)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_a_copy_is_sound_and_comes_back_as_it_was(tmp_path: Path, files: list[Path]):
    copies = offsite(tmp_path)
    copies.create()
    snapshot = copies.send("maple", files)
    restic(tmp_path, "check", "--read-data")
    restic(tmp_path, "restore", snapshot, "--target", str(tmp_path / "back"))
    for path in files:
        assert (tmp_path / "back" / path.relative_to("/")).read_bytes() == path.read_bytes()
    (found,) = copies.snapshots("maple")
    assert (found.id, found.slug, found.archive) == (snapshot, "maple", "20261129T013000Z")
    assert copies.snapshots("harbor") == ()
    assert offsite(tmp_path, brand="Other").snapshots() == ()


def test_a_wrong_password_is_said_and_never_shown(tmp_path: Path, files: list[Path]):
    offsite(tmp_path).create()
    with pytest.raises(OffsiteFailed, match="wrong password") as caught:
        offsite(tmp_path, "battery staple").send("maple", files)
    assert caught.value.where == "maple"
    assert "backup.restic.password" in caught.value.hint
    assert "tenantry offsite send maple" in caught.value.hint
    assert "battery" not in str(caught.value)
    assert all(path.exists() for path in files)


def test_a_repository_that_is_not_there_is_not_made_by_the_way(tmp_path: Path, files: list[Path]):
    with pytest.raises(OffsiteFailed, match="unable to open config file") as caught:
        offsite(tmp_path).send("maple", files)
    assert "tenantry offsite init" in caught.value.hint
    assert not (tmp_path / "var/copies").exists()


def test_one_that_is_there_is_not_made_anew(tmp_path: Path):
    offsite(tmp_path).create()
    before = (tmp_path / "var/copies/config").read_bytes()
    with pytest.raises(CommandFailed, match="already exists"):
        offsite(tmp_path).create()
    assert (tmp_path / "var/copies/config").read_bytes() == before


def test_a_locked_repository_names_who_holds_it(tmp_path: Path, files: list[Path]):
    copies = offsite(tmp_path)
    copies.create()
    copies.send("maple", files)
    with locked(tmp_path), pytest.raises(OffsiteFailed, match="already locked exclusively by PID") as caught:
        copies.send("maple", files)
    assert "restic unlock" in caught.value.hint
    assert copies.send("maple", files)


def test_a_file_that_restic_passed_over_is_a_failure(tmp_path: Path, files: list[Path]):
    summary = '{"message_type":"summary","snapshot_id":"8348f308","total_files_processed":1,"total_bytes_processed":2}'
    fake_restic(tmp_path, f"echo '{summary}'")
    with path_of(tmp_path), pytest.raises(OffsiteFailed, match="restic took 1 of 2 files, 2 bytes"):
        offsite(tmp_path).send("maple", files)


def test_storage_out_of_reach_fails_without_the_credentials_in_its_address(tmp_path: Path, files: list[Path]):
    copies = offsite(tmp_path, repository="s3:http://user:secret@127.0.0.1:1/bucket", seconds=1)
    with pytest.raises(OffsiteFailed) as caught:
        copies.send("maple", files)
    assert "secret" not in str(caught.value)


def test_no_secret_is_in_arguments_or_in_an_environment_that_is_not_restics(tmp_path: Path, files: list[Path]):
    fake_restic(tmp_path, "tr '\\0' '\\n' < /proc/$$/cmdline; env; cat /dev/fd/3 >/dev/null; sed 's/^/key /' \"$2\"")
    token = tmp_path / "token"
    token.write_text("storage-token\n")
    token.chmod(0o600)
    with path_of(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESTIC_PASSWORD_COMMAND", "other")
        patch.setenv("HCLOUD_TOKEN", "unrelated")
        said = offsite(tmp_path, environment={"B2_ACCOUNT_KEY": "file:token"}).restic.run("cat")
    shown, _, keys = said.partition("key ")
    assert keys.strip() == PASSWORD
    assert PASSWORD not in shown
    assert "B2_ACCOUNT_KEY=storage-token" in shown
    assert "unrelated" not in said
    assert "RESTIC_" not in said
    assert "copies" not in shown


def test_what_fails_does_not_print_what_it_was_given(tmp_path: Path, files: list[Path]):
    fake_restic(tmp_path, 'echo "Fatal: key $(cat "$2") \033[2J in rest:https://me:pw@host/" >&2; exit 1')
    with path_of(tmp_path), pytest.raises(OffsiteFailed) as caught:
        offsite(tmp_path).send("maple", files)
    assert "Fatal: key *** \\x1b[2J in rest:https://***@host/" in caught.value.message


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path, files: list[Path]):
    fake_restic(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait; sleep 600")
    with path_of(tmp_path), pytest.raises(OffsiteFailed, match="did not end within"):
        offsite(tmp_path, seconds=4).send("maple", files)
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/exe")
    until(lambda: not child.is_file(), "what it started has ended")


def test_without_restic_it_says_how_to_get_it(tmp_path: Path, files: list[Path]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(OffsiteFailed, match="is published, but not offsite: restic is not installed") as caught:
            offsite(tmp_path).send("maple", files)
    assert "apt-get install" in caught.value.hint


def test_a_secret_that_is_missing_is_told_with_what_became_of_the_archive(tmp_path: Path, files: list[Path]):
    copies = offsite(tmp_path)
    (tmp_path / "password").unlink()
    with pytest.raises(OffsiteFailed, match="is published, but not offsite: secret file:password: No such") as caught:
        copies.send("maple", files)
    assert "tenantry offsite send maple" in caught.value.hint


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """Three published archives of maple."""
    store = ArchiveStore(tmp_path / "var/backups", Subject("tenant", "maple"))
    store.prepare()
    for archive in NIGHTS:
        content = compress(tar({"srv/noise": os.urandom(50_000)}))
        store.partial_of(archive).write_bytes(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        store.publish(replace(MANIFEST, archive=archive, size_bytes=len(content), digest=digest))
    return store


def test_what_is_missing_offsite_is_known_and_foreign_files_are_not_sent(tmp_path: Path, store: ArchiveStore):
    copies = offsite(tmp_path)
    copies.create()
    first, second, third = store.archives()
    copies.send("maple", (second.path, manifest_path(second.path)))
    manifest_path(third.path).unlink()
    assert copies.missing("maple", store.archives()) == (first,)


def test_a_copy_is_fetched_verified_and_published(tmp_path: Path, store: ArchiveStore):
    copies = offsite(tmp_path)
    copies.create()
    before = {}
    for item in store.archives():
        copies.send("maple", (item.path, manifest_path(item.path)))
        before[item.archive] = item.path.read_bytes()
    with pytest.raises(Refused, match="is here already"):
        copies.fetch(store, NIGHTS[0])
    store.remove(store.archives())
    with pytest.raises(InvalidInput, match="no copy of archive") as caught:
        copies.fetch(store, "20200101T000000Z")
    assert NIGHTS[2] in caught.value.hint
    fetched = copies.fetch(store, NIGHTS[1])
    assert fetched.is_verified
    assert fetched.path.read_bytes() == before[NIGHTS[1]]
    assert [path.stat().st_mode & 0o777 for path in store.directory.iterdir()] == [0o600, 0o600]


def test_a_copy_that_is_not_what_its_manifest_says_is_not_published(tmp_path: Path, store: ArchiveStore):
    copies = offsite(tmp_path)
    copies.create()
    item = store.archives()[0]
    item.path.write_bytes(compress(tar({"srv/noise": os.urandom(50_000)})))
    copies.send("maple", (item.path, manifest_path(item.path)))
    store.remove(store.archives())
    with pytest.raises(ArchiveRejected, match="its digest is"):
        copies.fetch(store, item.archive)
    assert list(store.directory.iterdir()) == []


def fake_restic(root: Path, script: str) -> None:
    path = root / "bin/restic"
    path.parent.mkdir()
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


@contextlib.contextmanager
def path_of(root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
        yield


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """The repository while another restic holds it for itself: one that is stopped in the middle of a slow check."""
    repository = ("--repo", str(root / "var/copies"), "--password-file", str(root / "password"))
    argv = ("restic", *repository, "--limit-download", "1", "check", "--read-data")
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def is_locked() -> bool:
        return any("-tmp-" not in path.name for path in (root / "var/copies/locks").iterdir())

    try:
        until(is_locked, "the repository is locked")
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_locked(), "the check has ended before it was stopped"
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGINT)  # then it removes its lock
        process.wait()
