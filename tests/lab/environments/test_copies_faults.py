"""The copies of an environment are gone only once the store itself has said so, whatever else it answers."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from engine.environments.copies import Place
from engine.environments.copies.place import BUCKET, key
from engine.environments.parents import LabParents
from engine.errors import UnknownState
from tests.lab.environments.faults import HttpProxy
from tests.lab.environments.test_observations import HTTP_FAULTS


@pytest.mark.parametrize("fault", HTTP_FAULTS)
def test_copies_are_never_said_to_be_gone_while_something_is_there(parents: LabParents, fault: str) -> None:
    store, owner = parents.objects, str(uuid.uuid4())
    place = Place(store)
    place.ensure()

    def fill() -> None:
        for name in ("database.dump", "objects/00000000"):
            store.s3.put_object(Bucket=BUCKET, Key=key(owner, "20261101T120000Z-0a1b2c3d", name), Body=b"x")
        store.s3.create_multipart_upload(Bucket=BUCKET, Key=key(owner, "20261102T120000Z-0a1b2c3d", "database.dump"))

    def left() -> object:
        listing = {"Bucket": BUCKET, "Prefix": f"{owner}/"}
        return store.s3.list_objects_v2(**listing).get("Contents") or store.s3.list_multipart_uploads(**listing).get(
            "Uploads"
        )

    at, ended = 0, False
    while not ended:
        at += 1
        fill()
        proxy = HttpProxy(store.port, fault=fault, at=at)
        broken = replace(store, endpoint=f"http://127.0.0.1:{proxy.port}", answer_seconds=1 if fault == "hang" else 30)
        try:
            Place(broken).remove(owner)
        except UnknownState:
            # The same may be asked again, and then all of it goes.
            place.remove(owner)
        else:
            # No request was broken, or one whose answer did not matter.
            ended = proxy.seen < at
        finally:
            proxy.stop()
        assert not left(), at
    assert at > 5
