"""Labels of computations: dashboards and saved traces know them, so they stay."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import fedmq
from fedmq.computation import Bound, Computation, Given
from fedmq.party.sessions.observe import MetricsObserver
from fedmq.party.telemetry.metrics import Counters

LABELS = {
    "AddGroups",
    "AddLeaves",
    "AddProducts",
    "AnswerHop",
    "AnswerQuery",
    "AnswerRows",
    "AddSharedLabel",
    "EncryptSharedLabel",
    "ReadScreenShares",
    "ChooseScreenTransfers",
    "OfferScreenTransfers",
    "ReadScreenTransfers",
    "ChooseScreenLabels",
    "GarbleScreen",
    "EvaluateScreen",
    "AddLabel",
    "AnswerSealedQuery",
    "BinTable",
    "Blind",
    "BlindIds",
    "CheckCopies",
    "ChooseAhead",
    "ChooseCopies",
    "ChooseFactors",
    "ChooseRows",
    "ChooseSeeds",
    "ChosenSeeds",
    "CommitTable",
    "CompareModels",
    "ComparePeople",
    "CountLeft",
    "DartMargins",
    "DecryptProducts",
    "DecryptAnswer",
    "DecryptGroupSums",
    "DecryptLabel",
    "DeriveGradients",
    "DescribeTable",
    "DigestColumns",
    "Descend",
    "DescribeModel",
    "DescribeTree",
    "EncryptColumns",
    "EncryptLabel",
    "EncryptNode",
    "EncryptPeople",
    "EstimateBaseScore",
    "EvaluateGains",
    "EvaluateMore",
    "ExplainRows",
    "GarbleGains",
    "GarbleMore",
    "Given",
    "GrowSeeds",
    "HideDirections",
    "HideGradients",
    "HiddenLevel",
    "GarbleLevel",
    "EvaluateLevel",
    "HideSplits",
    "Intersect",
    "JoinCopies",
    "JoinHints",
    "FindChanges",
    "FindKept",
    "KeepAlignment",
    "ListModels",
    "LoadActiveRows",
    "LoadActiveTable",
    "LoadLabelledColumns",
    "LoadPassiveRows",
    "LoadPassiveShare",
    "LoadPassiveTable",
    "LoadRows",
    "LoadShare",
    "LoadShownColumns",
    "MakeGroupKey",
    "MakeHints",
    "MakeOffer",
    "MakeSealedKey",
    "MaskSums",
    "MergeCells",
    "OfferChanges",
    "OfferCopies",
    "OfferedSeeds",
    "OpenCopies",
    "OpenSealedSums",
    "PartCopies",
    "PerturbRows",
    "PlanLookup",
    "PrepareSealedScores",
    "PunctureSeeds",
    "ReadIdList",
    "ReadIds",
    "ReadMargins",
    "ReadShares",
    "ReadTable",
    "ReadTextColumn",
    "RefreshLeaves",
    "ScoreAnswer",
    "ScoreCandidates",
    "ScoreOwnCandidates",
    "SealAgain",
    "MarkColumns",
    "MaskProducts",
    "MaskReadings",
    "NarrowGradients",
    "ReadPair",
    "SealRows",
    "SeedsOfColumns",
    "SealedParts",
    "SealedScores",
    "SortPoints",
    "SumHidden",
    "SumLeaves",
    "SumOnline",
    "SumPieces",
    "TransformPublic",
    "TurnMasks",
    "VectorsOffGradients",
    "VectorsOffSplits",
    "WalkOn",
    "_Decrypt",
    "_DrawNoise",
    "_Encrypt",
    "_EncryptOne",
    "_MakeKey",
    "_Merge",
    "_ScoreHidden",
    "_ShowCandidates",
    "_Subtract",
    "_SumBins",
    "_SumRows",
}
"""What Prometheus has shown so far. Add new ones; to change one breaks somebody's dashboard."""


def computations() -> Iterator[Any]:
    """All that the package can hand to a pool: its labelled functions, and classes with ``run()``.

    The ``run()`` of such a class takes nothing, and does not wait.
    """
    for module in pkgutil.walk_packages(fedmq.__path__, "fedmq."):
        for _, found in inspect.getmembers(importlib.import_module(module.name)):
            if getattr(found, "__module__", "") == module.name and (
                _is_labelled(found) or _is_a_class_to_run(found)
            ):
                yield found


def _is_labelled(found: Any) -> bool:
    return inspect.isfunction(found) and hasattr(found, "bind")


def _is_a_class_to_run(found: Any) -> bool:
    run = inspect.getattr_static(found, "run", None)
    return (
        inspect.isclass(found)
        and found not in (Bound, Computation)
        and inspect.isfunction(run)
        and not inspect.iscoroutinefunction(run)
        and [*inspect.signature(run).parameters] == ["self"]
    )


def test_every_computation_has_a_label_of_its_own_and_keeps_it() -> None:
    labels = [vars(computation)["label"] for computation in computations()]
    assert sorted(labels) == sorted(LABELS)


@pytest.mark.parametrize("computation", list(computations()), ids=lambda found: found.__name__)
def test_a_label_costs_no_field_and_no_slot(computation: Any) -> None:
    assert "label" not in inspect.signature(computation).parameters
    assert "label" not in vars(computation).get("__slots__", ())


def test_a_computation_that_is_renamed_is_counted_as_before() -> None:
    renamed = type("Renamed", (Given,), {})(7)
    counters = Counters()
    MetricsObserver(counters).worked(renamed.label, 0.1)
    assert list(counters.arithmetic_seconds) == ["Given"]
