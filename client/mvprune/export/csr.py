"""scipy's compressed sparse rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse

from mvprune.artifact.base import open_base
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import open_header
from mvprune.artifact.manifest import read_manifest
from mvprune.artifact.weights import stream_weights
from mvprune.export.written import Written
from mvprune.sources.model_config import WEIGHTS_FILE


def write(artifact: Path, folder: Path, base: str | Path | None, on_progress: Callable[[str], None]) -> Written:
    """One ``NAME.npz`` in fp32 for every pruned weight, which scipy.sparse.load_npz reads; rows are the first axis.

    Raises:
        ArtifactError: a pruned weight is no matrix, or not in the weights file.
    """
    manifest, weights = read_manifest(artifact), artifact / WEIGHTS_FILE
    header = open_header(weights)
    pruned = {header.aliases.get(layer.name, layer.name) for layer in manifest.layers}
    on_progress(f"writing {len(pruned)} matrices")
    written = 0
    for name, array in stream_weights(weights, open_base(header, manifest.model, base)):
        if name in pruned:
            if array.ndim != 2 or array.dtype.kind != "f":
                raise ArtifactError(f"{WEIGHTS_FILE}: tensor {name!r} is pruned, but no matrix of floats")
            written += 1
            sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(array.astype(np.float32)))
    if written != len(pruned):
        raise ArtifactError(f"{WEIGHTS_FILE}: {len(pruned) - written} pruned weights of the manifest are not in it")
    return Written()
