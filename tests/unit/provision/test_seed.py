"""The one-time host key and the user-data that carries it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import InvalidInput
from engine.provision.host_keys import OneTimeKey
from engine.provision.seed import render_user_data
from tests.unit.fleets import make_tenant

GOOD = """\
#cloud-config
users:
  - name: {{ ssh_user | json }}
    ssh_authorized_keys: [{{ public_key | json }}]
{% if host_key %}
ssh_keys:
  ed25519_private: {{ host_key.private | json }}
  ed25519_public: {{ host_key.public | json }}
{% endif %}
"""


def render(root: Path, template: str, **more: Any) -> str:
    (root / "templates").mkdir(exist_ok=True)
    (root / "templates/user-data.yaml.j2").write_bytes(template.encode())
    workspace: Any = SimpleNamespace(fleet=SimpleNamespace(root=root))
    return render_user_data(workspace, make_tenant(), "ssh-ed25519 AAAA", **more)


def test_a_one_time_key_is_another_each_time_and_a_pair(tmp_path: Path) -> None:
    first, second = OneTimeKey.make(), OneTimeKey.make()
    assert first.private != second.private
    path = tmp_path / "key"
    path.write_text(first.private)
    path.chmod(0o600)
    public = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True).stdout
    assert public.split()[:2] == str(first.public).split()
    assert "PRIVATE" not in repr(first)


def test_the_document_carries_the_key_and_the_account(tmp_path: Path) -> None:
    key = OneTimeKey.make()
    text = render(tmp_path, GOOD, host_key=key)
    assert text.startswith("#cloud-config\n")
    assert str(key.public) in text


def test_a_document_without_a_key_needs_none(tmp_path: Path) -> None:
    assert "ssh_keys" not in render(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("#cloud-config \n{}\n", "does not start with"),
        ("\n#cloud-config\n{}\n", "does not start with"),
        ("\ufeff#cloud-config\n{}\n", "does not start with"),
        ("## template: jinja\n#cloud-config\n{}\n", "does not start with"),
        ("#cloud-config\nusers: []{{ '\\r' }}\n", "carriage returns"),
        ("#cloud-config\n- a\n", "not a mapping"),
        ("#cloud-config\n", "not a mapping"),
        ("#cloud-config\na: [\n", "is not YAML"),
    ],
)
def test_what_cloud_init_would_ignore_is_refused(tmp_path: Path, template: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        render(tmp_path, template)


def test_a_template_that_forgets_the_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="ssh_keys"):
        render(tmp_path, "#cloud-config\nusers: []\n", host_key=OneTimeKey.make())


def test_a_key_in_a_broken_document_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        render(tmp_path, "#cloud-config\na: [ {{ host_key.private | json }}\n", host_key=OneTimeKey.make())
    assert "PRIVATE" not in str(caught.value)


def test_a_secret_in_the_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds a secret") as caught:
        render(tmp_path, "#cloud-config\nkey: long-lived-value\n", secrets=[b"long-lived-value"])
    assert "long-lived" not in str(caught.value)
    assert render(tmp_path, "#cloud-config\nkey: short\n", secrets=[b"short", b""])
