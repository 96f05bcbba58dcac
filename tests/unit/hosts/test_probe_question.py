"""What the probe is asked for, from the settings."""

from __future__ import annotations

from engine.hosts.probe import Extra, question
from engine.registry.settings import Gateway, Route, Service, Settings
from tests.unit.fleets import make_rendered, make_tenant

GATEWAY = Gateway("g.service", "127.0.0.1", 8642, "/health", "/s", "/d", "/c", "/h", "/l", ("api",))


def test_no_gateway_asks_for_no_units():
    asked = question(Settings(brand="B"), make_tenant(), Extra())
    assert asked == {"units": [], "files": {}, "routes": [], "gateway": None}


def test_units_are_asked_for_once_and_files_by_name_or_path():
    settings = Settings(
        brand="B",
        gateway=GATEWAY,
        services=(Service("a.service"), Service("g.service")),
        rendered=(make_rendered("p"),),
    )
    asked = question(settings, make_tenant(), Extra(units=("a.service", "b.service"), files=("/etc/x",)))
    assert asked["units"] == ["a.service", "g.service", "b.service"]
    assert asked["files"] == {"/etc/x": "/etc/x", "p": "/srv/p"}
    assert asked["gateway"]["health"]["path"] == "/health"


def test_a_route_goes_to_the_tenant_itself_under_its_public_name():
    routes = (
        Route("page", "http://127.0.0.1/", host="{page_host}"),
        Route("secure", "https://maple.example/a?b=1"),
        Route("odd", "http://127.0.0.1:8642/health"),
    )
    asked = question(Settings(brand="B", routes=routes), make_tenant(page_host="maple.example"), Extra())["routes"]
    assert [(r["address"], r["port"], r["tls"], r["path"], r["host"]) for r in asked] == [
        ("127.0.0.1", 80, False, "/", "maple.example"),
        ("127.0.0.1", 443, True, "/a?b=1", "maple.example"),
        ("127.0.0.1", 8642, False, "/health", "127.0.0.1"),
    ]
