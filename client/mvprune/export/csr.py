"""scipy's compressed sparse rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from mvprune.artifact.base import Base
from mvprune.artifact.manifest import WEIGHTS_FILE, read_manifest
from mvprune.artifact.weights import open_header, stream_weights


def write(artifact: Path, folder: Path, base: Path | None) -> None:
    """One ``NAME.npz`` in fp32 for every pruned weight, which scipy.sparse.load_npz reads; rows are the first axis."""
    weights = artifact / WEIGHTS_FILE
    aliases = open_header(weights).aliases
    pruned = {aliases.get(layer.name, layer.name) for layer in read_manifest(artifact).layers}
    for name, array in stream_weights(weights, None if base is None else Base(base)):
        if name in pruned:
            matrix = sparse.csr_matrix(array.reshape(len(array), -1).astype(np.float32))
            sparse.save_npz(folder / f"{name}.npz", matrix)
