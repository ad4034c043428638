"""The folder of a BERT with random weights of any size, written without torch."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path

HIDDEN = 64
_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad")


def write_bert(folder: Path, weight_bytes: int = 100_000) -> Path:
    """Writes config.json, vocab.txt and model.safetensors with about `weight_bytes` bytes; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = "encoder.layer.0.attention.self.query.weight"
    rows = max(len(_WORDS), weight_bytes // (4 * HIDDEN) - HIDDEN)
    tensors = {"embeddings.word_embeddings.weight": (rows, HIDDEN), matrix: (HIDDEN, HIDDEN)}
    config = {"model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": rows}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(_WORDS))
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        while end > 0:
            file.write(os.urandom(min(end, 1 << 24)))
            end -= 1 << 24
    return folder
