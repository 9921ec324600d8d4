"""A selector of columns for scikit-learn: those that a look at all parties' columns selects."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedmq.boosting.screened_columns import chosen_rows
from fedmq.boosting.screened_label import LabelType, ScreenedLabel
from fedmq.errors import ConfigError
from fedmq.estimators.columns import TrainedColumns, column_names, is_per_party
from fedmq.evaluation.screening import Screen
from fedmq.messages.screen import MOST_CLASSES
from fedmq.party.configuration.job import ScreenJob
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.party.data.screening import label_check
from fedmq.simulation.screen import screened_in_the_clear
from fedmq.simulation.tables import ACTIVE

__all__ = ["ScreenSelector"]


class ScreenSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Selects the columns that tell the label best, as ``fedmq.screen`` and its ``select`` do.

    For a pipeline before a ``FederatedClassifier`` or ``FederatedRegressor``. All parties are in
    this process, so nothing is encrypted; columns of other parties have the bins that daemons
    would show.

    Args:
        parties: the columns of each other party by its name, as a ``FederatedClassifier`` takes
            them; left out, all columns are the active party's, or tables come by party.
        k: so many columns at most, of all parties together, the strongest first; None: all.
        iv: information value at least, of a label of two classes.
        p: p-value at most, of chi-square or F.
        correlation: of two columns of a party that are more alike than this, the stronger one.
        missing: missing share at most.
        label_type: "binary", "classes" or "number"; left out, by scikit-learn's ``type_of_target``,
            which takes whole numbers for classes.
        bins: into so many a column of numbers is cut at most, at its quantiles.
        smallest_group: bins of fewer rows of another party are joined.
        most_rows: so many rows are looked at, drawn by ``seed``; None: all.
        seed: which rows are drawn.

    After ``fit``, ``screen_`` is the ``fedmq.Screen``.
    """

    screen_: Screen

    def __init__(
        self,
        *,
        parties: Any = None,
        k: int | None = 20,
        iv: float | None = None,
        p: float | None = None,
        correlation: float | None = None,
        missing: float | None = None,
        label_type: LabelType | None = None,
        bins: int = 10,
        smallest_group: int = 50,
        most_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        self.parties = parties
        self.k = k
        self.iv = iv
        self.p = p
        self.correlation = correlation
        self.missing = missing
        self.label_type = label_type
        self.bins = bins
        self.smallest_group = smallest_group
        self.most_rows = most_rows
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Look at the columns of ``X``, (rows, columns), beside ``y`` (rows,).

        ``X`` is an array or a data frame, whose columns ``parties`` deals out, or a dict of a table
        per party, the active party's being "active".

        Raises:
            ConfigError, DataError, ValueError: a parameter, table or label is wrong.
        """
        X, y = self._checked(X, y)
        columns, values, matched = TrainedColumns.of(X, self.parties, {"y": y})
        kind, label = _label(np.asarray(matched.beside["y"]), self.label_type)
        job = self._job(kind)
        if any(len(held) != len(label) for held in values.values()):
            raise ValueError(f"X and y have different numbers of rows: y has {len(label)}")
        taken = chosen_rows(len(label), self.most_rows or len(label), self.seed)
        found = screened_in_the_clear(
            {
                party: PartyFeatures(values[party][taken], names, columns.category_columns[party])
                for party, names in columns.features.items()
            },
            ScreenedLabel.of(label_check(kind)(label, "y")[taken], kind, "y"),
            len(label),
            job,
            self.smallest_group,
        )
        self.screen_ = Screen(found)
        self._columns = columns
        self._names = {party: tuple(_titles(columns, party)) for party in columns.features}
        self._chosen = {
            party: {
                one["name"] for one in told["columns"] if one["column"] in found["selected"][party]
            }
            for party, told in found["parties"].items()
        }
        return self

    def transform(self, X: Any) -> Any:
        """The selected columns of ``X``, in the form in which it is given.

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        check_is_fitted(self)
        if is_per_party(X):
            self._warn_if_none()
            return {party: _taken(X[party], self._support_of(party)) for party in self._names}
        if column_names(X) is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            self._warn_if_none()
            return _taken(X, self.get_support())
        return super().transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the selected columns; ``party.column`` of tables that come by party."""
        check_is_fitted(self)
        if self._columns.dealt is not None:
            return super().get_feature_names_out(input_features)  # type: ignore[no-any-return]
        names = [
            name if party == ACTIVE else f"{party}.{name}"
            for party, titles in self._names.items()
            for name, held in zip(titles, self._support_of(party), strict=True)
            if held
        ]
        return np.array(names, dtype=object)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        dealt = self._columns.dealt
        if dealt is None:
            return np.concatenate([self._support_of(party) for party in self._names])
        mask = np.zeros(len(dealt.names), np.bool_)
        for party, places in dealt.places.items():
            mask[list(places)] = self._support_of(party)
        return mask

    def _support_of(self, party: str) -> NDArray[np.bool_]:
        """Which of a party's columns are selected: bool (columns,)."""
        return np.array([name in self._chosen[party] for name in self._names[party]], np.bool_)

    def _warn_if_none(self) -> None:
        if not self.get_support().any():
            warnings.warn("No column is selected", UserWarning, stacklevel=3)

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Check both by scikit-learn's rules, and remember the columns of ``X``."""
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: columns are selected by how "
                "well they tell it"
            )
        if is_per_party(X):
            return X, y
        if column_names(X) is not None:
            validate_data(self, X, reset=True, skip_check_array=True)
            return X, y
        X = validate_data(self, X, ensure_all_finite="allow-nan", ensure_min_samples=2)
        return X, column_or_1d(y, warn=True)

    def _job(self, kind: LabelType) -> ScreenJob:
        rule = {
            "top": self.k,
            "iv": self.iv,
            "p": self.p,
            "missing": self.missing,
            "correlation": self.correlation,
        }
        select = {name: value for name, value in rule.items() if value is not None}
        keys: dict[str, Any] = {"label_type": kind, "bins": self.bins, "seed": self.seed}
        return ScreenJob.of({"name": "screen", "select": select} | keys, type(self).__name__)


