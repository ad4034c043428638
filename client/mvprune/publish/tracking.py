"""An artifact as a run of MLflow: submitted options as parameters, metrics, curves, and the files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvprune.artifact.card import CARD_FILE, method_name
from mvprune.artifact.errors import MissingExtra
from mvprune.artifact.history import History, read_history
from mvprune.artifact.manifest import Manifest, verify
from mvprune.common.exceptions import MlflowUnreachable, PushFailed
from mvprune.publish.registry import DIGEST_TAG, FOLDER, register

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_NOT_ALLOWED = re.compile(r"[^\w\-. /]")  # in MLflow's names
_MAX_NAME = 250
_MAX_PARAM = 6000
_BATCH = 1000  # metrics a request; MLflow takes no more
_PARAMS = 100  # a request
_FINAL = ("density", "target_density", "kept_weights", "prunable_weights", "dense_bytes", "sparse_bytes")


@dataclass(frozen=True)
class PushedRun:
    """A run of MLflow.

    Attributes:
        run_id: MLflow's id of the run.
        experiment: the experiment's name.
        experiment_id: MLflow's id of the experiment.
        digest: the artifact's digest.
        new: False if the artifact was pushed before; nothing is then sent.
        model: the registered model, "" for none.
        version: of the registered model.
    """

    run_id: str
    experiment: str
    experiment_id: str
    digest: str
    new: bool
    model: str = ""
    version: str = ""


def push_to_mlflow(
    artifact: str | Path,
    *,
    tracking_uri: str,
    experiment: str = "mvprune",
    job: str = "",
    labels: Mapping[str, str] | None = None,
    model: str = "",
    alias: str = "candidate",
    gates: str = "",
) -> PushedRun:
    """Creates an MLflow run for an artifact. Pushing it again returns the same run, and resumes an interrupted push.

    The run has the submitted options as parameters, the metrics and counts of the manifest, the curves of the history
    as ``history/PHASE/…`` over the steps, the digest, job and labels as tags, the model card as its description, and
    all files under ``artifact/``.

    Args:
        artifact: the artifact's folder; it is verified.
        tracking_uri: MLflow's address, such as http://127.0.0.1:5000. MLFLOW_TRACKING_USERNAME, _PASSWORD and _TOKEN
            apply.
        experiment: the experiment's name; it is created if it does not exist.
        job: the job that produced the artifact.
        labels: the job's labels.
        model: name of a registered model, which gets a version, unless it has the artifact already; "" for none. The
            version loads by `mlflow.pyfunc.load_model("models:/NAME@ALIAS")`.
        alias: of the version; it is taken from the version that has it.
        gates: which of the job's gates passed, in words, a tag of the version.

    Raises:
        ArtifactError: the artifact is not valid.
        MissingExtra: mlflow is not installed; the message says how to install it.
        MlflowUnreachable: no server answers at `tracking_uri`.
        PushFailed: MLflow returned an error.
    """
    artifact = Path(artifact)
    manifest, history = verify(artifact), read_history(artifact)
    client_class, entities, errors = _mlflow()
    tags = _tags(artifact, manifest, job, labels or {})
    try:
        client = client_class(tracking_uri=tracking_uri)
        known = client.get_experiment_by_name(experiment)
        experiment_id = str(known.experiment_id if known is not None else client.create_experiment(experiment))
        run = _find_run(client, experiment_id, manifest.digest)
        new = run is None or run.info.status != "FINISHED"
        if run is None:
            run = client.create_run(experiment_id, tags=tags)
        if new:
            _log(client, entities, run, manifest, history)
            client.log_artifacts(run.info.run_id, str(artifact), artifact_path=FOLDER)
            client.set_terminated(run.info.run_id)
        version = register(client, errors, run, manifest, model, alias, gates) if model else ""
    except errors as error:
        kind = MlflowUnreachable if _without_answer(error) else PushFailed
        raise kind(f"MLflow: {_first_line(error)}") from error
    return PushedRun(run.info.run_id, experiment, experiment_id, manifest.digest, new, model, version)


def _mlflow() -> tuple[Any, Any, tuple[type[Exception], ...]]:
    """MLflow's client, its entities and its errors. By default it is quiet and retries only twice."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
        from mlflow import entities
        from mlflow.exceptions import MlflowException
        from requests.exceptions import RequestException
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"pushing to MLflow needs the package {error.name}: pip install 'mvprune[mlflow]'"
        ) from error
    return mlflow.MlflowClient, entities, (MlflowException, RequestException)


