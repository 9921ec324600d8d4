"""The sessions whose histories are on file. Squared error, for it needs no function but sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.computation import Given
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from tests.crash_simulator import Build, CrashSimulation, Faults
from tests.protocol.alignment.alignments import machines, people

_ROWS = 40
_random = np.random.default_rng(11)
_X = _random.integers(-8, 8, size=(_ROWS, 5)).astype(np.float32) / 4
_LABEL = (_X @ np.array([1, -2, 3, -1, 2])).astype(np.float32)
_X[_random.random(_X.shape) < 0.1] = np.nan
OWN = ActiveTable(_X[:, :2], ("a", "b"), _LABEL, np.arange(_ROWS) % 4 == 0, "the same ids")
OTHERS = {
    "telco": PassiveTable(_X[:, 2:4], ("c", "d"), "the same ids"),
    "retail": PassiveTable(_X[:, 4:], ("e",), "the same ids"),
}
IDS = [f"p{row}" for row in range(_ROWS)]
_PARAMS = TrainParams(
    objective="reg:squarederror",
    num_boost_round=3,
    max_depth=3,
    max_bin=8,
    eta=0.5,
    base_score=0.5,
    xgboost_arithmetic=OLDEST,
)


def training() -> Mapping[str, Build]:
    """Three parties, missing values, evaluation rows."""

    def passive(party: str) -> Build:
        return lambda saved: PassiveTraining(
            party, "bank", Given(OTHERS[party]), lambda _: Plain(), 7, saved=saved
        )

    return {
        "bank": lambda saved: ActiveTraining(
            "model", "bank", tuple(OTHERS), OWN, _PARAMS, Plain(), saved=saved
        ),
        **{party: passive(party) for party in OTHERS},
    }


def inference() -> Mapping[str, Build]:
    """The rows of the training, by ids that every passive party holds in another order."""
    grown = CrashSimulation(training(), Faults())
    grown.run()
    shares = grown.results

    def passive(party: str) -> Build:
        row_of = {name: row for row, name in enumerate(reversed(IDS))}
        rows = PassiveRows(shares[party], OTHERS[party].values[::-1], row_of)
        return lambda _: PassiveInference("bank", Given(rows))

    return {
        "bank": lambda _: ActiveInference(shares["bank"], OWN.values, IDS),
        **{party: passive(party) for party in OTHERS},
    }


def alignment() -> Mapping[str, Build]:
    """Three parties with 20 ids each, of which some are common; their keys are on file, too."""
    owners = people(3, seed=5, share=0.8, of=25)
    return {party: lambda _, party=party: machines(owners)[party] for party in owners}


SCENES: Mapping[str, tuple[Callable[[], Mapping[str, Build]], Faults]] = {
    "training": (training, Faults()),
    "training-with-crashes": (
        training,
        Faults(
            drop=0.1,
            repeat=0.1,
            crashes=((20.0, "telco", 2.0), (40.0, "bank", 5.0), (60.0, "retail", 1.0)),
        ),
    ),
    "inference": (inference, Faults()),
    "alignment": (alignment, Faults()),
    "alignment-over-a-bad-link": (alignment, Faults(drop=0.2, repeat=0.2, delay=3.0)),
}
