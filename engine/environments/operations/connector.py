"""The ``@env/<uuid>`` connector: an environment in pyinfra, which can be asked and has no shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from pyinfra.api import StringCommand
from pyinfra.connectors.base import BaseConnector, DataMeta
from pyinfra.connectors.util import CommandOutput, OutputLine

from engine.environments.operations.facts import Look
from engine.environments.operations.target import TARGET_KEY, kind_of, target_of
from engine.errors import Refused
from engine.hosts.plain import HostUnreachable, plain_errors

if TYPE_CHECKING:
    from engine.environments.operations.standalone import StandaloneTarget


class EnvironmentData(TypedDict):
    """Host data that the connector reads."""

    tenantry_uuid: str
    tenantry_fleet: str
    tenantry_state: str


class EnvironmentConnector(BaseConnector):  # type: ignore[misc]
    """One environment or tier in pyinfra."""

    handles_execution = True
    data_cls = EnvironmentData
    data_meta: ClassVar = {
        "tenantry_uuid": DataMeta("Uuid of the environment or tier"),
        "tenantry_fleet": DataMeta("Fleet directory (default: the current one)"),
        "tenantry_state": DataMeta("State directory (default: var in the fleet directory)"),
    }

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, str], list[str]]]:
        """``@env/<uuid>`` is one host of that name."""
        yield f"@env/{name}", {"tenantry_uuid": name}, []

    _own: StandaloneTarget | None = None

    def connect(self) -> None:
        """Open the fleet unless a job of the engine connects; contacts no provider. One plain line on an error."""
        if TARGET_KEY in self.host.connector_data:
            return
        from engine.environments.operations.standalone import open_target

        with plain_errors(HostUnreachable):
            self._own = open_target(self.data, self.host)
        self.host.connector_data[TARGET_KEY] = self._own

    def disconnect(self) -> None:
        """Free the lock."""
        if self._own is not None:
            del self.host.connector_data[TARGET_KEY]
            self._own.close()
            self._own = None

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        """Answer a fact of ours; anything else is refused."""
        with plain_errors():
            if not isinstance(command, Look):
                raise self._no_shell()
            resource = target_of(self.host).resource(kind_of(command.kind))
        observation = resource.driver.observe(resource.name)
        return True, CommandOutput([OutputLine("stdout", json.dumps(observation.to_json()))])

    def put_file(self, *arguments: Any, **more: Any) -> bool:
        """Refused."""
        with plain_errors():
            raise self._no_shell()

    def get_file(self, *arguments: Any, **more: Any) -> bool:
        """Refused."""
        with plain_errors():
            raise self._no_shell()

    def _no_shell(self) -> Refused:
        return Refused(
            "an environment has no shell and no files",
            where=self.host.name,
            hint="ask it with the fact engine.environments.operations.facts.Observed, or with `tenantry env show`",
        )
