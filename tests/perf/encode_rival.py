"""Encodes the same texts for each line of its input: one side of bench_encode.py, in an environment of its own.

Run: python encode_rival.py SIDE MODEL TEXTS WORK BATCH. Prints "ready", then, for each line, the seconds of CPU
that all texts took. One thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    """See above."""
    side, model, file, work, batch = sys.argv[1:]
    texts = Path(file).read_text().splitlines()
    with contextlib.redirect_stdout(sys.stderr):
        encode = SIDES[side](model, Path(work), texts)
        encode(texts, batch_size=int(batch))  # the first warms up
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        encode(texts, batch_size=int(batch))
        print(time.process_time() - started, flush=True)


def _ours(model: str, _work: Path, _texts: list[str]) -> Callable[..., Any]:
    from mvprune import infer

    opened = infer.load(model, threads=1)
    return lambda texts, batch_size: [
        opened.encode(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size)
    ]


def _torch(model: str, _work: Path, _texts: list[str]) -> Callable[..., Any]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    return SentenceTransformer(model, device="cpu").encode


def _onnx(model: str, work: Path, _texts: list[str]) -> Callable[..., Any]:
    import onnxruntime
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    given = {"session_options": options, "provider": "CPUExecutionProvider"}
    folder = _copied(model, work)
    dense = SentenceTransformer(folder, backend="onnx", model_kwargs=given | {"export": True})
    export_dynamic_quantized_onnx_model(dense, "avx512_vnni", folder)
    file = next(Path(folder).rglob("*qint8*.onnx")).name
    return SentenceTransformer(folder, backend="onnx", model_kwargs=given | {"file_name": file}).encode


def _openvino(model: str, work: Path, texts: list[str]) -> Callable[..., Any]:
    from sentence_transformers import SentenceTransformer, export_static_quantized_openvino_model

    given = {"ov_config": {"INFERENCE_NUM_THREADS": 1}}
    folder, data = _copied(model, work), work / "data"
    data.mkdir()
    (data / "train.txt").write_text("\n".join(texts[:300]))
    dense = SentenceTransformer(folder, backend="openvino", model_kwargs=given | {"export": True})
    export_static_quantized_openvino_model(
        dense, None, folder, dataset_name=str(data), dataset_config_name="default", dataset_split="train",
        column_name="text",
    )  # fmt: skip
    file = next(Path(folder).rglob("*qint8*.xml")).name
    return SentenceTransformer(folder, backend="openvino", model_kwargs=given | {"file_name": file}).encode


def _copied(model: str, work: Path) -> str:
    """The rivals write their files into the model's folder."""
    folder = work / "model"
    shutil.copytree(model, folder)
    return str(folder)


SIDES = {"mvprune": _ours, "torch": _torch, "onnx int8": _onnx, "openvino int8": _openvino}

if __name__ == "__main__":
    os.environ |= ONE_THREAD
    main()
