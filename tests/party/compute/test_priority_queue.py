from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from fedmq.party.compute.processes import ProcessPool


@dataclass(frozen=True)
class Work:
    label: ClassVar[str] = "Work"
    name: str
    urgency: int = 0

    def run(self) -> str:
        return self.name


async def test_the_urgent_overtake_what_waits_but_not_each_other() -> None:
    pool = ProcessPool(1)
    done: list[str] = []

    async def run(work: Work) -> None:
        done.append(await pool.run(work))

    patient = [Work(f"patient {i}", urgency=-1) for i in range(4)]
    urgent = [Work(f"urgent {i}") for i in range(2)]
    try:
        await asyncio.gather(*(run(work) for work in (*patient, *urgent)))
    finally:
        await pool.close()
    names = [work.name for work in (*patient[:2], *urgent, *patient[2:])]
    assert done == names


async def test_whoever_gives_up_waiting_takes_nobody_s_turn() -> None:
    pool = ProcessPool(1)
    try:
        waiting = [asyncio.ensure_future(pool.run(Work(str(i)))) for i in range(6)]
        await asyncio.sleep(0)
        waiting[3].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        await pool.close()
    assert [name for name in results if isinstance(name, str)] == ["0", "1", "2", "4", "5"]
