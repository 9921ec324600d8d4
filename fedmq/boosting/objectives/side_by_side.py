"""One loss for each of several margins: several targets, or several quantiles of one label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.objectives.objective import BaseScore, FirstMargin, GradientBounds, Objective

__all__ = ["SideBySide"]


@dataclass(frozen=True)
class SideBySide(Objective):
    """Losses of one kind, a part for each margin; margins are float32 (rows, parts).

    Labels are float32 (rows, parts) of ``targets``, one for each part; else (rows,), the same for
    all parts.
    """

    parts: tuple[Objective, ...]
    targets: bool

    def labels(self, values: ArrayLike, where: str) -> NDArray[np.float32]:
        """``values`` as labels: float32 of their shape, (rows,) or (rows, parts).

        Raises:
            DataError: a label does not fit; the text names the target and row, counted from 1.
        """
        given = np.asarray(values)
        if not self.targets:
            return self.parts[0].labels(given, where)
        targets = zip(self.parts, given.T, strict=True)
        return np.stack(
            [
                part.labels(target, f"{where}: target {number}")
                for number, (part, target) in enumerate(targets, start=1)
            ],
            axis=1,
        )

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return self.parts[0]._fits(labels)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """The base score of each part."""
        return tuple(
            float(part.base_score(self._of(labels, place), weight))
            for place, part in enumerate(self.parts)
        )

    def first_margin(self, base_score: BaseScore) -> FirstMargin:
        """A margin for each part: float32 (parts,)."""
        scores = np.broadcast_to(np.asarray(base_score), len(self.parts)).tolist()
        starts = zip(self.parts, scores, strict=True)
        return np.array([part.base_margin(score) for part, score in starts], np.float32)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Margins as predictions: float32 (rows, parts)."""
        return self.parts[0].predictions(margins)

    def evaluated(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Margins as metrics take them: float32 (rows, parts)."""
        return self.parts[0].evaluated(margins)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g and h of each part: float32 (rows, parts, 2)."""
        return np.stack(
            [
                part.gradients(margins[:, place], self._of(labels, place), weight)
                for place, part in enumerate(self.parts)
            ],
            axis=1,
        )

    @property
    def leaf_quantiles(self) -> tuple[float, ...]:
        """Those of all parts, in order."""
        return tuple(alpha for part in self.parts for alpha in part.leaf_quantiles)

    @property
    def ldp_bounds(self) -> GradientBounds | None:
        """Those of each part."""
        return self.parts[0].ldp_bounds

    def _of(self, labels: NDArray[np.float32], place: int) -> NDArray[np.float32]:
        """The labels of one part: float32 (rows,)."""
        return labels if labels.ndim == 1 else np.ascontiguousarray(labels[:, place])
