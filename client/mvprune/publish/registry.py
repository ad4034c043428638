"""A pushed artifact as a version of a registered model of MLflow, which `mlflow.pyfunc` loads."""

from __future__ import annotations

import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import mvprune
from mvprune.artifact.manifest import Manifest

FOLDER = "artifact"
"""Of a run: where the artifact's files are."""
DIGEST_TAG = "mvprune.digest"
"""Its value is the SHA-256 of the manifest: one artifact is one run of an experiment, and one version of a model."""
_MODEL_FILE = "MLmodel"
_REQUIREMENTS = "requirements.txt"
_ENVIRONMENT = "python_env.yaml"
_LOADER = "mvprune_workers.pyfunc"
_EXISTS = "RESOURCE_ALREADY_EXISTS"


def register(
    client: Any, errors: tuple[type[Exception], ...], run: Any, manifest: Manifest, name: str, alias: str, gates: str
) -> str:
    """Makes a version of a registered model, unless one has the artifact already, and gives it an alias.

    Args:
        client: MLflow's.
        errors: those that it raises.
        run: has the artifact's files.
        name: of the registered model, which is created if it does not exist.
        alias: what the version is called from now on.
        gates: which of the job's gates passed, in words; "" if it had none.

    Returns:
        The version.
    """
    _write_flavor(client, run.info.run_id)
    try:
        client.create_registered_model(name)
    except errors as error:
        if getattr(error, "error_code", "") != _EXISTS:
            raise
    quoted = name.replace("'", "''")
    versions = client.search_model_versions(f"name = '{quoted}'")
    found = next((one for one in versions if one.tags.get(DIGEST_TAG) == manifest.digest), None)
    if found is None:
        tags = {DIGEST_TAG: manifest.digest, "mvprune.density": f"{manifest.accounting.density:.6g}"}
        tags |= {"mvprune.gates": gates} if gates else {}
        source = f"{run.info.artifact_uri}/{FOLDER}"
        found = client.create_model_version(name, source, run.info.run_id, tags=tags)
    client.set_registered_model_alias(name, alias, found.version)
    return str(found.version)


def _write_flavor(client: Any, run_id: str) -> None:
    """Puts beside the artifact's files what says how Python loads them."""
    if any(file.path == f"{FOLDER}/{_MODEL_FILE}" for file in client.list_artifacts(run_id, FOLDER)):
        return
    python = platform.python_version()
    flavor = {
        "loader_module": _LOADER,
        "python_version": python,
        "env": {"virtualenv": _ENVIRONMENT},
    }
    files = {
        _REQUIREMENTS: f"mvprune[infer]=={mvprune.__version__}\n",
        _ENVIRONMENT: json.dumps({"python": python, "dependencies": [f"-r {_REQUIREMENTS}"]}) + "\n",
        _MODEL_FILE: json.dumps({"flavors": {"python_function": flavor}, "run_id": run_id}, indent=2) + "\n",
    }
    with tempfile.TemporaryDirectory(prefix="mvprune-") as folder:
        for name, text in files.items():  # the model's file last: it says that the others are there
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            client.log_artifact(run_id, str(path), FOLDER)