def _label(
    y: NDArray[Any], kind: Literal["binary", "classes", "number"] | None
) -> tuple[LabelType, NDArray[np.float64]]:
    """What ``y`` is, and its numbers: those of classes are their places in order."""
    if kind is None:
        target = type_of_target(y, input_name="y", raise_unknown=True)
        kind = "number" if target.startswith("continuous") else "classes"
        if kind == "classes":
            kind = "binary" if len(np.unique(y)) <= 2 else "classes"
    if kind == "number":
        return kind, np.asarray(y, np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) > MOST_CLASSES:
        raise ConfigError(
            f"label_type: y has {len(classes)} classes, and {MOST_CLASSES} is the most; if it is a "
            'number, say label_type="number"'
        )
    check_classification_targets(y)
    return kind, codes.reshape(y.shape).astype(np.float64)


def _titles(columns: TrainedColumns, party: str) -> list[str]:
    """The party's columns as a screen names them, in the order of its table."""
    features = columns.features[party]
    of_column = columns.category_columns[party]
    column_of = {name: column for column, held in of_column.items() for name in held}
    titles = list(dict.fromkeys(column_of.get(name, name) for name in features))
    if columns.dealt is None:
        return titles
    held = {*titles}
    named = columns.dealt.features(party)
    return [name if name in held else f"{name}.days" for name in named]


def _taken(table: Any, support: NDArray[np.bool_]) -> Any:
    """The columns of an array or a data frame that are selected."""
    names = column_names(table)
    if names is None:
        return table[:, support]
    labels = list(getattr(table, "column_names", None) or table.columns)
    chosen = [label for label, held in zip(labels, support, strict=True) if held]
    return table.select(chosen) if hasattr(table, "select") else table[chosen]
