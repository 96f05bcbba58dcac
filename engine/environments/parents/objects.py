"""The lab's object store: SeaweedFS in one process."""

from __future__ import annotations

import json
import secrets
import signal
from pathlib import Path

from engine.environments.drivers.base import KeyPair
from engine.environments.drivers.claims import BUCKET as CLAIMS
from engine.environments.drivers.claims import Claims
from engine.environments.drivers.objects_store import ObjectStore, part
from engine.environments.drivers.trouble import ProviderTrouble
from engine.environments.parents.programs import objects_program
from engine.environments.parents.service import ADDRESS, DATA, Account, Service
from engine.errors import Refused
from engine.provision.providers.lab.commands import Commands
from engine.records.atomic import replace_file

ACCOUNT = "nobody"
ADMINISTRATOR = "tenantry"
START_SECONDS = 90.0
VOLUME_MEBIBYTES = 64

_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
_SETTINGS = (
    "-s3",
    "-filer",
    "-s3.iam.readOnly=false",
    "-s3.allowDeleteBucketNotEmpty=false",
    "-s3.autoCreateBucket=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    # On by default, and sends figures about this machine to its makers.
    "-master.telemetry=false",
    f"-master.volumeSizeLimitMB={VOLUME_MEBIBYTES}",
    "-volume.max=0",
    "-volume.preStopSeconds=0",
    f"-dir={DATA}/data",
    f"-ip={ADDRESS}",
    f"-ip.bind={ADDRESS}",
    f"-filer.localSocket={DATA}/filer.sock",
    f"-s3.localSocket={DATA}/s3.sock",
    f"-s3.config={DATA}/config/s3.json",
)

# Seven volumes a bucket would be the default, and the disk is counted in volumes.
_GROWTH = "[master.volume_growth]\ncopy_1 = 1\n"


class ObjectsService:
    """Configures, starts and stops the store in its directory."""

    name = "objects"

    def __init__(self, directory: Path, group: str) -> None:
        self.service = Service(self.name, directory, group, lambda: Account.named(ACCOUNT))
        self._secrets = directory / "secrets" / "objects.json"

    def store(self) -> ObjectStore:
        """How it is reached; raises `Refused` before it was ever started."""
        record = self.service.read()
        if record is None or not self._secrets.is_file():
            raise Refused("the parent was never up", where="parent objects", hint="tenantry lab parents up")
        held = json.loads(self._secrets.read_text())
        key = KeyPair(held["access_key"], held["secret_key"].encode())
        return ObjectStore(f"http://{ADDRESS}:{record.ports['s3']}", key)

    def ensure(self, commands: Commands) -> bool:
        """Have it running; tells whether it had to be started."""
        record = self.service.read()
        if record is not None and record.process is not None and self._answers():
            self._have_claims()
            return False
        program = objects_program()
        ports = self.service.ports(_PORTS)
        self._configure()
        listening = [f"-{_option(name)}={port}" for name, port in ports.items()]
        argv = ("/mnt/program", f"-config_dir={DATA}/config", "-logtostderr=true", "server", *_SETTINGS, *listening)
        self.service.start(self.service.confined(argv, program), commands, self._takes_claims, START_SECONDS)
        self._have_claims()
        return True

    def shut_down(self) -> None:
        self.service.stop(signal.SIGTERM)

    def _answers(self) -> bool:
        try:
            store = self.store()
            part(store.call(store.s3.list_buckets), "Buckets", list)
            part(store.call(store.iam.list_users), "Users", list)
        except ProviderTrouble:
            return False
        return True

    def _takes_claims(self) -> bool:
        """Whether it answers, and objects can be written: that comes a while after its other parts."""
        if not self._answers():
            return False
        try:
            Claims(self.store()).ensure()
        except ProviderTrouble:
            return False
        return True

    def _have_claims(self) -> None:
        """Have the place for claims; raises `Refused` where the store does not let it be made."""
        try:
            why = "" if Claims(self.store()).ensure() else f"its bucket {CLAIMS} does not carry our mark"
        except ProviderTrouble as trouble:
            why = f"no bucket for claims could be made: {trouble.word}"
        if why:
            raise Refused(why, where="parent objects", hint="tenantry lab parents up, once that is put right")

    def _configure(self) -> None:
        """Write the files with the administrator's key, and with keys that the store's parts show each other."""
        if not self._secrets.is_file():
            self._secrets.parent.mkdir(mode=0o700, exist_ok=True)
            content = {
                "access_key": f"TN{secrets.token_hex(9).upper()}",
                "secret_key": secrets.token_urlsafe(32),
                "internal": [secrets.token_hex(32) for _ in _INTERNAL],
            }
            replace_file(self._secrets, json.dumps(content).encode())
        held = json.loads(self._secrets.read_text())
        self.service.make_directory()
        self.service.make_directory("data")
        config = self.service.make_directory("config")
        files = {"s3.json": _identities(held), "security.toml": _signing(held), "master.toml": _GROWTH}
        for name, text in files.items():
            replace_file(config / name, text.encode())
            self.service.give(config / name)


_INTERNAL = ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read")
"""Without these anybody on this machine could read and write past S3, at the store's other ports."""


def _signing(held: dict[str, list[str]]) -> str:
    return "".join(f'[{name}]\nkey = "{key}"\n' for name, key in zip(_INTERNAL, held["internal"], strict=True))


def _identities(held: dict[str, str]) -> str:
    credentials = [{"accessKey": held["access_key"], "secretKey": held["secret_key"]}]
    identity = {"name": ADMINISTRATOR, "credentials": credentials, "actions": ["Admin"]}
    return json.dumps({"identities": [identity]})


def _option(port: str) -> str:
    part, _, grpc = port.partition(".")
    return f"{part}.port.{grpc}" if grpc else f"{part}.port"
