"""A table dealt out to parties with training parameters, all drawn from one seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.xgboost_comparison.export import joined_constraints
from fedmq.boosting.xgboost_comparison.parity import (
    compare,
    installed_arithmetic,
    joined_bins,
    labelled,
    train_reference,
)
from tests.differential.afterwards import assert_refreshed_alike, assert_scored_alike
from tests.differential.labels import drawn_labels, drawn_margins, drawn_rows
from tests.differential.options import (
    drawn_categories,
    drawn_dart,
    drawn_later,
    drawn_options,
    drawn_signs,
    drawn_together,
)

__all__ = ["Case"]

WEAK = {"key_bits": 512, "allow_weak_keys": True}
FEW = 4  # values of a column
ENCRYPTED = ("paillier", "ou", "lattice")
HIDING = ("lattice", "ou", "lattice", "paillier")
REFUSED = ("max_leaves", "multi_strategy")
"""Options with which hidden sums are refused by name."""
MORE_TREES = ("num_parallel_tree", *drawn_dart(np.random.default_rng(0)))
"""What takes more than the trees of one round."""
WITHOUT_FILTER = ("reg_alpha", "max_delta_step", "reg_lambda")
"""Options with which all candidates go the dear way, or may."""


@dataclass(frozen=True)
class Case:
    """``hands``: the columns of each party, the active party's first."""

    seed: int
    X: NDArray[np.float32]
    y: NDArray[np.float32]
    hands: Sequence[NDArray[np.integer[Any]]]
    options: dict[str, Any]
    signs: Sequence[int]
    """Of the columns, in the order of ``hands``."""
    together: Sequence[Sequence[int]]
    """The columns of each interaction constraint, numbered in the same order."""
    engine: str
    rows: Mapping[str, NDArray[np.float32]]
    """Weights and first margins, if there are any."""
    categories: Sequence[int] = ()
    """The columns that hold categories, numbered as those of ``X``."""
    hides: bool = False
    """Whether sums are hidden."""
    covert: int = 1
    """Of how many copies of circuits."""
    person: NDArray[np.intp] | None = None
    """Of each row, where people have several."""

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """Few values, so that candidates tie; missing cells; a tenth is encrypted. In a fifth
        passive parties lack people, and in a fifth people have several rows, which an engine that
        can may hide.

        A quarter hides sums, with what it may ask for: one round, small trees and fewer values,
        as circuits are dear. So do tables on a lattice that have few values anyway. Half of that
        quarter garbles two copies of circuits, unless they take constraints; these sort no
        categories, so other parties' columns have categories there where these are few.
        """
        random = np.random.default_rng(seed)
        rows, columns = int(random.integers(20, 200)), int(random.integers(2, 9))
        values = int(random.choice([2, 4, 12, 400]))
        X = random.integers(0, values, (rows, columns)).astype(np.float32)
        signal = X @ random.normal(size=columns) / values
        noise = random.normal(size=rows) * random.choice([0.1, 1.0])
        y, options = drawn_labels(random, signal + noise, drawn_options(random))
        y, options = drawn_margins(np.random.default_rng([seed, 4]), y, options)
        X[random.random(X.shape) < random.choice([0.0, 0.1, 0.4])] = np.nan
        parties = int(random.integers(2, 5))
        ends = np.sort(random.integers(0, columns + 1, parties - 1))
        hands = np.split(random.permutation(columns), ends)
        if seed % 5 == 2:
            _lack_people(X, hands[1:], np.random.default_rng([seed, 3]))
        person = None
        if seed % 5 == 4:
            person = _repeat_people(X, hands[1:], np.random.default_rng([seed, 5]))
        encrypted = seed % 10 == 0 or seed % 20 == 4
        engine = ENCRYPTED[seed // 10 % 3] if encrypted else "plain"
        signs = drawn_signs(random, columns)
        if "multi_strategy" in options:  # of vector leaves XGBoost has no constraints
            signs = [0] * columns
            engine = "ou" if engine == "lattice" else engine
        later = np.random.default_rng([seed, 1])  # what seeds have drawn before stays
        together = [] if "multi_strategy" in options else drawn_together(later, columns)
        vectors = "multi_strategy" in options
        categories, by_sets = drawn_categories(np.random.default_rng([seed, 2]), columns, vectors)
        if values > 12:
            categories = []
        for place, column in enumerate(np.concatenate(hands).tolist()):
            if column in categories:
                signs[place] = 0
        options |= {"xgboost_arithmetic": installed_arithmetic()}
        options |= drawn_later(later, vectors=vectors) | by_sets
        by_gain = options.get("grow_policy") == "lossguide" and "max_leaves" in options
        refused = by_gain or categories or "max_cat_to_onehot" in options
        hides = engine == "lattice" and not refused and bool(np.nanmax(X, initial=0) < FEW)
        covert = 2 if seed % 16 in (7, 11) and not any(signs) and not together else 1
        if seed % 4 == 3:
            hides = True
            engine = HIDING[seed // 4 % 4]
            left_out = {*REFUSED, *MORE_TREES}
            options = {name: value for name, value in options.items() if name not in left_out}
            options |= {"num_boost_round": 1, "max_depth": min(options["max_depth"] or 3, 3)}
            filtered = not any(signs) and not together and not {*WITHOUT_FILTER} & {*options}
            X %= 3 * FEW if filtered else FEW
            fewest = options.get("max_cat_to_onehot", np.inf)
            categories = [
                column
                for column in categories
                if covert == 1
                or column in hands[0]
                or len(np.unique(_present(X[:, column]))) < fewest
            ]
        return cls(
            seed,
            X,
            y,
            hands,
            options,
            signs,
            together,
            engine,
            drawn_rows(random, y, options),
            categories,
            hides,
            covert,
            person,
        )

    @property
    def params(self) -> fedmq.TrainParams:
        """The options, and the signs by the names of columns."""
        parties = ["", *(f"passive{number}." for number in range(len(self.hands) - 1))]
        names = [
            f"{party}f{place}"
            for party, hand in zip(parties, self.hands, strict=True)
            for place in range(len(hand))
        ]
        signs = {name: sign for name, sign in zip(names, self.signs, strict=True) if sign}
        together = [[names[column] for column in columns] for columns in self.together]
        return fedmq.TrainParams(
            **self.options, monotone_constraints=signs, interaction_constraints=together
        )

    @property
    def engine_options(self) -> dict[str, Any] | None:
        """Short keys, and whether sums are hidden."""
        weak = WEAK if self.engine in ("paillier", "ou") else {}
        hiding = {"sums": "hidden", "covert": self.covert} if self.hides else {}
        return {**weak, **hiding} or None

    @property
    def hides_people(self) -> bool:
        """Whether other parties do not learn how many rows a person has."""
        return self.person is not None and self.engine == "lattice"

    @property
    def tables(self) -> dict[str, Any]:
        """What each party holds, the active party first; frames where there are categories.

        With an index where people have several rows: of each, other parties hold one.
        """
        parties = ("active", *(f"passive{number}" for number in range(len(self.hands) - 1)))
        held = {party: self._table(hand) for party, hand in zip(parties, self.hands, strict=True)}
        if self.person is None:
            return held
        ids = pd.Index([f"person {number}" for number in self.person], name="id")
        indexed = {party: _frame(table).set_axis(ids) for party, table in held.items()}
        return {
            party: table if party == "active" else table[~ids.duplicated()].sort_index()
            for party, table in indexed.items()
        }

    def _table(self, hand: NDArray[np.integer[Any]]) -> Any:
        if not set(hand.tolist()) & set(self.categories):
            return self.X[:, hand]
        return pd.DataFrame(
            {
                f"f{place}": _words(self.X[:, column])
                if column in self.categories
                else self.X[:, column]
                for place, column in enumerate(hand.tolist())
            }
        )

    def train(self) -> fedmq.SimulatedModel:
        passive = self.tables
        return fedmq.simulate(
            active=passive.pop("active"),
            label=self.y,
            passive=passive,
            params=self.params,
            engine=self.engine,
            engine_options=self.engine_options,
            workers=1,
            duplicates="hidden" if self.hides_people else "each",
            **self.rows,
        )

    def difference(self) -> str | None:
        """The first difference from XGBoost's model on the joined table, in words.

        It starts from XGBoost's base score, as a booster it predicts the same, it scores as the
        reference does, and its leaves are weighed anew as XGBoost's.
        """
        params, model, passive = self.params, self.train(), self.tables
        given = {"active": passive.pop("active"), "passive": passive}
        values, exported = model.joined_values(**given), model.to_xgboost()
        types = exported.feature_types
        bins = joined_bins(
            values,
            np.ones(len(values), np.bool_),
            params.max_bin,
            types,
            person=self.person if self.hides_people else None,
            own=len(self.hands[0]),
        )
        constraints = joined_constraints(params, model.columns)
        reference = train_reference(bins, self.y, params, **self.rows, constraints=constraints)
        parity = compare(reference, model.joined_trees(), bins)
        if parity.first_difference is not None:
            return parity.first_difference
        try:
            theirs = _base_score(reference)
            ours = np.atleast_1d(model.share.base_score)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg="base score")
            margins = model.predict(**given, output_margin=True)
            data = labelled(values, None, types=types)
            data.feature_names = exported.feature_names
            # The C library's logarithm of a base score is not always the nearest float32.
            theirs = exported.predict(data, output_margin=True)
            np.testing.assert_allclose(theirs, margins, rtol=1e-6, atol=1e-6, err_msg="exported")
            random = np.random.default_rng([self.seed, 6])
            assert_scored_alike(random, model, given, reference, bins)
            assert_refreshed_alike(random, model, given, self.y, self.rows)
        except AssertionError as error:
            return " ".join(str(error).split())
        return None

    def in_words(self) -> str:
        """What to run again when a case fails."""
        hands = [len(hand) for hand in self.hands]
        engine = f"{self.engine} {self.engine_options or ''}"
        what = f"{self.X.shape}, hands {hands}, {engine}, {self.options}"
        asked = f"signs {list(self.signs)}, together {list(self.together)}"
        asked += f", categories {list(self.categories)}"
        people = "" if self.person is None else f", {self.person.max() + 1} people"
        return f"seed {self.seed}: {what}{people}, {list(self.rows)}, {asked}"


def _lack_people(
    X: NDArray[np.float32],
    hands: Sequence[NDArray[np.integer[Any]]],
    random: np.random.Generator,
) -> None:
    """Leave out the rows of people whom a passive party lacks, as in a left join."""
    for hand in hands:
        X[np.ix_(random.random(len(X)) < random.choice([0.2, 0.6]), hand)] = np.nan


def _repeat_people(
    X: NDArray[np.float32],
    hands: Sequence[NDArray[np.integer[Any]]],
    random: np.random.Generator,
) -> NDArray[np.intp]:
    """The person of each row; the rows of one are alike in the columns of the other parties."""
    person = random.integers(0, random.integers(2, len(X)), len(X)).astype(np.intp)
    _, first, person = np.unique(person, return_index=True, return_inverse=True)
    for hand in hands:
        X[:, hand] = X[np.ix_(first[person], hand)]
    return person


def _frame(table: Any) -> pd.DataFrame:
    made = pd.DataFrame(table)
    return made.set_axis([f"f{place}" for place in range(made.shape[1])], axis=1)


def _present(column: NDArray[np.float32]) -> NDArray[np.float32]:
    return column[~np.isnan(column)]


def _words(column: NDArray[np.float32]) -> list[str | None]:
    return [None if np.isnan(code) else f"c{int(code):02d}" for code in column.tolist()]


def _base_score(booster: Any) -> list[float]:
    model = json.loads(booster.save_raw("json"))["learner"]["learner_model_param"]
    return json.loads(model["base_score"])
