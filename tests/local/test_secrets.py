"""Secret references against real files, programs and keys: byte for byte, and never in an error."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyrage
import pytest

from engine.errors import InvalidInput, MissingPart, TenantryError
from engine.secrets import SecretSources

VALUE = "qu'o\"te $HOME `id` \\back %h é€😀".encode() + bytes([0xFF, 0x01, 0x7F]) + b"end\n"


@pytest.fixture
def sources(tmp_path: Path) -> SecretSources:
    return SecretSources(tmp_path, tmp_path / "identity", command_seconds=5)


def private(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def failure(sources: SecretSources, reference: str) -> TenantryError:
    with pytest.raises(TenantryError) as caught:
        sources.resolve(reference)
    return caught.value


def test_a_private_file(sources: SecretSources) -> None:
    path = private(sources.root / "key", VALUE)
    assert sources.resolve("file:key") == VALUE
    path.chmod(0o640)
    error = failure(sources, "file:key")
    assert isinstance(error, InvalidInput) and "chmod 600" in error.hint
    assert isinstance(failure(sources, "file:absent"), MissingPart)


def test_a_variable(sources: SecretSources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"OF_THE_TEST", VALUE)
    assert sources.resolve("env:OF_THE_TEST") == VALUE
    assert "export OTHER" in failure(sources, "env:OTHER").hint


def test_an_age_file_opened_with_an_age_key(sources: SecretSources) -> None:
    key = pyrage.x25519.Identity.generate()
    private(sources.age_identity, f"# created: today\n# public key: x\n{key}\n".encode())
    (sources.root / "key.age").write_bytes(pyrage.encrypt(VALUE, [key.to_public()]))
    assert sources.resolve("age:key.age") == VALUE


def test_an_age_file_opened_with_an_ssh_key(sources: SecretSources) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sources.age_identity], check=True)
    public = sources.age_identity.with_suffix(".pub").read_text()
    (sources.root / "key.age").write_bytes(pyrage.encrypt(VALUE, [pyrage.ssh.Recipient.from_str(public)]))
    assert sources.resolve("age:key.age") == VALUE


def test_an_age_file_for_somebody_else(sources: SecretSources) -> None:
    private(sources.age_identity, f"{pyrage.x25519.Identity.generate()}\n".encode())
    other = pyrage.x25519.Identity.generate().to_public()
    (sources.root / "key.age").write_bytes(pyrage.encrypt(VALUE, [other]))
    assert str(sources.age_identity) in failure(sources, "age:key.age").hint
    (sources.root / "key.age").write_bytes(b"no age file")
    assert isinstance(failure(sources, "age:key.age"), MissingPart)


@pytest.mark.parametrize("identity", [b"", b"nothing of use\n", b"AGE-SECRET-KEY-1BROKEN\n", b"-----BEGIN X-----\n"])
def test_an_unusable_age_identity(sources: SecretSources, identity: bytes) -> None:
    private(sources.age_identity, identity)
    (sources.root / "key.age").write_bytes(b"any")
    error = failure(sources, "age:key.age")
    assert isinstance(error, MissingPart)
    assert "BROKEN" not in str(error)


def test_an_age_identity_that_others_may_read(sources: SecretSources) -> None:
    private(sources.age_identity, f"{pyrage.x25519.Identity.generate()}\n".encode()).chmod(0o644)
    (sources.root / "key.age").write_bytes(b"any")
    assert isinstance(failure(sources, "age:key.age"), InvalidInput)


def test_a_command_gives_every_byte_it_prints(sources: SecretSources) -> None:
    private(sources.root / "key", VALUE)
    assert sources.resolve("command:cat key") == VALUE
    assert sources.resolve("command:printf '%s|' 'a b' '$HOME' '*'") == b"a b|$HOME|*|"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("command:sh -c 'echo hunter2; echo hunter2 >&2; exit 3'", "ended with status 3"),
        ("command:true", "printed nothing"),
        ("command:no-such-program-here", "No such file"),
        ("command:cat 'unclosed", "No closing quotation"),
    ],
)
def test_a_command_that_gives_no_secret(sources: SecretSources, reference: str, words: str) -> None:
    error = failure(sources, reference)
    assert words in error.message
    assert "hunter2" not in error.message.replace(reference, "")


def test_a_command_that_waits_is_ended(tmp_path: Path) -> None:
    error = failure(
        SecretSources(tmp_path, tmp_path / "no", command_seconds=0.2), "command:sh -c 'echo hunter2; exec sleep 60'"
    )
    assert "0.2 s" in error.message
    assert error.__cause__ is None and error.__suppress_context__


def test_a_command_that_prints_without_an_end_is_ended(sources: SecretSources) -> None:
    error = failure(sources, "command:sh -c 'echo hunter2; exec cat /dev/zero'")
    assert "more than 65536 bytes" in error.message


@pytest.mark.parametrize("reference", ["", "hunter2", "vault:x", "file:", "env:", "command: ", "age:"])
def test_an_unknown_form(sources: SecretSources, reference: str) -> None:
    assert isinstance(failure(sources, reference), InvalidInput)
