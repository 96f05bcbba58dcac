"""The command line in this process, on a fleet of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.cli.app import run
from tests.fleets import write_whole_fleet
from tests.unit.hosted import write_hosted_fleet


@dataclass(frozen=True)
class Result:
    """What one command printed and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Tenantry:
    """Runs commands on the fleet `root`."""

    root: Path
    capture: pytest.CaptureFixture[str]

    @property
    def state_directory(self) -> Path:
        return self.root / "var"

    def __call__(self, *arguments: str) -> Result:
        self.capture.readouterr()
        code = run(["-C", str(self.root), *arguments])
        captured = self.capture.readouterr()
        return Result(code, captured.out, captured.err)

    def document(self, schema: str, *arguments: str, code: int = 0) -> Any:
        """The document a command prints with ``--json``, which fits its schema."""
        result = self(*arguments, "--json")
        assert result.code == code, result.err
        return valid(schema, json.loads(result.out))


def valid(schema: str, document: Any) -> Any:
    """`document`, which must fit ``engine/cli/schemas/SCHEMA.json``."""
    text = files("engine.cli").joinpath("schemas", f"{schema}.json").read_text("utf-8")
    Draft202012Validator(json.loads(text)).validate(document)
    return document


@pytest.fixture
def hosted(tenantry: Tenantry) -> Tenantry:
    """The same with hosted environments of the release notes-1, and no parent that is up."""
    write_hosted_fleet(tenantry.root)
    return tenantry


@pytest.fixture
def tenantry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tenantry:
    """The command line on a small fleet with the tenants maple and harbor, none of them on a host."""
    return Tenantry(write_whole_fleet(tmp_path / "fleet"), capsys)
