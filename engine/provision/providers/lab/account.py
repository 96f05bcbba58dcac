"""The operator's account on a host that does without cloud-init."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.provision.providers.lab.seed import DISABLED

USER_ID = 1000

# User, password (none that matches), group: what useradd would append.
_LINES = {
    "passwd": "{user}:x:{id}:{id}:Tenantry operator:/home/{user}:/bin/bash\n",
    "shadow": "{user}:!:19000:0:99999:7:::\n",
    "group": "{user}:x:{id}:\n",
    "gshadow": "{user}:!::\n",
}


def settle(tree: Path, slug: str, user: str, public_key: str) -> None:
    """Give a host's tree its name and one account: key only, and root through sudo.

    cloud-init costs a second of processor time a host and would end with the same files.
    """
    (tree / DISABLED).touch()
    (tree / "etc/hostname").write_text(f"{slug}\n")
    (tree / "etc/hosts").write_text(f"127.0.1.1 {slug}\n127.0.0.1 localhost\n::1 localhost\n")
    _authorize(tree / "root" if user == "root" else _add_account(tree, user), public_key)


def _add_account(tree: Path, user: str) -> Path:
    home = tree / "home" / user
    if home.exists():
        return home
    for name, line in _LINES.items():
        with (tree / "etc" / name).open("a") as file:
            file.write(line.format(user=user, id=USER_ID))
    sudoers = tree / "etc/sudoers.d/90-tenantry"
    sudoers.write_text(f"{user} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)
    shutil.copytree(tree / "etc/skel", home)
    home.chmod(0o700)
    for path in (home, *home.iterdir()):
        os.chown(path, USER_ID, USER_ID)
    return home


def _authorize(home: Path, public_key: str) -> None:
    owner = home.stat()
    directory = home / ".ssh"
    directory.mkdir(mode=0o700, exist_ok=True)
    keys = directory / "authorized_keys"
    keys.write_text(f"{public_key}\n")
    keys.chmod(0o600)
    for path in (directory, keys):
        os.chown(path, owner.st_uid, owner.st_gid)
