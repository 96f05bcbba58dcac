"""Among many tenants every error says of which one it is."""

from engine.errors import UnknownState
from engine.updater.outcome import failed, placed
from tests.unit.fleets import make_tenant


def test_an_error_without_a_place_gets_the_tenant_as_its_place():
    tenant = make_tenant()
    error = placed(UnknownState("the probe does not report the rendered file soul"), tenant)
    assert failed(tenant.slug, error).error == f"{tenant.slug}: the probe does not report the rendered file soul"


def test_a_place_that_is_known_stays():
    assert placed(UnknownState("odd", where="/etc/x"), make_tenant()).where == "/etc/x"
