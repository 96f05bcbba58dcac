"""Servers of Hetzner Cloud, through the maintained client ``hcloud``."""

from engine.provision.providers.hetzner.provider import HetznerProvider

__all__ = ["HetznerProvider"]
