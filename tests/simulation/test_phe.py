"""python-paillier's keys and numbers: users bring them from phe, and take them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import phe
import pytest

import fedmq
from fedmq.boosting.gradients import Gradients
from fedmq.errors import ConfigError, DataError
from fedmq.privacy.registry import engine_named
from tests.boosting.tables import scattered

_, KEY = phe.generate_paillier_keypair(n_length=512)
WEAK = {"allow_weak_keys": True}
X, Y = scattered(60, 4, seed=3, missing=0.05)
PARAMS = fedmq.TrainParams(num_boost_round=2, max_depth=2, max_bin=8, base_score=0.5)


def train(**changes: Any) -> fedmq.SimulatedModel:
    given = {
        "active": X[:, :2],
        "label": Y,
        "passive": {"telco": X[:, 2:]},
        "params": PARAMS,
        "engine": "paillier",
        "workers": 1,
    }
    return fedmq.simulate(**{**given, **changes})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[fedmq.SimulatedModel, Path]:
    folder = tmp_path_factory.mktemp("seen")
    return train(key=KEY, engine_options=WEAK, record=folder), folder


def test_a_key_of_phe_trains_the_same_model(
    recorded: tuple[fedmq.SimulatedModel, Path],
) -> None:
    model, _ = recorded
    assert model.share.dumps() == train(engine="plain").share.dumps()


@pytest.mark.parametrize("party", ["active", "telco"])
def test_phe_decrypts_the_gradients_that_a_party_saw(
    recorded: tuple[fedmq.SimulatedModel, Path], party: str
) -> None:
    _, folder = recorded
    first, second = fedmq.encrypted_gradients(folder / f"{party}.recording")
    everyone = np.ones(len(Y), dtype=np.bool_)
    margins = np.zeros(len(Y), dtype=np.float32)
    truth = Gradients.of(margins, Y, everyone, PARAMS, 0)
    np.testing.assert_array_equal(first.rows, np.arange(len(Y)))
    np.testing.assert_array_equal(first.decrypted(KEY), truth.pairs)
    assert not np.array_equal(second.decrypted(KEY), truth.pairs)


def test_phe_decrypts_rows_that_share_a_ciphertext(tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"gradient_bits": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedmq.privacy.homomorphic.active._PACKING", 0)
        train(key=KEY, engine_options=WEAK, record=tmp_path, params=params)
    first, *_ = fedmq.encrypted_gradients(tmp_path / "telco.recording")
    assert first.shared > 1
    everyone = np.ones(len(Y), dtype=np.bool_)
    truth = Gradients.of(np.zeros(len(Y), dtype=np.float32), Y, everyone, params, 0)
    np.testing.assert_array_equal(first.decrypted(KEY), truth.pairs)


def test_phe_adds_what_it_decrypts(recorded: tuple[fedmq.SimulatedModel, Path]) -> None:
    _, folder = recorded
    first, _ = fedmq.encrypted_gradients(fedmq.Recording.read(folder / "telco.recording"))
    g, h = first.decrypted(KEY).sum(axis=0).tolist()
    total = KEY.decrypt(sum(first.numbers[1:], first.numbers[0]))
    assert total == (g << first.h_bits) + h


def test_equal_gradients_are_encrypted_differently(
    recorded: tuple[fedmq.SimulatedModel, Path],
) -> None:
    _, folder = recorded
    first, _ = fedmq.encrypted_gradients(folder / "telco.recording")
    assert len(np.unique(first.decrypted(KEY), axis=0)) == 2
    assert len({number.ciphertext(be_secure=False) for number in first.numbers}) == len(Y)


def test_another_key_is_refused(recorded: tuple[fedmq.SimulatedModel, Path]) -> None:
    _, folder = recorded
    first, _ = fedmq.encrypted_gradients(folder / "telco.recording")
    _, other = phe.generate_paillier_keypair(n_length=512)
    with pytest.raises(ConfigError, match=r"^key: the gradients are encrypted under another one"):
        first.decrypted(other)


def test_gradients_that_phe_cannot_read_are_refused(tmp_path: Path) -> None:
    train(engine="plain", record=tmp_path)
    with pytest.raises(DataError, match="telco holds a training under plain; only paillier"):
        fedmq.encrypted_gradients(tmp_path / "telco.recording")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": KEY}, "simulate: key_bits = 512: below 2048"),
        ({"key": KEY.public_key}, "simulate: key: a PaillierPrivateKey .* not a PaillierPublicKey"),
        ({"key": KEY, "engine": "ou"}, "simulate: key: engine ou takes none"),
        ({"engine_options": {"key": KEY}}, "simulate: engine_options: .* has no 'key'"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        train(**changes)


def test_an_engine_does_not_show_its_key() -> None:
    engine = engine_named("paillier", WEAK, "test").with_key(KEY)
    assert str(KEY.p) not in repr(engine)
    assert str(KEY.q) not in repr(engine)
    assert "key" not in engine.options()
