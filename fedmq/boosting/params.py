"""The training parameters, under the names and aliases that XGBoost gives them."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from importlib import metadata
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.registry import OBJECTIVES, REFUSED, REFUSED_METRICS
from fedmq.boosting.objectives.survival import AftDistribution
from fedmq.errors import ConfigError

__all__ = [
    "ALIASES",
    "DEEPEST",
    "NEWEST",
    "OLDEST",
    "Arithmetic",
    "StoredParams",
    "TrainParams",
    "arithmetic_of",
    "as_stored",
    "default_arithmetic",
]

Arithmetic = Literal["3.2", "3.4"]
"""Releases of XGBoost that compute alike, named by the first one, as far as compared.

XGBoost 3.4 takes gains from rounded weights, leaves ``min_child_weight`` to splits alone, smooths
the absolute and the quantile error, and draws DART's trees otherwise. A model equals that of one of
them, so its parameters name it.
"""

OLDEST: Arithmetic = "3.2"
NEWEST: Arithmetic = "3.4"

_PACKAGES = ("xgboost", "xgboost-cpu")


def arithmetic_of(version: str) -> Arithmetic:
    """The arithmetic of an XGBoost of this ``version``, as in ``"3.4.1"``."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return NEWEST if (major, minor) >= (3, 4) else OLDEST


@functools.cache
def default_arithmetic() -> Arithmetic:
    """The arithmetic of the installed XGBoost, which models are compared with; else the newest.

    Newer releases of XGBoost need Python 3.12. A default that the installed XGBoost does not
    compute could not be checked.
    """
    for package in _PACKAGES:
        try:
            return arithmetic_of(metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
    return NEWEST


def as_stored(params: Any) -> Any:
    """``params`` from a file; a file without an arithmetic is of 3.2."""
    return {"xgboost_arithmetic": OLDEST, **params} if isinstance(params, Mapping) else params


Sign = Literal[-1, 0, 1]

ALIASES: Mapping[str, str] = {
    "alpha": "reg_alpha",
    "lambda": "reg_lambda",
    "learning_rate": "eta",
    "min_split_loss": "gamma",
    "n_estimators": "num_boost_round",
    "random_state": "seed",
}
"""XGBoost's other names for a parameter, each accepted wherever the parameter is."""

WITHOUT_EFFECT: Mapping[str, tuple[tuple[str | bool, ...], str]] = {
    "device": (("cpu",), "fedmq computes on processors alone"),
    "enable_categorical": ((), ""),  # columns of words are categories with it or not
    "lambdarank_pair_method": (("topk",), "fedmq takes no pairs by lot"),
    "lambdarank_unbiased": ((False,), "fedmq keeps no positions of clicks"),
    "n_jobs": ((), ""),
    "nthread": ((), ""),
    "process_type": (
        ("default",),
        'a job with refresh = "MODEL" updates leaves, and in Python SimulatedModel.refreshed',
    ),
    "sampling_method": (("uniform",), "of several ways to draw rows fedmq has subsample and goss"),
    "tree_method": (("auto", "hist"), "fedmq grows the trees of tree_method = 'hist'"),
    "validate_parameters": ((), ""),
    "verbosity": ((), ""),
}
"""XGBoost's parameters that are accepted because they change no model.

By name the only values accepted (any where none is named), and why no other one is.
"""

_ALPHAS: Mapping[str, Literal["quantile", "expectile"]] = {
    "quantile_alpha": "quantile",
    "expectile_alpha": "expectile",
}
"""What objectives and metrics learn at one or several of such shares."""

OutputKind = Literal["class", "target", "quantile", "expectile", "label"]
"""What the margins of a row are of."""

_OF_DART = ("rate_drop", "one_drop", "skip_drop", "sample_type", "normalize_type")

_DEFAULT_OBJECTIVE = "binary:logistic"

MOST_CONSTRAINTS: Final = 63
"""The most interaction constraints: each is a bit of a column's uint64, the last bit is taken."""

DEEPEST = 52
"""The most levels of a tree: node numbers double from level to level."""


def _known_objective(name: str) -> str:
    if name in REFUSED:
        raise PydanticCustomError("refused", "{why}", {"why": REFUSED[name]})
    if name not in OBJECTIVES:
        *names, last = map(repr, OBJECTIVES)
        expected = f"{', '.join(names)} or {last}"
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )
    return name


