"""An artifact as a model of MLflow: what `mlflow.pyfunc.load_model` and `mlflow models serve` load.

MLmodel, which `mvpctl push --to mlflow --register` writes, names this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.artifact.errors import needs

if TYPE_CHECKING:
    from mvprune.serving.batching import Predictor


class Model:
    """A model that answers."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The answer to each input, as `mvpctl serve` gives it.

        Args:
            model_input: texts, objects with the fields of the task, or a DataFrame with a column for each field.
            params: there are none.

        Raises:
            DataError: an input lacks a field or has one that there is not.
        """
        if hasattr(model_input, "to_dict"):
            rows: Sequence[Any] = model_input.to_dict(orient="records")
        else:
            rows = [model_input] if isinstance(model_input, str | Mapping) else list(model_input)
        first = self._predictor.fields[0].name
        return self._predictor.predict([{first: row} if isinstance(row, str) else row for row in rows])


def _load_pyfunc(path: str) -> Model:
    """The model in an artifact's folder: in the library without torch, where that can answer with it.

    Raises:
        ArtifactError: the artifact is not valid.
        MissingExtra: only torch computes it, and that is not installed.
    """
    from mvprune.infer import Unsupported
    from mvprune.serving.engine import native_engine

    try:
        return Model(native_engine(Path(path), threads=None, activations=None, hypotheses=None).predictor)
    except Unsupported as error:
        with needs(f"this model ({error})", "worker"):
            from mvprune_workers.commands.torch_engine import torch_engine

            engine = torch_engine(
                Path(path), base=None, runtime="sparse", threads=None, activations=None, hypotheses=None
            )
        return Model(engine.predictor)
