"""Gain of a split, the best candidate of a node, and the weight of a leaf.

Bit for bit those of XGBoost's ``hist`` (``split_evaluator.h``, ``evaluate_splits.h``,
``param.h``), of 3.2 or 3.4 as ``xgboost_arithmetic`` says: sums are float64, parameters float32,
and each gain is a float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.monotone import UNBOUNDED, MonotoneNode, WeightBounds
from fedmq.boosting.params import TrainParams

__all__ = [
    "SMALLEST_GAIN",
    "best",
    "first_order_gains",
    "is_worthwhile",
    "leaf_weights",
    "node_gains",
    "node_weights",
    "split_gains",
    "vector_leaf_weights",
]

SMALLEST_GAIN = np.float32(1e-6)
"""A split must gain more: XGBoost's kRtEps."""


def split_gains(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
    monotone: MonotoneNode | None = None,
) -> NDArray[np.float32]:
    """Loss reduction per candidate, -inf where a side is empty or lighter than min_child_weight.

    With ``monotone`` sides are worth what bounded weights gain; -inf where those are not in order.

    ``left`` and ``right`` (..., C, 2) are sums of g and h, ``total`` (..., 2) those of the node;
    the result is float32 (..., C). Of vector leaves sums are (..., 2 * outputs), see
    ``_vector_gains``. Equation 7 of XGBoost (arXiv 1603.02754) without the
    factor 1/2 and without gamma, which is a bound of its own (``is_worthwhile``).
    """
    if left.shape[-1] > 2:
        return _vector_gains(left, right, total, params)
    with np.errstate(over="ignore", invalid="ignore"):
        bounds, above = (None, None) if monotone is None else (monotone.bounds, monotone.above)
        sides = _side_gain(left, params, bounds) + _side_gain(right, params, bounds)
        gains = sides - _side_gain(total, params, above)[..., None]
    if monotone is not None:
        weights = (node_weights(side, params, monotone.bounds) for side in (left, right))
        gains = np.where(monotone.allows(*weights), gains, np.float32(-np.inf))
    lightest = np.minimum(left[..., 1], right[..., 1])
    valid = (lightest > 0) & (lightest >= np.float32(params.min_child_weight))
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def first_order_gains(
    left: NDArray[np.float64], right: NDArray[np.float64], params: TrainParams
) -> NDArray[np.float32]:
    """Loss reduction per candidate from g alone: float32 (..., C); h counts for nothing.

    Equation 7 of XGBoost with H = 0, ``-2 G_L G_R / lambda``: twice the score of FedXGBoost
    (arXiv 2106.10662, Appendix A), as ``split_gains`` is twice XGBoost's equation.
    """
    gains = -2 * left[..., 0] * right[..., 0] / params.reg_lambda
    return np.asarray(gains, dtype=np.float32)


def best(gains: NDArray[np.float32]) -> tuple[np.float32, NDArray[np.int64]]:
    """The largest of ``gains`` (C,) and all candidates that reach it, the winner first.

    Without a valid candidate the gain is -inf and there are no indices.
    """
    largest = np.max(gains, initial=np.float32(-np.inf))
    if np.isneginf(largest):
        return np.float32(-np.inf), np.empty(0, np.int64)
    return np.float32(largest), np.flatnonzero(gains == largest)


def is_worthwhile(gain: np.float32 | float, params: TrainParams) -> bool:
    """Whether a node is split for this ``gain``: more than 1e-6, and no less than gamma."""
    return bool(gain > SMALLEST_GAIN and gain >= np.float32(params.gamma))


def node_gains(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float32]:
    """What nodes are worth unsplit, to which `split_gains` compares: float32 (...) of (..., 2)."""
    return _side_gain(sums, params, None)


def leaf_weights(
    total: NDArray[np.float64], params: TrainParams, bounds: WeightBounds = UNBOUNDED
) -> NDArray[np.float32]:
    """What a leaf adds to the margin, eta included: float32 (...) of sums (..., 2).

    Equation 5 of XGBoost (arXiv 1603.02754); in 3.2 zero for nodes lighter than min_child_weight.
    ``bounds``: those of the leaf's parent.
    """
    return node_weights(total, params, bounds) * params.leaf_eta


def node_weights(
    sums: NDArray[np.float64], params: TrainParams, bounds: WeightBounds
) -> NDArray[np.float32]:
    """The weight of a node within ``bounds``, without eta: float32 (...) of sums (..., 2)."""
    return bounds.clipped(_weights(sums, params).astype(np.float32))


def vector_leaf_weights(
    total: NDArray[np.float64], params: TrainParams, *, root: bool
) -> NDArray[np.float32]:
    """What a vector leaf adds to each margin, eta included: float32 (outputs,) of (2 * outputs,).

    XGBoost 3.4 rounds before eta and after it; 3.2 once, after it, but those of a ``root`` without
    splits twice.
    """
    weights = _weights(_by_output(total), params)
    if root or params.xgboost_arithmetic != "3.2":
        return weights.astype(np.float32) * params.leaf_eta
    return (weights * np.float64(params.leaf_eta)).astype(np.float32)


