"""The owed restart: wait for silence, arm what undoes it, and go through the window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import conversations
from engine.conversations import Renewal
from engine.errors import LivenessFailed, UnknownState
from engine.hosts.session import Session
from engine.hosts.status import Owed, Status
from engine.recovery.assembly import assembled
from engine.registry.settings import Gateway, Settings
from engine.updater.events import Phase
from engine.updater.job import Job
from engine.updater.liveness import Restart
from engine.updater.personalities import personalities
from engine.updater.quiesce import not_quiet, wait_for_silence
from engine.updater.safety_net import SafetyNet

WINDOW = Path(__file__).with_name("window_script.py").read_text()


@dataclass
class OwedRestart:
    """The restart that a run carries out where one is owed.

    `renewal` is then what became of conversations that were to follow a changed personality.
    """

    job: Job
    session: Session
    net: SafetyNet
    renewal: Renewal | None = None

    def carry_out(self) -> Restart | None:
        """Restart the gateway when it is silent, or give None where no restart is owed.

        Raises :class:`NotQuiet`, :class:`UnknownState`, or :class:`LivenessFailed` for a window that failed.
        """
        status = self.session.probe()
        owed, gateway = status.owed, self._settings.gateway
        if gateway is None or not (owed.restart or owed.switches):
            return None
        self.job.enter(Phase.QUIESCE, f"a restart is owed for: {', '.join(owed.restart)}")
        quiesce = self._settings.quiesce
        polls_left = quiesce.polls
        while polls_left > 0:
            polls_left -= self.await_silence(gateway, polls_left)
            self.net.arm()
            self.job.enter(Phase.RESTART, f"silent for {quiesce.silence_seconds:g} s; restarting {gateway.unit}")
            restart = self._window(gateway, status)
            if restart:
                return restart
            self.net.disarm()
            self.job.enter(Phase.QUIESCE, "a message came between the gate and the restart")
        raise not_quiet(quiesce, self.job.tenant.slug)

    def await_silence(self, gateway: Gateway, polls: int) -> int:
        """Wait for silence in at most `polls` polls; how many it took."""
        return wait_for_silence(
            self.session.probe,
            gateway,
            replace(self._settings.quiesce, polls=polls),
            self.job.clock,
            where=self.job.tenant.slug,
            tell=lambda message: self.job.tell(Phase.QUIESCE, message),
        )

    def _window(self, gateway: Gateway, status: Status) -> Restart | None:
        """The restart window; None where the last look before the stop found a conversation."""
        result = self.session.run_script(
            assembled(WINDOW),
            {
                "unit": gateway.unit,
                "database": gateway.database,
                "silence_seconds": self._settings.quiesce.silence_seconds,
                "empty_is_quiet": gateway.empty_history_is_quiet,
                "switches": dict(status.owed.switches),
                "set": self.net.set_run,
                "conversations": self._prompts(status.owed),
            },
        )
        if result["outcome"] == "busy":
            return None
        if result["outcome"] == "unknown":
            self.net.disarm()
            raise UnknownState(
                f"whether the gateway is in conversation became unknown right before the restart: {result['problem']}",
                where=self.job.tenant.slug,
                hint=f"look at {gateway.database} on the host; nothing was stopped",
            )
        if result["outcome"] != "restarted":
            raise LivenessFailed(
                f"the restart failed: {result['problem']}",
                where=self.job.tenant.slug,
                hint=f"systemctl status {gateway.unit} on the host",
            )
        if result["renewal"]:
            self.renewal = Renewal.of(result["renewal"])
        return Restart(old_pid=result["old_pid"], started_at=result["started_at"])

    def _prompts(self, owed: Owed) -> dict[str, Any] | None:
        """How the window renews the prompts of conversations; None where the personality is what it was."""
        if not owed.conversations or self._settings.sessions is None:
            return None
        workspace = self.job.workspace
        texts = [text for text, _ in personalities(workspace, self.job.tenant).values()]
        return {"settings": conversations.host_settings(workspace.fleet.root, self._settings), "texts": texts}

    @property
    def _settings(self) -> Settings:
        return self.job.workspace.fleet.settings