_LARGEST = float(np.finfo(np.float32).max)


_Score = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
_Quantile = Annotated[float, Field(ge=0, le=1)]


class TrainParams(BaseModel):
    """Parameters of one training; frozen.

    Real parameters enter the arithmetic as float32, as they do in XGBoost. ``eval_metric`` may be
    given as one name; left out, it is XGBoost's default for the objective.
    ``goss`` is LightGBM's gradient-based one-side sampling: a tree grows from the ``top_rate`` of
    the rows with the largest gradients, and ``other_rate`` of the rows at random from the rest.
    ``gradient_bits`` rounds g and h at random to so many bits, the sign of g included, as
    LightGBM's quantised training does (Shi et al., NeurIPS 2022); leaves are exact all the same.
    ``early_stopping_rounds`` watches the last metric. ``active_only_trees`` is RL-SecureBoost
    (arXiv 1901.08755): the trees of so many first rounds use the active party's features alone.
    ``num_target``: how many labels a row has; who has the labels need not say.
    ``quantile_alpha``, ``expectile_alpha``: one, or several, each with a margin.
    ``multi_strategy``: a tree for each class, target or quantile, or one tree whose leaves are
    vectors over them.
    ``monotone_constraints`` name columns, those of another party as ``party.column``.
    ``interaction_constraints`` are lists of columns that may stand together on a path; own ones may
    be given by their numbers, ``party.*`` are all columns of a party.
    A column of ``max_cat_to_onehot`` categories or more is split by sets of them, the first
    ``max_cat_threshold`` of which are tried; left out, each category is split from the others.
    A round grows ``num_parallel_tree`` trees from the same gradients, for each margin.
    ``rate_drop`` and the four below it are those of ``booster = "dart"``.
    ``xgboost_arithmetic``: the XGBoost whose model comes out, node by node: 3.2 and 3.3, or 3.4 and
    later. Left out, it is that of the XGBoost that is installed, or the newest if none is. Files
    without it were written when there was 3.2 alone, and are read as `StoredParams`.

    Raises:
        ConfigError: a parameter is unknown or wrong; the text names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    objective: Annotated[str, AfterValidator(_known_objective)] = _DEFAULT_OBJECTIVE
    num_boost_round: Annotated[int, Field(ge=1)] = 10
    num_parallel_tree: Annotated[int, Field(ge=1, le=10_000)] = 1
    booster: Literal["gbtree", "dart"] = "gbtree"
    rate_drop: Annotated[float, Field(ge=0, le=1)] = 0.0
    one_drop: Annotated[bool, Field(strict=False)] = False
    skip_drop: Annotated[float, Field(ge=0, le=1)] = 0.0
    sample_type: Literal["uniform", "weighted"] = "uniform"
    normalize_type: Literal["tree", "forest"] = "tree"
    max_depth: Annotated[int, Field(ge=0, le=16)] = 6
    grow_policy: Literal["depthwise", "lossguide"] = "depthwise"
    max_leaves: Annotated[int, Field(ge=0, lt=2**16)] = 0
    eta: Annotated[float, Field(gt=0, le=1)] = 0.3
    reg_lambda: Annotated[float, Field(ge=0, le=_LARGEST)] = 1.0
    reg_alpha: Annotated[float, Field(ge=0, le=_LARGEST)] = 0.0
    gamma: Annotated[float, Field(ge=0, le=_LARGEST)] = 0.0
    min_child_weight: Annotated[float, Field(ge=0, le=_LARGEST)] = 1.0
    max_delta_step: Annotated[float, Field(ge=0, le=_LARGEST)] = 0.0
    subsample: Annotated[float, Field(gt=0, le=1)] = 1.0
    colsample_bytree: Annotated[float, Field(gt=0, le=1)] = 1.0
    colsample_bylevel: Annotated[float, Field(gt=0, le=1)] = 1.0
    colsample_bynode: Annotated[float, Field(gt=0, le=1)] = 1.0
    goss: bool = False
    top_rate: Annotated[float, Field(ge=0, lt=1)] = 0.2
    other_rate: Annotated[float, Field(gt=0, le=1)] = 0.1
    gradient_bits: Annotated[int, Field(ge=2, le=16)] | None = None
    monotone_constraints: Mapping[str, Sign] = {}
    interaction_constraints: Annotated[
        tuple[Annotated[tuple[str | int, ...], Field(min_length=1)], ...],
        Field(max_length=MOST_CONSTRAINTS),
    ] = ()
    max_bin: Annotated[int, Field(ge=2, le=65535)] = 256
    max_cat_to_onehot: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_cat_threshold: Annotated[int, Field(ge=1, lt=2**31)] = 64
    base_score: _Score | tuple[_Score, ...] | None = None
    num_class: Annotated[int, Field(ge=2, le=1000)] | None = None
    num_target: Annotated[int, Field(ge=2, le=1000)] | None = None
    multi_strategy: Literal["one_output_per_tree", "multi_output_tree"] = "one_output_per_tree"
    scale_pos_weight: Annotated[float, Field(gt=0, le=_LARGEST)] = 1.0
    huber_slope: Annotated[float, Field(gt=0, le=_LARGEST)] = 1.0
    quantile_alpha: _Quantile | tuple[_Quantile, ...] | None = None
    expectile_alpha: _Quantile | tuple[_Quantile, ...] | None = None
    tweedie_variance_power: Annotated[float, Field(gt=1, lt=2)] = 1.5
    aft_loss_distribution: AftDistribution = "normal"
    aft_loss_distribution_scale: Annotated[float, Field(gt=0, le=_LARGEST)] = 1.0
    lambdarank_num_pair_per_sample: Annotated[int, Field(ge=1, lt=2**31)] = 32
    lambdarank_normalization: bool = True
    lambdarank_score_normalization: bool = True
    ndcg_exp_gain: bool = True
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    eval_metric: tuple[str, ...] = ()
    early_stopping_rounds: Annotated[int, Field(ge=1)] | None = None
    active_only_trees: Annotated[int, Field(ge=0)] = 0
    xgboost_arithmetic: Arithmetic = Field(default_factory=default_arithmetic)

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, value: Any, handler: ModelWrapValidatorHandler[TrainParams]) -> Any:
        said = None
        if isinstance(value, Mapping):
            said = {ALIASES.get(key, key) for key in value if value[key] is not None}
            value = _canonical(value)
        try:
            params = handler(value)
        except ValidationError as error:
            raise ConfigError("; ".join(_line(wrong) for wrong in error.errors())) from None
        if said is not None:  # the objective's defaults are not the caller's words
            params.model_fields_set.intersection_update(said)
        _check_objective(params)
        _check_booster(params)
        if params.max_depth == 0 and not 1 < params.max_leaves <= DEEPEST + 1:
            raise ConfigError(
                f"max_depth = 0: without a limit on depth max_leaves is needed, {DEEPEST + 1} at "
                "most"
            )
        _check_categories(params)
        if params.goss and params.subsample < 1:
            raise ConfigError("goss and subsample are two ways to draw rows; leave subsample at 1")
        if params.goss and params.top_rate + params.other_rate > 1:
            raise ConfigError(
                f"top_rate = {params.top_rate} and other_rate = {params.other_rate}: together "
                "they are more than all rows"
            )
        for metric in params.eval_metric:
            why = REFUSED_METRICS.get(metric.partition("@")[0])
            if why is not None:
                raise ConfigError(f"eval_metric = {metric!r}: {why}")
            OBJECTIVES[params.objective].check_metric(metric)
            _check_metric(metric, params)
        return params

    @property
    def outputs(self) -> int:
        """Margins of a row: one for each class, target, quantile or expectile, or one."""
        return self.num_class or self.num_target or len(self._learned_alphas) or 1

    @property
    def quantiles(self) -> tuple[float, ...]:
        """``quantile_alpha`` as a tuple; empty where there is none."""
        return _several(self.quantile_alpha)

    @property
    def expectiles(self) -> tuple[float, ...]:
        """``expectile_alpha`` as a tuple; empty where there is none."""
        return _several(self.expectile_alpha)

    @property
    def _learned_alphas(self) -> tuple[float, ...]:
        """The quantiles or expectiles that have a margin each; not those of a metric alone."""
        own = OBJECTIVES[self.objective].own_parameters
        return next((_several(getattr(self, name)) for name in _ALPHAS if name in own), ())

    @property
    def output_kind(self) -> OutputKind:
        """What a row's margins are of; "label" if there is one."""
        if self.num_class is not None:
            return "class"
        if self.num_target is not None:
            return "target"
        own = OBJECTIVES[self.objective].own_parameters
        learned = (kind for name, kind in _ALPHAS.items() if name in own)
        return next(learned, "label") if self.outputs > 1 else "label"

    @property
    def vector_outputs(self) -> int:
        """Numbers in a leaf: one, or one for each margin where a tree serves all of them."""
        return self.outputs if self.multi_strategy == "multi_output_tree" else 1

    @property
    def trees_per_round(self) -> int:
        """``num_parallel_tree`` trees for each margin of a row, or for all margins together.

        All grow from the same gradients.
        """
        return self.outputs // self.vector_outputs * self.num_parallel_tree

    def output_of(self, tree: int) -> int:
        """The margin to which ``tree`` adds; with vector leaves the first one.

        Trees of a round that add to the same margin are neighbours.
        """
        return tree // self.num_parallel_tree % (self.outputs // self.vector_outputs)

    @property
    def sampled(self) -> float:
        """The expected share of the training rows that a tree draws."""
        return min(1.0, self.top_rate + self.other_rate) if self.goss else self.subsample

    @property
    def leaf_eta(self) -> np.float32:
        """The factor of leaves: parallel trees share ``eta``."""
        return np.float32(self.eta) / np.float32(self.num_parallel_tree)

    @property
    def total_trees(self) -> int:
        """Trees of all rounds without early stopping."""
        return self.num_boost_round * self.trees_per_round

    @property
    def trees_alone(self) -> int:
        """Trees of the first rounds that use the active party's features alone.

        All trees of a round grow from the same margins, so a round is kept whole or not at all.
        """
        return min(self.active_only_trees, self.num_boost_round) * self.trees_per_round

    @property
    def depth_limit(self) -> int:
        """The most splits on a path of a tree."""
        return self.max_depth or self.max_leaves - 1

    @property
    def leaf_limit(self) -> int:
        """The most leaves of a tree; 0 for a tree that grows by levels alone."""
        by_depth = 1 << self.max_depth if self.grow_policy == "lossguide" else 0
        return self.max_leaves or by_depth

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], where: str) -> TrainParams:
        """The parameters in ``mapping``.

        Raises:
            ConfigError: a parameter is unknown or wrong; the text begins with ``where``, a file.
        """
        try:
            return cls.model_validate(dict(mapping))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def with_targets(self, targets: int) -> TrainParams:
        """The parameters for rows with so many labels.

        Raises:
            ConfigError: a parameter does not go with several of them, or says another number.
        """
        if targets == (self.num_target or 1):
            return self
        if self.num_target is not None:
            columns = "one column" if targets == 1 else f"{targets} columns"
            raise ConfigError(f"num_target = {self.num_target}: the label has {columns}")
        return TrainParams.model_validate({**self.model_dump(), "num_target": targets})

    def to_xgboost(self) -> dict[str, Any]:
        """The parameters as ``params`` of ``xgboost.train``, which takes the rounds separately."""
        settings = {
            "tree_method": "hist",
            "objective": self.objective,
            # From 3.4 on XGBoost warns about the name, and accepts the parameters without it.
            "booster": self.booster if self.xgboost_arithmetic == "3.2" else "gbtree",
            **({name: getattr(self, name) for name in _OF_DART} if self.booster == "dart" else {}),
            "num_parallel_tree": self.num_parallel_tree,
            "max_depth": self.max_depth,
            "grow_policy": self.grow_policy,
            "max_leaves": self.max_leaves,
            "eta": self.eta,
            "lambda": self.reg_lambda,
            "alpha": self.reg_alpha,
            "gamma": self.gamma,
            "min_child_weight": self.min_child_weight,
            "max_delta_step": self.max_delta_step,
            "subsample": self.subsample,
            "colsample_bytree": self.colsample_bytree,
            "colsample_bylevel": self.colsample_bylevel,
            "colsample_bynode": self.colsample_bynode,
            "max_bin": self.max_bin,
            "seed": self.seed,
            "eval_metric": list(self.eval_metric),
            **{name: getattr(self, name) for name in OBJECTIVES[self.objective].own_parameters},
        }
        if self.max_cat_to_onehot is not None:
            settings["max_cat_to_onehot"] = self.max_cat_to_onehot
            settings["max_cat_threshold"] = self.max_cat_threshold
        if self.outputs > 1:
            settings["multi_strategy"] = self.multi_strategy
        return settings if self.base_score is None else settings | {"base_score": self.base_score}


