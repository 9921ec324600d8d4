"""FedXGBoost-LDP: gradients travel in the clear, under local differential privacy.

arXiv 2106.10662, Algorithm 5. The active party perturbs each g and h once per tree; passive parties
add up the disclosed values. The active party computes leaf weights and node totals from the true
gradients, which never leave it; right sides are totals less left sides.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.computation import computation
from fedmq.errors import ConfigError
from fedmq.privacy.cleartext_sums import (
    CleartextPassive,
    carried_row_pieces,
    checked_pairs,
    largest_reply,
)
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    Leakage,
    PassiveHalf,
    SizeLimit,
    Sums,
    Traits,
)
from fedmq.privacy.plan import Compute, Exchange, Plan, Values

__all__ = ["MECHANISMS", "Ldp", "Mechanism", "MechanismName", "perturb_rows"]

MechanismName = Literal["laplace", "duchi", "piecewise", "hybrid"]
Floats = NDArray[np.float64]

_BYTES_PER_ROW = 20  # of a broadcast: 16 for g and h, 4 for the row's number


class Mechanism(ABC):
    """A random map under which any two numbers in [-1, 1] look alike up to ``exp(epsilon)``.

    Unbiased, with known variances. ``laplace``: Dwork et al. 2006. ``duchi``: Duchi, Jordan,
    Wainwright 2013, one dimension. ``piecewise`` and ``hybrid``: Wang et al. 2019 (arXiv
    1907.00782), Algorithm 2 and Section III-C.
    """

    name: ClassVar[MechanismName]

    @abstractmethod
    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        """``values`` (n,) in [-1, 1], each perturbed; its expectation is the value itself."""

    @abstractmethod
    def variance(self, values: Floats, epsilon: float) -> Floats:
        """The variance of ``perturbed`` at each of ``values``, in closed form."""


class Laplace(Mechanism):
    """Noise of scale ``2 / epsilon``; unbounded."""

    name = "laplace"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        return values + random.laplace(scale=2 / epsilon, size=values.shape)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        return np.full(values.shape, 8 / epsilon**2)


class Duchi(Mechanism):
    """One of two values, ``(e^epsilon + 1) / (e^epsilon - 1)`` or its negative.

    The output is one bit whatever epsilon is, so the noise never vanishes.
    """

    name = "duchi"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        bound = 1 / math.tanh(epsilon / 2)
        high = random.random(values.shape) < 0.5 + values / (2 * bound)
        return np.where(high, bound, -bound)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        return 1 / math.tanh(epsilon / 2) ** 2 - np.square(values)


class Piecewise(Mechanism):
    """Mostly uniform in a short interval around the value, else anywhere in [-C, C]."""

    name = "piecewise"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        bound = 1 / math.tanh(epsilon / 4)
        low = values * (bound + 1) / 2 - (bound - 1) / 2
        near = random.random(values.shape) < 1 / (1 + math.exp(-epsilon / 2))
        place = random.random(values.shape)
        # Outside [low, low + C - 1] lie C + low on the left and 1 - low on the right.
        far = place * (bound + 1) - bound
        far = np.where(far < low, far, far + bound - 1)
        return np.where(near, low + place * (bound - 1), far)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        less = math.expm1(min(epsilon / 2, 350.0))
        return np.square(values) / less + (less + 4) / (3 * less) / less


class Hybrid(Mechanism):
    """``piecewise`` with probability ``1 - exp(-epsilon / 2)``, else ``duchi``.

    Only ``duchi`` up to epsilon = 0.61, where it has the smaller worst variance.
    """

    name = "hybrid"
    threshold: ClassVar[float] = 0.61

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        piecewise = _PIECEWISE.perturbed(values, epsilon, random)
        duchi = _DUCHI.perturbed(values, epsilon, random)
        return np.where(random.random(values.shape) < self._share(epsilon), piecewise, duchi)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        share = self._share(epsilon)
        of_piecewise, of_duchi = (m.variance(values, epsilon) for m in (_PIECEWISE, _DUCHI))
        return share * of_piecewise + (1 - share) * of_duchi

    def _share(self, epsilon: float) -> float:
        return -math.expm1(-epsilon / 2) if epsilon > self.threshold else 0.0


_PIECEWISE, _DUCHI = Piecewise(), Duchi()

MECHANISMS: Mapping[MechanismName, Mechanism] = {
    mechanism.name: mechanism for mechanism in (Laplace(), _DUCHI, _PIECEWISE, Hybrid())
}
"""Mechanisms by name."""


_LARGEST = 2.0**62


@dataclass(frozen=True)
class Ldp(Engine):
    """``mechanism`` and ``epsilon``: the noise, and its budget per tree and channel (g, h).

    ``clip``: gradients are cut to [-clip, clip]. Its default is the bound of the objective's g,
    such as 1 for ``binary:logistic``; ``reg:squarederror`` and others without such a bound need
    one. ``order`` 1 sends g only, and scores by ``-G_L G_R / lambda`` (Appendix A). ``noise_seed``
    makes trials repeatable; knowing the seed removes the noise.
    """

    epsilon: float = 1.0
    mechanism: MechanismName = "laplace"
    order: int = 2
    clip: float | None = None
    noise_seed: int | None = field(default=None, repr=False)

    name = "ldp"
    traits = Traits(exact=False, takes_weights=False, replays=True, light=True)
    leakage = Leakage(
        active="the sums of the perturbed g and h of every split candidate of a passive party",
        passive="a perturbed g and h of each row and tree, of which all trees together reveal more "
        "than one; who stands in which node",
    )

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(MechanismName):
            allowed = ", ".join(get_args(MechanismName))
            raise ConfigError(f"mechanism = {self.mechanism!r}: use {allowed}")
        if not 0 < self.epsilon < float("inf"):
            raise ConfigError(f"epsilon = {self.epsilon}: a positive number is needed")
        if self.order not in (1, 2):
            raise ConfigError(f"order = {self.order}: 1 (g alone) or 2 (g and h)")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ConfigError(f"clip = {self.clip}: a positive number is needed")

    @property
    def first_order(self) -> bool:
        return self.order == 1

    def drawn(self) -> Mapping[str, int]:
        """A seed of 128 bits, so that a tree regrown after a crash has the same noise."""
        return {} if self.noise_seed is not None else {"noise_seed": secrets.randbits(128)}

    def epsilon_spent(self, trees: int) -> float:
        """By sequential composition: epsilon times trees times channels.

        An upper bound: the h of ``reg:squarederror`` and of a first tree are no secret.
        """
        return self.epsilon * self.order * trees

    def check(self, params: TrainParams) -> None:
        super().check(params)
        self.ranges(params)
        if params.goss:
            raise ConfigError(
                "engine ldp: goss makes gradients larger than the noise is meant for; leave it off"
            )
        if params.gradient_bits is not None:
            raise ConfigError(
                "engine ldp: gradient_bits rounds what noise hides already; leave it out"
            )
        if params.scale_pos_weight != 1:
            raise ConfigError(
                "engine ldp: scale_pos_weight makes gradients larger than the noise is meant for; "
                "leave it at 1"
            )
        if self.order == 1 and params.reg_lambda == 0:
            raise ConfigError("engine ldp: order = 1 divides by lambda, which is 0")
        for name in ("reg_alpha", "max_delta_step"):
            if self.order == 1 and getattr(params, name):
                raise ConfigError(f"engine ldp: order = 1 scores without {name}; leave it at 0")

    def ranges(self, params: TrainParams) -> list[tuple[float, float]]:
        """The ranges of the sent channels: lowest and highest g, then h.

        Raises:
            ConfigError: g has no bound.
        """
        objective = params.objective
        bounds = objective_of(params).ldp_bounds
        clip = self.clip
        if clip is None and bounds is not None:
            clip = bounds.g
        if clip is None:
            raise ConfigError(
                f"engine ldp: clip: {objective} has no bound on g of its own; give one"
            )
        if bounds is None and self.order == 2:
            raise ConfigError(
                f"engine ldp: {objective} has no bound on h; take order = 1, which sends g alone"
            )
        return [(-clip, clip), *([] if bounds is None else [bounds.h])][: self.order]

    def floor(self, rows: int, params: TrainParams) -> float:
        """The least h of a side that exceeds the noise: two deviations of the sum over ``rows``."""
        if self.order == 1:
            return 0.0
        low, high = self.ranges(params)[1]
        [variance] = MECHANISMS[self.mechanism].variance(np.zeros(1), self.epsilon)
        return float(2 * (high - low) / 2 * np.sqrt(variance * rows))

    def scale(self, rows: int, params: TrainParams) -> FixedPoint:
        """The grid on which ``rows`` rows are disclosed: it must not show the largest gradient."""
        largest = [max(abs(low), abs(high)) for low, high in self.ranges(params)]
        return FixedPoint.covering(np.array([*largest, 0.0][:2]), rows)

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active(self)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return CleartextPassive(bins)


@computation("PerturbRows")
def perturb_rows(
    pairs: NDArray[np.int64],
    scale: FixedPoint,
    disclosed: FixedPoint,
    ranges: Sequence[tuple[float, float]],
    spec: Ldp,
    seed: np.random.SeedSequence,
    carried: int,
) -> NDArray[np.int64]:
    """Perturbed g and h of some rows on the grid ``disclosed``: int64 (rows, 2).

    ``pairs`` are the true ones on the grid ``scale``; ``ranges``: lowest and highest of each
    channel that is sent. A constant channel is no secret and gets no noise.
    """
    random = np.random.Generator(np.random.Philox(seed))
    floats = scale.to_float(pairs)
    bits = (disclosed.g_bits, disclosed.h_bits)
    noisy = np.zeros_like(pairs)
    for channel, (low, high) in enumerate(ranges):
        if low == high:
            noisy[:, channel] = np.rint(np.ldexp(floats[:, channel], bits[channel]))
            continue
        scaled = np.ldexp(_within(floats[:, channel], low, high, random, spec), bits[channel])
        if np.abs(scaled).max(initial=0) * carried >= _LARGEST:
            raise ConfigError(f"engine ldp: epsilon = {spec.epsilon}: so much noise leaves 62 bits")
        noisy[:, channel] = np.rint(scaled)
    return noisy


def _within(
    values: NDArray[np.float64], low: float, high: float, random: np.random.Generator, spec: Ldp
) -> NDArray[np.float64]:
    """``values`` cut to [low, high] and perturbed as numbers in [-1, 1]."""
    middle, half = (low + high) / 2, (high - low) / 2
    unit = np.clip((values - middle) / half, -1, 1)
    mechanism = MECHANISMS[spec.mechanism]
    return middle + half * mechanism.perturbed(unit, spec.epsilon, random)


class _Active(ActiveHalf):
    def __init__(self, spec: Ldp) -> None:
        self._spec = spec
        self._gradients: Gradients
        self._disclosed: FixedPoint
        self._secret = secrets.randbits(128) if spec.noise_seed is None else spec.noise_seed

    def open(self) -> Plan[Values]:
        spec = self._spec
        return {"epsilon": float(spec.epsilon), "mechanism": spec.mechanism, "order": spec.order}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._gradients = gradients
        self._disclosed = self._spec.scale(int(gradients.carried.sum()), gradients.params)
        pieces = carried_row_pieces(gradients, _BYTES_PER_ROW)
        return [self._piece(gradients, number, rows) for number, rows in enumerate(pieces)]

    def _piece(
        self, gradients: Gradients, number: int, rows: NDArray[np.uint32]
    ) -> Plan[BroadcastPiece]:
        # A tree that is sent again carries the same noise: a second draw would cost the budget
        # once more.
        step = perturb_rows.bind(
            gradients.pairs[rows],
            gradients.scale,
            self._disclosed,
            self._spec.ranges(gradients.params),
            self._spec,
            np.random.SeedSequence(self._secret, spawn_key=(gradients.tree, number)),
            int(gradients.carried.sum()),
        )
        [noisy] = yield Compute([step])
        return BroadcastPiece(rows, {"pairs": noisy})

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return largest_reply(candidates)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        noisy = np.concatenate([checked_pairs(piece, "left") for piece in pieces])
        sums = self._gradients.scale.rescaled(noisy, self._disclosed)
        floor = self._spec.floor(len(asked.rows), self._gradients.params)
        if floor > 0:
            # A gain divides by H: where H is noise alone, any gain may come out.
            scale = self._gradients.scale
            totals = self._gradients.totals(asked.rows)
            h, total = scale.to_float(sums)[..., 1], scale.to_float(totals)[..., 1]
            smaller = np.minimum(h, total - h)
            sums = np.where(((smaller > 0) & (smaller < floor))[:, None], 0, sums)
        return Sums(sums)
