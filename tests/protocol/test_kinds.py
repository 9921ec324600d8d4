"""What others write down about the kinds of session, because they may not import them."""

from __future__ import annotations

from typing import get_args

from fedmq.messages import codec
from fedmq.messages.body import BODIES, ConsentPendingMessage
from fedmq.party.configuration.policy import AllowedSession, AskedSession, PolicySection
from fedmq.protocol.kinds import SESSION_KINDS


def test_the_codec_reads_the_bodies_of_every_kind() -> None:
    of_kinds = [body for kind in SESSION_KINDS.values() for body in kind.bodies]
    assert set(codec.KINDS.values()) == {*BODIES, *of_kinds}


def test_a_policy_has_a_word_for_every_kind_that_needs_one_and_begins_with_all() -> None:
    words = {kind.policy for kind in SESSION_KINDS.values() if kind.policy is not None}
    assert set(get_args(AllowedSession)) == words
    assert set(PolicySection().sessions) == words


def test_owners_are_asked_about_the_kinds_whose_machines_wait_for_consent() -> None:
    waiting = {
        kind.name
        for kind in SESSION_KINDS.values()
        for side in kind.sides
        for _, event in side.table
        if event is ConsentPendingMessage
    }
    # A yes to a joint model is waited for by nobody: the active party asks again.
    assert set(get_args(AskedSession)) == waiting | {"joint model"}
