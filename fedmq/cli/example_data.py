"""Wisconsin breast cancer (scikit-learn's copy), its columns split among an example's parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError

__all__ = ["ExampleData", "breast_cancer"]


@dataclass(frozen=True, slots=True, eq=False)
class ExampleData:
    """569 people: ``columns`` by party, float64 (rows, features), and their ``label`` 0 or 1.

    ``names`` by party; ``test`` bool (rows,) marks a fifth of the people to keep out of training.
    """

    ids: tuple[str, ...]
    label: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]
    names: dict[str, tuple[str, ...]]
    test: NDArray[np.bool_]


def breast_cancer(parties: Sequence[str]) -> ExampleData:
    """The data, its 30 columns split evenly; ConfigError if scikit-learn is missing."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise ConfigError("scikit-learn is not installed; run: pip install 'fedmq[demo]'") from None
    data = load_breast_cancer()
    shares = np.array_split(np.arange(data.data.shape[1]), len(parties))
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    test = np.random.Generator(np.random.Philox(0)).random(len(data.target)) < 0.2
    return ExampleData(
        tuple(f"P{row:04d}" for row in range(len(data.target))),
        data.target,
        {party: data.data[:, share] for party, share in zip(parties, shares, strict=True)},
        {
            party: tuple(names[column] for column in share)
            for party, share in zip(parties, shares, strict=True)
        },
        test,
    )