StoredParams = Annotated[TrainParams, BeforeValidator(as_stored)]
"""Parameters in fedmq's own files; a file without ``xgboost_arithmetic`` is of 3.2."""


def _several(alpha: float | tuple[float, ...] | None) -> tuple[float, ...]:
    return alpha if isinstance(alpha, tuple) else () if alpha is None else (alpha,)


def _changes_nothing(key: str, value: Any) -> bool:
    """Whether XGBoost would train the same model; ConfigError if fedmq has no other value of it."""
    only, why = WITHOUT_EFFECT[key]
    if only and value not in only:
        raise ConfigError(f"{key} = {value!r}: {why}; leave it out")
    return True


def _canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Aliases replaced by names, numpy numbers by Python's, and ``eval_metric`` by a tuple."""
    named: dict[str, Any] = {}
    for key, value in values.items():
        if key in WITHOUT_EFFECT and _changes_nothing(key, value):
            continue
        name = ALIASES.get(key, key)
        if name in named:
            other = next(given for given in values if ALIASES.get(given, given) == name)
            raise ConfigError(f"{other} and {key} are the same parameter; give one of them")
        named[name] = value.item() if isinstance(value, np.generic) else value
    objective = OBJECTIVES.get(str(named.get("objective", _DEFAULT_OBJECTIVE)))
    if objective is not None:
        named = {**objective.parameter_defaults, **named}
    for name in ("base_score", *_ALPHAS):
        if isinstance(named.get(name), (list, np.ndarray)):
            named[name] = tuple(np.asarray(named[name]).tolist())
    for name in _ALPHAS:
        match named.get(name):
            case (alone,):
                named[name] = alone
    if "interaction_constraints" in named:
        named["interaction_constraints"] = _tuples(named["interaction_constraints"])
    metrics = named.pop("eval_metric", None)
    if isinstance(metrics, str):
        metrics = (metrics,)
    elif isinstance(metrics, list):
        metrics = tuple(metrics)
    if metrics in (None, ()):
        metrics = () if objective is None else _default_metrics(objective, named)
    return {**named, "eval_metric": metrics}


