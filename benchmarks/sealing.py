"""What sealing costs: megabytes a second, and its share of a training over RabbitMQ.

::

    python benchmarks/sealing.py DATA [--trees 10] [--repeat 3] [--broker amqp://...] [--json]

DATA is the folder that ``benchmarks/training.py`` takes. The training is Default of Credit Card
Clients with the engine ``plain``, whose arithmetic is the least and its share of messages the
largest, depth 3, 32 bins, two parties in one process: with and without seals in turn, each
``--repeat`` times, medians. Without ``--broker`` a private RabbitMQ node is started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import training as credit

from fedmq.messages.array import Array
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import GradientBroadcast
from fedmq.party.compute import ThreadPool
from fedmq.party.in_process import run_machines
from fedmq.party.keys_file import KeyRing
from fedmq.party.sealer import EndToEnd
from fedmq.party.traffic import Traffic
from fedmq.privacy.engine import Given
from fedmq.privacy.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.training_active import ActiveTraining
from fedmq.protocol.training_passive import PassiveTraining
from fedmq.protocol.training_tables import ActiveTable, PassiveTable
from fedmq.transport.keys import PrivateKeys

BROKER = Path(__file__).parent.parent / "brokers" / "rabbitmq"
PARTIES = ("bank", "telco")
SIZES = (1_000, 64_000, 1_000_000)


def sealers() -> dict[str, EndToEnd]:
    """Fresh keys for both parties."""
    rings = {party: KeyRing(party, PrivateKeys.generate()) for party in PARTIES}
    pinned = {party: (ring.current.public,) for party, ring in rings.items()}
    return {party: EndToEnd(ring, pinned) for party, ring in rings.items()}


def envelope(size: int, sequence: int) -> Envelope:
    """A broadcast with a payload of ``size`` bytes."""
    body = GradientBroadcast(
        tree=0,
        piece=0,
        rows=Array.of(np.zeros(1, dtype=np.uint32)),
        payload={"a": Array.of(np.zeros(size, dtype=np.uint8))},
    )
    header = Header(
        id=f"s/1/bank/telco/{sequence}",
        federation="demo",
        session="s",
        attempt=1,
        sender="bank",
        recipient="telco",
        sequence=sequence,
        acknowledged=0,
        kind=body.kind,
    )
    return Envelope(header, body)


def microseconds(act: Callable[[int], object], count: int) -> float:
    """The median time of ``act``."""
    times = []
    for number in range(count):
        begun = time.perf_counter()
        act(number)
        times.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(times)


def primitives() -> list[dict[str, float]]:
    """Encoding and decoding a message, with and without its seal."""
    both, rows = sealers(), []
    for size in SIZES:
        said = [envelope(size, number) for number in range(1, 101)]
        clear = [encode(each) for each in said]
        sealed = [both["bank"].seal(each) for each in said]
        rows.append(
            {
                "bytes": size,
                "encode_us": microseconds(lambda n, said=said: encode(said[n]), 100),
                "seal_us": microseconds(lambda n, said=said: both["bank"].seal(said[n]), 100),
                "decode_us": microseconds(lambda n, clear=clear: decode(clear[n]), 100),
                "open_us": microseconds(lambda n, s=sealed: both["telco"].open(s[n]), 100),
                "more_bytes": len(sealed[0]) - len(clear[0]),
            }
        )
    return rows


def machines(options: argparse.Namespace) -> dict[str, Machine]:
    """A training with the engine ``plain``."""
    active, passive, label = credit.load(options)
    names = [[f"f{n}" for n in range(table.shape[1])] for table in (active, passive)]
    own = ActiveTable(
        active.astype(np.float32),
        tuple(names[0]),
        label.astype(np.float32),
        np.zeros(len(label), dtype=np.bool_),
    )
    held = Given(PassiveTable(passive.astype(np.float32), tuple(names[1])))
    engine = Plain()
    return {
        "bank": ActiveTraining("m", "bank", ("telco",), own, credit.params_of(options), engine),
        "telco": PassiveTraining("telco", "bank", held, lambda _: engine, 1),
    }


def seconds(
    options: argparse.Namespace, broker: str, seals: Mapping[str, EndToEnd] | None
) -> tuple[float, float]:
    """How long a training takes by the clock, and how much time of the processor."""
    prepared = machines(options)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    asyncio.run(run_machines(prepared, ThreadPool(), broker, "training", Traffic(), sealers=seals))
    return time.perf_counter() - begun, time.process_time() - begun_cpu


@contextmanager
def node() -> Iterator[str]:
    """A private node with the project's own settings."""
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(BROKER, folder, dirs_exist_ok=True)
    started = subprocess.run(
        [folder / "node", "start", folder], check=True, capture_output=True, text=True
    )
    try:
        port = started.stdout.split(":")[1].split(",")[0]
        yield f"amqp://admin:admin-example@127.0.0.1:{port}/"
    finally:
        subprocess.run([folder / "node", "stop", folder], check=True, capture_output=True)
        shutil.rmtree(folder)


def trainings(options: argparse.Namespace, broker: str) -> dict[str, float]:
    """With and without seals in turn, so that a busy machine slows both."""
    clear, sealed = [], []
    for _ in range(options.repeat):
        clear.append(seconds(options, broker, None))
        sealed.append(seconds(options, broker, sealers()))
    result: dict[str, float] = {}
    for at, what in enumerate(("wall", "cpu")):
        usual, costly = (statistics.median(each[at] for each in runs) for runs in (clear, sealed))
        result |= {f"clear_{what}_s": usual, f"sealed_{what}_s": costly}
        result[f"{what}_ratio"] = costly / usual
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--broker")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {"messages": primitives()}
    if options.broker:
        result["training"] = trainings(options, options.broker)
    else:
        with node() as broker:
            result["training"] = trainings(options, broker)
    if options.json:
        print(json.dumps(result))
        return
    print("bytes      encode  seal    decode  open   (microseconds, median)   larger by")
    for row in result["messages"]:
        print(
            f"{row['bytes']:<9} {row['encode_us']:7.0f} {row['seal_us']:7.0f} "
            f"{row['decode_us']:7.0f} {row['open_us']:7.0f} {row['more_bytes']:>31}"
        )
    for what in ("wall", "cpu"):
        usual, costly, ratio = (
            result["training"][key]
            for key in (f"clear_{what}_s", f"sealed_{what}_s", f"{what}_ratio")
        )
        print(f"training, {what}: {usual:.2f} s in the clear, {costly:.2f} s sealed, {ratio:.3f}")


if __name__ == "__main__":
    main()
