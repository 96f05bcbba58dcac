"""``lab parents`` where there are none."""

from __future__ import annotations

from tests.cli.conftest import Tenantry


def test_parents_that_were_never_up_are_not_running_and_exit_4(tenantry: Tenantry):
    found = tenantry.document("lab-parents", "lab", "parents", "show", code=4)
    assert [(entry["parent"], entry["unknown"], entry["port"]) for entry in found["parents"]] == [
        ("postgres", "notRunning", None),
        ("objects", "notRunning", None),
    ]
    assert (found["front"]["unknown"], found["front"]["port"]) == ("notRunning", None)
    shown = tenantry("lab", "parents", "show")
    assert shown.code == 4
    assert "notRunning" in shown.out
    assert not tenantry.state_directory.exists()
