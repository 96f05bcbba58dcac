"""Runs on the host, as root: makes new SSH host keys in a directory of their own, or puts them into use.

Reads ``PARAMETERS`` (set by the sender) and leaves ``RESULT``.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import glob
import os
import shutil
import subprocess

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]

SSH = "/etc/ssh"
NEW = "/etc/ssh/tenantry-new"
NAME = "ssh_host_ed25519_key"


def make():
    shutil.rmtree(NEW, ignore_errors=True)
    os.mkdir(NEW, 0o700)
    path = os.path.join(NEW, NAME)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    with open(path + ".pub", encoding="ascii") as file:
        return [file.read().strip()]


def use():
    # The new pair first: at no moment is the host without a key, whatever interrupts this.
    os.chmod(os.path.join(NEW, NAME + ".pub"), 0o644)
    for name in (NAME, NAME + ".pub"):
        os.rename(os.path.join(NEW, name), os.path.join(SSH, name))
    for path in glob.glob(SSH + "/ssh_host_*"):
        if os.path.basename(path) not in (NAME, NAME + ".pub"):
            os.unlink(path)
    os.rmdir(NEW)
    directory = os.open(SSH, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    subprocess.run(["systemctl", "reload-or-restart", "ssh.service"], check=True)


RESULT = make() if PARAMETERS["action"] == "make" else use()