def _vector_gains(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
) -> NDArray[np.float32]:
    """Loss reduction per candidate over all outputs of vector leaves: ``HistMultiEvaluator``.

    float32 (..., C), rounded once; -inf where a side has no hessian at all. In 3.4 also where a
    side's mean over the outputs is lighter than min_child_weight; in 3.2 that is no obstacle, and
    the weight of an output that is lighter is 0.
    """
    if params.xgboost_arithmetic != "3.2":
        return _vector_gains_of_means(left, right, total, params)
    with np.errstate(over="ignore", invalid="ignore"):
        sides = _vector_gain(left, params) + _vector_gain(right, params)
        gains = (sides - _vector_gain(total, params)[..., None]).astype(np.float32)
    valid = (left[..., 1::2] > 0).any(axis=-1) & (right[..., 1::2] > 0).any(axis=-1)
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def _vector_gains_of_means(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
) -> NDArray[np.float32]:
    """``CalcSplitGain`` of XGBoost 3.4: the sides of an output one after the other, in float64.

    What the node was worth comes from its weights as float32, what the sides are from no weights.
    """
    outputs = _by_output(total)
    with np.errstate(over="ignore", invalid="ignore"):
        sides = [_output_gains(_by_output(side), params) for side in (left, right)]
        before = _gain_of_weights(outputs, _weights(outputs, params).astype(np.float32), params)
        gains = _summed(np.stack(sides, axis=-1).reshape(left.shape))
        gains = (gains - _summed(before)[..., None]).astype(np.float32)
    h_left, h_right = (_summed(side[..., 1::2]) / outputs.shape[-2] for side in (left, right))
    lightest = np.minimum(h_left, h_right)
    valid = (lightest > 0) & (lightest >= np.float32(params.min_child_weight))
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def _output_gains(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """What each output of a side is worth: ``CalcGain``, float64 (...) of sums (..., 2)."""
    G, H = sums[..., 0], sums[..., 1]
    if params.max_delta_step:
        gain = _gain_of_weights(sums, _weights(sums, params), params)
    else:
        denominator = np.where(H > 0, H + np.float64(np.float32(params.reg_lambda)), 1.0)
        gain = np.square(_shrunk(G, params)) / denominator
    return np.where(H > 0, gain, 0.0)


def _gain_of_weights(
    sums: NDArray[np.float64], weights: NDArray[np.floating], params: TrainParams
) -> NDArray[np.float64]:
    """-(2 G w + (H + lambda) w^2 + 2 alpha |w|): ``CalcGainGivenWeight`` of XGBoost 3.4."""
    reg_lambda, alpha = (np.float64(np.float32(r)) for r in (params.reg_lambda, params.reg_alpha))
    squares = (sums[..., 1] + reg_lambda) * np.square(weights)
    gain: NDArray[np.float64] = -(
        2 * sums[..., 0] * weights + squares + 2 * alpha * np.abs(weights)
    )
    return gain


def _vector_gain(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """What a side is worth: the sum of -w L1(G) over outputs, w in float32."""
    outputs = _by_output(sums)
    worth = -_weights(outputs, params).astype(np.float32) * _shrunk(outputs[..., 0], params)
    return _summed(worth)


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums along the last axis, one after the other as XGBoost adds them."""
    summed: NDArray[np.float64] = np.add.accumulate(values, axis=-1)[..., -1]
    return summed


def _by_output(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums (..., 2 * outputs) as (..., outputs, 2)."""
    return sums.reshape(*sums.shape[:-1], sums.shape[-1] // 2, 2)


def _weights(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """-L1(G) / (H + lambda), at most max_delta_step away from zero: ``CalcWeight``."""
    G, H = sums[..., 0], sums[..., 1]
    heavy = H > 0
    if params.xgboost_arithmetic == "3.2":
        heavy &= ~(np.float32(params.min_child_weight) > H)
    denominator = np.where(heavy, H + np.float64(np.float32(params.reg_lambda)), 1.0)
    weights = np.where(heavy, -_shrunk(G, params) / denominator, 0.0)
    if params.max_delta_step:
        largest = np.float64(np.float32(params.max_delta_step))
        weights = np.clip(weights, -largest, largest)
    return weights


def _side_gain(
    sums: NDArray[np.float64], params: TrainParams, bounds: WeightBounds | None
) -> NDArray[np.float32]:
    """What a side is worth in float32, as ``CalcGainGivenWeight`` has it.

    In 3.4 by the weight, float32. In 3.2 L1(G)^2 / (H + lambda), a quotient of float32s; where
    weights are bounded, by the weight w, -(2 G w + (H + lambda) w^2), which leaves alpha out.
    """
    G, H = sums[..., 0], sums[..., 1]
    if params.xgboost_arithmetic != "3.2":
        weights = node_weights(sums, params, bounds or UNBOUNDED)
        gains = _gain_of_weights(sums, weights, params).astype(np.float32)
        return np.where(H > 0, gains, np.float32(0))
    reg_lambda = np.float32(params.reg_lambda)
    present = H > 0
    gain: NDArray[np.float32]
    if params.max_delta_step or bounds is not None:
        w = node_weights(sums, params, bounds or UNBOUNDED)
        twice_g = np.float32(2) * G.astype(np.float32)
        gain = -(twice_g * w + (H.astype(np.float32) + reg_lambda) * np.square(w))
    else:
        denominator = np.where(present, H + np.float64(reg_lambda), 1.0).astype(np.float32)
        gain = np.square(_shrunk(G, params)).astype(np.float32) / denominator
    return np.where(present, gain, np.float32(0))


def _shrunk(G: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """G, nearer to zero by alpha but not beyond it: ``ThresholdL1``."""
    if not params.reg_alpha:
        return G
    alpha = np.float64(np.float32(params.reg_alpha))
    return np.where(alpha < G, G - alpha, np.where(-alpha > G, G + alpha, 0.0))
