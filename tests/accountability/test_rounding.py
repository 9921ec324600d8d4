"""What another machine rounds otherwise convicts nobody; what no machine rounds does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.accountability.replay import same_but_rounded
from fedmq.errors import Inconsistent
from fedmq.messages.array import pack_payload
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engines import smm2
from tests.accountability.audited import AuditedDaemons


def reply(node: int = 1, **values: Any) -> HistogramReply:
    payload = pack_payload(values)
    return HistogramReply(tree=0, node=node, round=0, piece=0, pieces=1, payload=payload)


Z = np.linspace(-1, 1, 6).reshape(3, 2)


@pytest.mark.parametrize(
    "shown",
    [
        reply(z=Z + 2e-6),
        reply(z=np.where(Z > 0, Z, np.nan)),
        reply(z=Z.astype(np.float32)),
        reply(z=Z[:2]),
        reply(z="z"),
        reply(z=Z, w=Z),
        reply(),
        reply(node=2, z=Z),
    ],
    ids=["far", "no number", "of another kind", "fewer", "text", "more", "nothing", "elsewhere"],
)
def test_another_reply_is_not_the_same(shown: HistogramReply) -> None:
    assert same_but_rounded(reply(z=Z + 1e-9), reply(z=Z), {"z"})
    assert not same_but_rounded(shown, reply(z=Z), {"z"})


def test_only_what_is_rounded_may_be_off() -> None:
    assert not same_but_rounded(reply(w=Z + 1e-15), reply(w=Z), {"z"})
    assert not same_but_rounded(reply(gain=1.0), reply(gain=1.0 + 1e-15), {"z"})
    assert same_but_rounded(reply(gain=1.0, w=Z), reply(gain=1.0, w=Z), {"z"})


@pytest.mark.parametrize("off", [1e-9, 1e-3])
async def test_vectors_of_smm2_may_be_rounded_otherwise(
    off: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(2, "smm2")
    assert daemons.verified().trees == 2
    honest, made = smm2.vectors_off_splits, []

    def elsewhere(*node: Any) -> np.ndarray:
        vectors = honest(*node)
        made.append(vectors.size)
        return vectors + off * np.cos(np.arange(vectors.size)).reshape(vectors.shape)

    monkeypatch.setattr(smm2, "vectors_off_splits", elsewhere)
    if off < 1e-6:
        assert daemons.verified().trees == 2
    else:
        with pytest.raises(Inconsistent, match="tree 0, node 1: its sums are not those of"):
            daemons.verified()
    assert any(made)
