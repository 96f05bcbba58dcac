"""Labs find their own names and networks."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Refused
from engine.provision.providers.lab.network import (
    LABS,
    LabNames,
    address_at,
    choose_subnet,
    free_index,
    is_lab_address,
    lab_id,
)

SUBNETS = list(LABS.subnets(new_prefix=24))
INTERFACE_NAME_LIMIT = 15


@given(st.integers(0, 255), st.sets(st.integers(0, 255), max_size=255))
def test_a_chosen_network_is_free(preferred: int, taken: set[int]) -> None:
    subnet = choose_subnet(preferred, [SUBNETS[number] for number in taken])
    assert subnet.subnet_of(LABS)
    assert SUBNETS.index(subnet) not in taken
    if preferred not in taken:
        assert subnet == SUBNETS[preferred]


def test_a_wider_route_takes_all_it_covers() -> None:
    assert choose_subnet(0, [IPv4Network("10.77.0.0/17")]) == IPv4Network("10.77.128.0/24")


def test_routes_elsewhere_take_nothing() -> None:
    elsewhere = [IPv4Network("0.0.0.0/0"), IPv4Network("192.168.1.0/24"), IPv4Network("127.0.0.0/8")]
    assert choose_subnet(7, elsewhere) == SUBNETS[7]


def test_no_network_left_is_refused() -> None:
    with pytest.raises(Refused):
        choose_subnet(3, [LABS])


def test_the_lowest_free_place_is_given_out() -> None:
    assert free_index([]) == 2
    assert free_index([2, 3, 5]) == 4
    with pytest.raises(Refused):
        free_index(range(2, 255))


def test_names_differ_between_state_directories_and_fit_the_kernel() -> None:
    one, other = LabNames(lab_id(Path("/srv/a/var"))), LabNames(lab_id(Path("/srv/b/var")))
    assert one.bridge != other.bridge
    assert len(one.link(254)) <= INTERFACE_NAME_LIMIT
    assert one.hardware_address(2) != one.hardware_address(3)
    assert one.hardware_address(254).split(":")[0] == "02"


def test_a_state_directory_has_one_lab_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "link").symlink_to("var")
    assert lab_id(tmp_path / "link") == lab_id(tmp_path / "var") == lab_id(tmp_path / "var/../var")


def test_only_lab_addresses_are_lab_addresses() -> None:
    assert is_lab_address(address_at(SUBNETS[200], 2))
    assert not is_lab_address("10.78.0.2")
    assert not is_lab_address("127.0.0.1")