def _without_answer(error: Exception) -> bool:
    """Whether no server answered. MLflow's own errors have the connection's error only as their context."""
    from requests.exceptions import ConnectionError as NoConnection
    from requests.exceptions import Timeout

    return any(isinstance(each, (NoConnection, Timeout)) for each in (error, error.__context__))


def _find_run(client: Any, experiment_id: str, digest: str) -> Any:
    """The run of this artifact; of several, after two pushes at the same time, the first."""
    runs = client.search_runs(
        [experiment_id], f"tags.`{DIGEST_TAG}` = '{digest}'", max_results=1, order_by=["attributes.start_time ASC"]
    )
    return runs[0] if runs else None


def _log(client: Any, entities: Any, run: Any, manifest: Manifest, history: History) -> None:
    """Sends parameters and metrics. Their time is the run's start, so sending them again changes nothing."""
    run_id, time = run.info.run_id, run.info.start_time
    params = [entities.Param(key, value) for key, value in parameters(manifest).items()]
    for start in range(0, len(params), _PARAMS):
        client.log_batch(run_id, params=params[start : start + _PARAMS])
    metrics = [entities.Metric(name, value, time, step) for name, value, step in series(manifest, history)]
    for start in range(0, len(metrics), _BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _BATCH])


def parameters(manifest: Manifest) -> dict[str, str]:
    """The request by dotted names, lists as JSON."""
    flat = {_name(key): value[:_MAX_PARAM] for key, value in _flat("", manifest.spec)}
    return flat | {"seed": str(manifest.seed)}


def series(manifest: Manifest, history: History) -> Iterator[tuple[str, float, int]]:
    """Every number as name, value and step: the result's at step 0, those of the history at their own."""
    for name, value in manifest.metrics.items():
        yield _name(name), value, 0
    yield "bytes", float(manifest.total_bytes), 0
    for name in _FINAL:
        yield name, float(getattr(manifest.accounting, name)), 0
    for phase in history.phases:
        for step, loss, density in zip(phase.steps, phase.loss, phase.density, strict=True):
            yield f"history/{phase.name}/loss", loss, step
            yield f"history/{phase.name}/density", density, step
        for evaluation in phase.evaluations:
            for name, value in evaluation.metrics.items():
                yield _name(f"history/{phase.name}/{name}"), value, evaluation.step


def _tags(artifact: Path, manifest: Manifest, job: str, labels: Mapping[str, str]) -> dict[str, str]:
    tags = {
        DIGEST_TAG: manifest.digest,
        "mvprune.model": manifest.model.name,
        "mvprune.dataset": manifest.dataset.name,
        "mvprune.dataset_fingerprint": manifest.dataset.fingerprint,
        "mvprune.method": method_name(manifest),
        "mlflow.runName": job.rpartition("/")[2] or artifact.resolve().name,
        "mlflow.note.content": (artifact / CARD_FILE).read_text(encoding="utf-8"),
    }
    tags |= {_name(f"mvprune.label.{key}"): value for key, value in labels.items()}
    return tags | ({"mvprune.job": job} if job else {})


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value)


def _name(text: str) -> str:
    return _NOT_ALLOWED.sub("_", text)[:_MAX_NAME]


def _first_line(error: Exception) -> str:
    """Without the password that an address may hold."""
    text = _CREDENTIALS.sub("", str(error).strip()) or type(error).__name__
    return text.splitlines()[0][:500]
