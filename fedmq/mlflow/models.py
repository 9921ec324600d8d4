"""A party's model as one of MLflow's: it names the model, and its daemon scores.

No tree and no column is in it: what MLflow keeps is the model's name, the party's file and the hash
of the party's share.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import mlflow
import pandas
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.types import ColSpec, DataType, Schema
from pydantic import BaseModel, ConfigDict

from fedmq.errors import DataError, UnknownModel
from fedmq.party.card.signed_card import share_hash
from fedmq.workbench.model import PartyModel, PartyModels
from fedmq.workbench.own_shares import OwnShares

__all__ = ["first_line", "load_model", "log_model", "save_model"]

_FLAVOUR = "fedmq"
_FILE = "model.json"
_ID = "id"


class _Named(BaseModel):
    """The model that is meant, in the file that MLflow keeps of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    party: str
    federation: str
    party_file: str
    model: str
    share: str
    """SHA-256 of the party's share, hexadecimal."""


def log_model(
    model: PartyModel,
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    run_id: str | None = None,
    step: int = 0,
) -> ModelInfo:
    """Log ``model`` under the run ``run_id``, by default the active one or a new one.

    ``registered_model_name``: the name of which it becomes a new version in the registry.
    ``step``: the metrics of the run at this step are the model's.
    """
    found: ModelInfo = Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        run_id=run_id,
        registered_model_name=registered_model_name,
        step=step,
        model=model,
    )
    return found


def save_model(model: PartyModel, path: str | Path, mlflow_model: Model | None = None) -> None:
    """Write ``model`` into the new folder ``path``, in MLflow's form."""
    shares = OwnShares(model.party_file)
    named = _Named(
        party=shares.party,
        federation=shares.federation.name,
        party_file=str(model.party_file.resolve()),
        model=model.name,
        share=share_hash(shares.checked(model.name)),
    )
    folder = Path(path)
    folder.mkdir()
    (folder / _FILE).write_text(named.model_dump_json(), encoding="utf-8")
    version = metadata.version("fedmq")
    (folder / "requirements.txt").write_text(f"fedmq[mlflow]=={version}\n", encoding="utf-8")
    kept = Model() if mlflow_model is None else mlflow_model
    kept.signature = ModelSignature(inputs=Schema([ColSpec(DataType.string, _ID)]))
    kept.add_flavor(_FLAVOUR, fedmq_version=version, data=_FILE)
    mlflow.pyfunc.add_to_model(kept, loader_module=__name__, data=_FILE)
    kept.save(folder / "MLmodel")


def load_model(uri: str, party: str | Path | None = None) -> PartyModel:
    """The model at ``uri``, such as ``models:/credit@champion``; ``activate()`` serves it.

    ``party``: the party's file, where it no longer lies where it lay.

    Raises:
        DataError: there is no such model of fedmq, or the party has it no more.
    """
    try:
        folder = Path(mlflow.artifacts.download_artifacts(uri))
        flavour = Model.load(folder).flavors.get(_FLAVOUR)
    except (MlflowException, OSError) as error:
        raise DataError(f"{uri}: {first_line(error)}") from None
    if flavour is None:
        raise DataError(f"{uri}: is no model that fedmq.mlflow has logged")
    return _model_in(folder / flavour["data"], uri, party)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> _Scorer:
    """What ``mlflow.pyfunc.load_model`` gives; ``model_config={"party": FILE}`` as `load_model`."""
    return _Scorer(_model_in(Path(path), path, (model_config or {}).get("party")))


class _Scorer:
    """Scores ids, as MLflow asks: a data frame with a row for each."""

    def __init__(self, model: PartyModel) -> None:
        self._model = model

    def predict(self, ids: Any, params: dict[str, Any] | None = None) -> pandas.DataFrame:
        """The scores of ``ids``, a table with one column or a column; missing where there is none.

        ``params``: as of `PartyModel.predict`.
        """
        found = self._model.predict(ids, **(params or {}))
        several = found.ndim > 1
        names = [f"score_{number}" for number in range(found.shape[1])] if several else ["score"]
        index = ids.index if isinstance(ids, pandas.DataFrame | pandas.Series) else None
        return pandas.DataFrame(found.reshape(len(found), -1), index, names)


def _model_in(path: Path, where: str, party: str | Path | None) -> PartyModel:
    """The model that the file ``path`` names, if the party's share is the one that was logged."""
    try:
        named = _Named.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        raise DataError(f"{where}: is no model that fedmq.mlflow has logged") from None
    file = Path(party or named.party_file)
    if not file.exists():
        raise DataError(
            f"{where}: there is no file {file} of {named.party} here; name it: load_model(uri, "
            'party=FILE), or model_config={"party": FILE}'
        )
    shares = OwnShares(file)
    if (shares.party, shares.federation.name) != (named.party, named.federation):
        raise DataError(
            f"{where}: is a model of {named.party} in {named.federation}, not of {shares.party} in "
            f"{shares.federation.name}"
        )
    try:
        model = PartyModels(file)[named.model]
    except UnknownModel as error:
        raise UnknownModel(f"{where}: {error}") from None
    if share_hash(shares.checked(named.model)) != named.share:
        raise DataError(
            f"{where}: {named.party} has another model {named.model} now than the one that was "
            "logged"
        )
    return model


def first_line(error: Exception) -> str:
    """What ``error`` says, without what it says below: statements of SQL and pages of servers."""
    return (str(error).splitlines() or [type(error).__name__])[0]
