"""What is put on a host's disk before its first boot."""

from __future__ import annotations

from pathlib import Path

from engine.provision.providers.lab import HostContent, HostFile
from engine.provision.providers.lab.content import place


def test_files_trees_and_units_are_on_the_disk(tmp_path: Path) -> None:
    programs, tree = tmp_path / "programs", tmp_path / "tree"
    (programs / "below").mkdir(parents=True)
    (programs / "__pycache__").mkdir()
    (programs / "run").write_text("#!/bin/sh\n")
    (programs / "run").chmod(0o700)
    (programs / "below/data").write_text("data")
    (programs / "below/data").chmod(0o600)
    (programs / "below/link").symlink_to("../run")
    (tree / "etc/systemd/system").mkdir(parents=True)
    files = {"/etc/secret": HostFile(b"secret", 0o600), "/etc/systemd/system/a.service": HostFile(b"[Service]\n")}
    place(tree, HostContent(files, {"/opt/programs": programs}, ("a.service",), ("b.service",)))

    placed = tree / "opt/programs"
    found = {str(path.relative_to(placed)): path for path in placed.rglob("*")}
    assert sorted(found) == ["below", "below/data", "below/link", "run"]
    assert {name: path.stat().st_mode & 0o777 for name, path in found.items()} == {
        "below": 0o755,
        "below/data": 0o644,
        "below/link": 0o755,
        "run": 0o755,
    }
    assert not found["below/link"].is_symlink() and found["below/link"].read_text() == "#!/bin/sh\n"
    assert (tree / "etc/secret").stat().st_mode & 0o777 == 0o600
    units = tree / "etc/systemd/system"
    assert (units / "multi-user.target.wants/a.service").readlink() == Path("/etc/systemd/system/a.service")
    assert (units / "b.service").readlink() == Path("/dev/null")


def test_a_files_content_is_not_shown() -> None:
    assert "canary" not in repr(HostContent({"/etc/secret": HostFile(b"canary")}))
