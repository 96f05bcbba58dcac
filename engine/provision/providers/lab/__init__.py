"""Real Debian hosts on the operator's machine.

Every host is a full Debian with systemd as its process 1, its own sshd, address and disk, run by
systemd-nspawn in a network namespace::

    lab = Lab(state_dir, settings.lab, print)
    lab.up([HostSpec.light("maple", ensure_identity(state_dir))])
    lab.wait_ready(["maple"])
    …
    lab.destroy()
"""

from engine.provision.providers.lab.host import RELAY_NAME
from engine.provision.providers.lab.identity import ensure_identity
from engine.provision.providers.lab.lab import Lab
from engine.provision.providers.lab.model import SLUG, HostContent, HostFile, HostSpec, LabHost
from engine.provision.providers.lab.network import is_lab_address
from engine.provision.providers.lab.provider import LabProvider
from engine.provision.providers.lab.seed import default_user_data

__all__ = [
    "RELAY_NAME",
    "SLUG",
    "HostContent",
    "HostFile",
    "HostSpec",
    "Lab",
    "LabHost",
    "LabProvider",
    "default_user_data",
    "ensure_identity",
    "is_lab_address",
]
