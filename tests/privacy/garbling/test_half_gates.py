"""What is garbled and evaluated is what the circuit says, and tables show nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.garbling import half_gates, machine_gates
from fedmq.privacy.garbling.circuit import Circuit
from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Evaluation, Garbling, colours
from fedmq.privacy.garbling.machine_gates import is_available
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear
from fedmq.privacy.oblivious_transfer import extension as hashing
from fedmq.privacy.oblivious_transfer.extension import BLOCK_BYTES, Permutation, Tweaks
from tests.privacy.garbling.float_parts import sums
from tests.privacy.garbling.test_circuit import random_circuit

PERMUTATION = Permutation(b"public")
SECRET = np.array([2**63 + 2**40 + 1, 12345678901234567], np.uint64)


def zero_labels(schedule: Schedule, instances: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {
        name: random.integers(0, 2**64, (place.stop - place.start, instances, 2), np.uint64)
        for name, place in schedule.inputs.items()
    }


def chosen(zeros: dict[str, np.ndarray], bits: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The labels that stand for ``bits``."""
    none = np.uint64(0)
    return {
        name: labels ^ np.where(bits[name][..., np.newaxis], SECRET, none)
        for name, labels in zeros.items()
    }


def computed(
    schedule: Schedule, bits: dict[str, np.ndarray], piece_bytes: int = 1 << 20
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """What garbler and evaluator find, and the tables that went from one to the other."""
    [instances] = {word.shape[1] for word in bits.values()}
    zeros = zero_labels(schedule, instances)
    tweaks = (Tweaks(7, 7 + instances), Tweaks(7, 7 + instances))
    garbling = Garbling(schedule, zeros, SECRET, PERMUTATION, tweaks[0], piece_bytes)
    labels = chosen(zeros, bits)
    evaluation = Evaluation(schedule, labels, PERMUTATION, tweaks[1], piece_bytes)
    pieces = []
    for piece in garbling.pieces():
        evaluation.take(piece)
        pieces.append(piece)
    found = {
        name: colours(labels) ^ colours(garbling.outputs[name])
        for name, labels in evaluation.outputs.items()
    }
    for name, labels in evaluation.outputs.items():
        wanted = chosen({name: garbling.outputs[name]}, found)[name]
        np.testing.assert_array_equal(labels, wanted)
    return found, pieces


@pytest.fixture(params=["by AES-NI", "by arrays"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the processor's own gates, and as a party without them computes."""
    if request.param == "by arrays":
        monkeypatch.setattr(half_gates, "is_available", lambda: False)
    elif not is_available():
        pytest.skip("no llvmlite, or a processor without AES-NI")
    yield request.param


def float_inputs(instances: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.random((32, instances)) < 0.5 for name in ("left", "right")}


@pytest.mark.parametrize("instances", [1, 3, 200])
@pytest.mark.skipif(not is_available(), reason="no llvmlite, or a processor without AES-NI")
def test_the_processors_gates_make_the_same_tables_and_labels(
    instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, made = sums(), []
    for available in (True, False):
        monkeypatch.setattr(half_gates, "is_available", lambda available=available: available)
        zeros = zero_labels(schedule, instances)
        garbling = Garbling(schedule, zeros, SECRET, PERMUTATION, Tweaks(7, 7 + instances))
        tables = [piece.tobytes() for piece in garbling.pieces()]
        made.append((tables, {name: found.tolist() for name, found in garbling.outputs.items()}))
    assert made[0] == made[1]


def test_an_aes_of_another_kind_of_processor_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ({"aes": True, "neon": True}, {}):
        monkeypatch.setattr(machine_gates, "features", lambda known=known: known)
        assert not is_available()
    monkeypatch.setattr(machine_gates, "features", lambda: {"aes": True, "sse2": True})
    assert is_available()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("piece_bytes", [1, 3000])
@pytest.mark.parametrize("seed", range(8))
def test_any_circuit(seed: int, piece_bytes: int) -> None:
    c, inputs, wanted = random_circuit(seed)
    bits = {"first": inputs[:5], "second": inputs[5:]}
    found, _ = computed(Schedule.of(c), bits, piece_bytes)
    np.testing.assert_array_equal(np.concatenate([found["picked"], found["inputs"]]), wanted)


@pytest.mark.parametrize("instances", [1, 3, 200])
def test_a_circuit_of_floats(instances: int) -> None:
    bits = float_inputs(instances)
    found, pieces = computed(sums(), bits)
    for name, wanted in in_the_clear(sums(), bits).items():
        np.testing.assert_array_equal(found[name], wanted)
    assert sum(piece.nbytes for piece in pieces) == TABLE_BYTES * sums().ands * instances


def test_a_circuit_without_ands_has_no_tables() -> None:
    c = Circuit()
    x, y = c.input("x", 2)
    c.output("z", [c.xor(x, c.inverse(y)), c.inverse(x), 1])
    found, pieces = computed(Schedule.of(c), {"x": np.array([[0, 0, 1, 1], [0, 1, 0, 1]]) > 0})
    assert found["z"].astype(int).tolist() == [[1, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert not pieces


def test_layers_after_the_last_tables_wait_for_no_other_piece() -> None:
    c = Circuit()
    x, y, z = c.input("x", 3)
    c.output("z", [c.xor(c.both(x, y), z)])
    bits = {"x": np.array([[True], [True], [False]])}

    found, pieces = computed(Schedule.of(c), bits, piece_bytes=1)

    assert found["z"].tolist() == [[True]]
    assert len(pieces) == 1


def test_tables_leave_in_pieces() -> None:
    _, [whole] = computed(sums(), float_inputs(20), piece_bytes=1 << 30)
    _, pieces = computed(sums(), float_inputs(20), piece_bytes=50_000)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert len(pieces) > 10
    widest = max(len(layer) for layer in sums().layers if layer.is_and)
    assert max(piece.nbytes for piece in pieces) <= max(50_000, TABLE_BYTES * 20 * widest)


def test_a_half_between_two_pieces_travels_without_its_schedule() -> None:
    zeros = zero_labels(sums(), 20)
    kept, sent = (
        Garbling(sums(), zeros, SECRET, PERMUTATION, Tweaks(0, 20), 50_000) for _ in range(2)
    )
    evaluation = Evaluation(sums(), zeros, PERMUTATION, Tweaks(0, 20), 50_000)
    for piece in kept.pieces():
        packed = pickle.dumps((sent, evaluation))
        assert len(packed) < 3 * sums().slots * 20 * BLOCK_BYTES
        sent, evaluation = pickle.loads(packed)  # noqa: S301
        for half in (sent, evaluation):
            half._run.labels.setflags(write=False)  # as what lies in shared memory
        sent.take_up(sums())
        evaluation.take_up(sums())
        tables = np.empty(piece.shape, np.uint64)
        sent.piece_into(tables)
        np.testing.assert_array_equal(tables, piece)
        evaluation.take(tables)
    sent, evaluation = pickle.loads(pickle.dumps((sent, evaluation)))  # noqa: S301
    for name, labels in kept.outputs.items():
        np.testing.assert_array_equal(sent.outputs[name], labels)
        shown = labels ^ evaluation.outputs[name]
        assert ((shown == 0) | (shown == SECRET)).all()


def test_tables_and_labels_are_even_whatever_the_inputs_are() -> None:
    for bits in (np.zeros((32, 200), np.bool_), np.ones((32, 200), np.bool_)):
        _, pieces = computed(sums(), {"left": bits, "right": bits})
        tables = np.concatenate(pieces)
        assert abs(np.unpackbits(tables.view(np.uint8)).mean() - 0.5) < 0.0005


def test_no_hash_of_either_side_has_the_tweak_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """P(x) is asked for before P(P(x) ⊕ t): tweaks are what lies between."""
    asked: list[np.ndarray] = []
    real = hashing.Permutation.into

    def into(self, blocks, space):
        given = blocks.reshape(-1, 2).copy()
        found = real(self, blocks, space)
        asked.append(given)
        asked.append(found.reshape(-1, 2).copy())
        return found

    monkeypatch.setattr(hashing.Permutation, "into", into)
    # The processor's gates make the same tables, and so have the same tweaks.
    monkeypatch.setattr(half_gates, "is_available", lambda: False)
    instances, schedule = 3, sums()
    zeros = zero_labels(schedule, instances)
    tweaks = Tweaks()
    for _ in range(2):
        own = tweaks.take(instances)
        list(Garbling(schedule, zeros, SECRET, PERMUTATION, own).pieces())
    seen = []
    for first in range(0, len(asked), 4):
        _, permuted, tweaked, _ = asked[first : first + 4]
        both_labels = (permuted ^ tweaked).reshape(2, 2, -1, 2)
        np.testing.assert_array_equal(both_labels[:, 0], both_labels[:, 1])
        seen.append(both_labels[:, 0].reshape(-1, 2))
    every = np.concatenate(seen)
    assert len(every) == 2 * 2 * schedule.ands * instances
    assert len(np.unique(every, axis=0)) == len(every)


def test_tweaks_are_as_many_as_instances_and_used_once() -> None:
    zeros = zero_labels(sums(), 3)
    tweaks = Tweaks(0, 3)
    Garbling(sums(), zeros, SECRET, PERMUTATION, tweaks)
    with pytest.raises(ValueError, match="0 are left"):
        Garbling(sums(), zeros, SECRET, PERMUTATION, tweaks)
    with pytest.raises(ValueError, match="3 of 4"):
        Evaluation(sums(), zeros, PERMUTATION, Tweaks(0, 4))


@pytest.mark.parametrize(
    "tables",
    [None, np.zeros((2, 2, 3, 2), np.uint64), np.zeros((1, 2, 3, 2), np.int64)],
    ids=["none", "many", "signed"],
)
def test_a_malformed_piece_is_refused(tables: object) -> None:
    c = Circuit()
    x, y = c.input("x", 2)
    c.output("z", [c.both(x, y)])
    schedule = Schedule.of(c)
    evaluation = Evaluation(schedule, zero_labels(schedule, 3), PERMUTATION, Tweaks(0, 3))
    with pytest.raises(MessageError, match=r"not uint64 \(1, 2, 3, 2\)"):
        evaluation.take(tables)
    with pytest.raises(MessageError, match="1 pieces of garbled tables are missing"):
        _ = evaluation.outputs
    evaluation.take(np.zeros((1, 2, 3, 2), np.uint64))
    assert evaluation.outputs["z"].shape == (1, 3, 2)
    with pytest.raises(MessageError, match="not uint64 None"):
        evaluation.take(np.zeros((1, 2, 3, 2), np.uint64))
