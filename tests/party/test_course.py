"""A session over all its attempts."""

from __future__ import annotations

import pytest

from fedmq.errors import FedmqError
from fedmq.party.course import Course, OnChange
from fedmq.party.sessions import RunningSession


async def test_whoever_waits_is_told_of_a_fault_of_ours() -> None:
    async def opened(_: int, __: OnChange) -> RunningSession:
        raise OSError("the disk is gone")

    course = Course(opened)
    await course.run()

    assert course.ended.done()
    with pytest.raises(FedmqError, match="internal error: OSError"):
        await course.result