def _tuples(constraints: Any) -> Any:
    """Nested lists as tuples, also from the text in which XGBoost takes them."""
    if isinstance(constraints, str):
        try:
            constraints = json.loads(constraints)
        except ValueError:
            return constraints  # validation refuses it by name
    if not isinstance(constraints, (list, tuple)):
        return constraints
    return tuple(tuple(one) if isinstance(one, list) else one for one in constraints)


def _default_metrics(objective: type[Objective], named: Mapping[str, Any]) -> tuple[str, ...]:
    """The objective's default metrics, which may name parameters; refuse wrong ones by name."""
    fields = TrainParams.model_fields
    own = {name: named.get(name, fields[name].default) for name in objective.own_parameters}
    try:
        return (objective.default_metric.format(**own),)
    except (TypeError, ValueError):
        return ()


def _check_objective(params: TrainParams) -> None:
    objective, score = params.objective, params.base_score
    has_classes = "num_class" in OBJECTIVES[objective].own_parameters
    if has_classes != (params.num_class is not None):
        raise ConfigError(
            f"num_class is missing: how many classes has {objective}?"
            if params.num_class is None
            else f"num_class: {objective} has no classes"
        )
    if params.num_target is not None and not OBJECTIVES[objective].takes_targets:
        raise ConfigError(
            f"num_target = {params.num_target}: {objective} learns one label a row, in XGBoost too"
        )
    for name in ("monotone_constraints", "interaction_constraints"):
        if params.vector_outputs > 1 and getattr(params, name):
            raise ConfigError(
                f"{name}: fedmq has none for trees of vector leaves; leave multi_strategy at "
                "one_output_per_tree"
            )
    if isinstance(score, tuple) and (len(score) != params.outputs or params.outputs == 1):
        raise ConfigError(
            f"base_score has {len(score)} numbers; one per {params.output_kind} is needed"
        )
    if score is not None and not has_classes:
        for one in score if isinstance(score, tuple) else (score,):
            OBJECTIVES[objective].check_base_score(one)
    for name, kind in _ALPHAS.items():
        alphas = _several(getattr(params, name))
        wanted = name in OBJECTIVES[objective].own_parameters or kind in params.eval_metric
        if wanted and not alphas:
            raise ConfigError(f"{name} is missing: which {kind}, from 0 to 1?")
        ascends = kind == "expectile" or params.xgboost_arithmetic != OLDEST
        if ascends and alphas != tuple(sorted(alphas)):
            raise ConfigError(f"{name}: XGBoost takes {kind}s in ascending order")


