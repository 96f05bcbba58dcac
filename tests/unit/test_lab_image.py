"""Which packages a base image has, and where they come from."""

from __future__ import annotations

import yaml

from engine.provision.providers.lab.base_image import CLOUD_CONFIG, ImageRecipe
from engine.provision.providers.lab.package_sources import carried_options, source_lines

TARGETS = """\
http://mirror.example/debian/|bookworm|main|Debian
http://mirror.example/debian/|bookworm|contrib|Debian
http://mirror.example/debian/|bookworm-updates|main|Debian
http://mirror.example/security/|bookworm-security|main|Debian
http://mirror.example/debian/|trixie|main|Debian
http://vendor.example/apt/|bookworm|main|Vendor
http://vendor.example/apt/|nodistro|main|Vendor
"""


def test_only_debian_sources_of_the_suite_are_used() -> None:
    assert source_lines(TARGETS, "bookworm") == (
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian/ bookworm-updates main",
        "deb http://mirror.example/security/ bookworm-security main",
    )


def test_sources_count_before_their_lists_were_fetched() -> None:
    targets = "http://mirror.example/debian/|bookworm|main|$(ORIGIN)\n"
    assert source_lines(targets, "bookworm") == ("deb http://mirror.example/debian/ bookworm main",)


def test_how_the_machine_reaches_its_sources_is_carried_over() -> None:
    dump = (
        'APT::Architecture "amd64";\n'
        'Acquire::http::Proxy "http://proxy.example:3142";\n'
        'Acquire::https::CaInfo "/etc/ssl/own.pem";\n'
        'Acquire::Languages "none";\n'
    )
    assert carried_options(dump) == (
        'Acquire::http::Proxy "http://proxy.example:3142"',
        'Acquire::https::CaInfo "/etc/ssl/own.pem"',
    )


def test_an_image_is_named_by_its_content() -> None:
    one = ImageRecipe("bookworm", ("caddy", "sqlite3"))
    assert one.digest == ImageRecipe("bookworm", ("sqlite3", "caddy", "sudo")).digest
    assert one.digest != ImageRecipe("bookworm", ("caddy",)).digest
    assert one.digest != ImageRecipe("trixie", ("caddy", "sqlite3")).digest


def test_the_image_configures_cloud_init() -> None:
    assert yaml.safe_load(CLOUD_CONFIG)["locale"] == "C.UTF-8"
