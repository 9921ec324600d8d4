"""The names of XGBoost's parameters, where fedmq's do not have them all.

Those that fedmq has, too, are the fields of ``TrainParams`` and their aliases.
"""

from __future__ import annotations

__all__ = ["XGBOOST_PARAMETERS"]

XGBOOST_PARAMETERS = frozenset(
    (
        "base_margin",
        "callbacks",
        "device",
        "disable_default_eval_metric",
        "enable_categorical",
        "expectile_alpha",
        "feature_selector",
        "feature_types",
        "feature_weights",
        "importance_type",
        "lambdarank_num_pair_per_sample",
        "lambdarank_pair_method",
        "missing",
        "n_jobs",
        "nthread",
        "num_class",
        "num_target",
        "process_type",
        "refresh_leaf",
        "sampling_method",
        "tree_method",
        "updater",
        "validate_parameters",
        "verbosity",
    )
)