def _check_metric(metric: str, params: TrainParams) -> None:
    """Raise ConfigError for a metric that XGBoost does not have of several targets or quantiles."""
    kind = params.output_kind
    if kind == "target" and metric in ("auc", "aucpr", "ks"):
        raise ConfigError(f"eval_metric = {metric!r}: it is one of a single label, not of targets")
    for name, of in _ALPHAS.items():
        if kind == of and metric != of:
            raise ConfigError(f"eval_metric = {metric!r}: of several {of}s there is {of} alone")
        if metric == of and kind != of and len(_several(getattr(params, name))) > 1:
            raise ConfigError(
                f"{name}: {params.objective} predicts no {of}s, so the metric takes one"
            )


def _check_categories(params: TrainParams) -> None:
    if params.max_cat_to_onehot is None:
        if params.max_cat_threshold != TrainParams.model_fields["max_cat_threshold"].default:
            raise ConfigError(
                "max_cat_threshold: no column is split by sets of categories; give "
                "max_cat_to_onehot as well"
            )
    elif params.vector_outputs > 1:
        raise ConfigError(
            "max_cat_to_onehot: neither XGBoost nor fedmq splits by sets of categories in trees of "
            "vector leaves; leave multi_strategy at one_output_per_tree"
        )


def _check_booster(params: TrainParams) -> None:
    if params.booster == "dart":
        if params.early_stopping_rounds is not None:
            raise ConfigError(
                "early_stopping_rounds: a later round of dart weighs earlier trees anew, so no "
                "model could be kept as it was; leave it out"
            )
        if params.vector_outputs > 1:
            raise ConfigError("multi_strategy: fedmq has no vector leaves of dart")
        return
    defaults = TrainParams.model_fields
    given = [name for name in _OF_DART if getattr(params, name) != defaults[name].default]
    if given:
        raise ConfigError(f"{given[0]}: is a parameter of booster = 'dart'")


_NOT_YET = frozenset(
    (
        "base_margin",
        "callbacks",
        "disable_default_eval_metric",
        "feature_selector",
        "feature_types",
        "feature_weights",
        "importance_type",
        "missing",
        "num_class",
        "refresh_leaf",
        "updater",
    )
)
"""The names of XGBoost's parameters that fedmq does not have."""


def _line(error: Any) -> str:
    key = str(error["loc"][0]) if error["loc"] else "params"
    if error["type"] != "extra_forbidden":
        return f"{key} = {error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    if key in _NOT_YET:
        return f"{key}: XGBoost has this parameter, fedmq does not yet"
    near = difflib.get_close_matches(key, [*TrainParams.model_fields, *ALIASES], n=1)
    return f"{key}: no such parameter" + (f"; did you mean {near[0]}?" if near else "")
