"""An owner is told at most once."""

import pytest

from engine.hosts.status import OwedNote
from engine.updater.notify import Delivery, deliver

NOTE = OwedNote("2026.10.1", "Brand updated to 2026.10.1: hello")


def run(note, delivery, target="json://127.0.0.1"):
    recorded, sent = [], []

    def sender(url, text):
        sent.append((url, text, list(recorded)))
        return delivery

    message = deliver(note, target, recorded.append, sender)
    return message, recorded, sent


def test_a_delivered_note_is_owed_no_more():
    _, recorded, sent = run(NOTE, Delivery.DELIVERED)
    assert recorded[-1] is None and len(sent) == 1


def test_the_attempt_is_on_record_before_it_is_made():
    _, _, sent = run(NOTE, Delivery.DELIVERED)
    assert sent[0][2][-1].sending


def test_a_refused_note_stays_owed():
    _, recorded, _ = run(NOTE, Delivery.REFUSED)
    assert recorded[-1] == NOTE


def test_an_unknown_delivery_is_never_sent_again():
    message, recorded, _ = run(NOTE, Delivery.UNKNOWN)
    assert recorded[-1] is None and "unknown" in message


def test_an_attempt_that_a_crash_cut_off_is_never_repeated():
    _, recorded, sent = run(OwedNote(NOTE.version, NOTE.text, sending=True), Delivery.DELIVERED)
    assert recorded == [None] and sent == []


def test_without_a_target_nothing_is_tried():
    message, recorded, sent = run(NOTE, Delivery.DELIVERED, target=None)
    assert (recorded, sent) == ([], []) and "stays owed" in message


@pytest.mark.parametrize("delivery", list(Delivery))
def test_the_target_is_in_no_message(delivery):
    message, _, _ = run(NOTE, delivery, target="json://user:secret@127.0.0.1")
    assert "secret" not in message
