"""The application of `mvpctl serve` with an ONNX file in the place of the artifact's model: bench_serving.py's rival.

Run: python onnx_server.py ARTIFACT MODEL.onnx. Prints a JSON object with the url.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from types import SimpleNamespace
from typing import Any

import onnxruntime
import torch
from torch import Tensor

from mvprune.serving.app import application
from mvprune.serving.requests import Limits
from mvprune.serving.server import listen, run
from mvprune_core.prediction import Predictor


class Session:
    """An ONNX file, called as the model that it is of; one thread."""

    def __init__(self, path: str, config: Any) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]
        self.config = config

    def eval(self) -> None:
        """It is in no other mode."""

    def __call__(self, **inputs: Tensor) -> Any:
        given = {name: inputs.get(name, torch.zeros_like(inputs["input_ids"])).numpy() for name in self._names}
        return SimpleNamespace(logits=torch.from_numpy(self._session.run(["logits"], given)[0]))


def main() -> None:
    """Serves until SIGTERM."""
    artifact, path = sys.argv[1:]
    torch.set_num_threads(1)
    predictor = Predictor.open(artifact)
    loaded = predictor.opened.loaded
    session: Any = Session(path, loaded.model.config)
    predictor.opened = dataclasses.replace(predictor.opened, loaded=dataclasses.replace(loaded, model=session))
    limits = Limits()
    with listen("127.0.0.1", 0) as listening:
        print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
        run(application(predictor, {"model": "onnx"}, limits), listening, limits)


if __name__ == "__main__":
    main()
