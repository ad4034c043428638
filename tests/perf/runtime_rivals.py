"""What else runs a BERT on a CPU: each rival is built from the dense model and gives a call to time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mvprune.runtime._onnx import round_to_int8
from mvprune.runtime._rivals import CannotRunHere, prepared, session, torch_int8

Call = Callable[[], Any]


class Rivals:
    """Builds rivals for one shape of input and one number of threads.

    Args:
        model: dense, fp32, in evaluation mode.
        inputs: of every call.
        threads: of every call.
        folder: for ONNX files.
    """

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor], threads: int, folder: Path) -> None:
        self._model, self._inputs, self._threads = model, inputs, threads
        self._folder = folder / "x".join(map(str, inputs["input_ids"].shape))

    def build(self, name: str) -> Call:
        """The call of a rival.

        Raises:
            CannotRunHere: it does not work on this machine.
        """
        try:
            return BUILDERS[name](self)
        except CannotRunHere:
            raise
        except Exception as error:
            raise CannotRunHere(f"{type(error).__name__}: {str(error).splitlines()[0]:.120}") from error

    def dense(self) -> Call:
        return self._torch(self._model)

    def bf16(self) -> Call:
        return self._torch(copy.deepcopy(self._model).bfloat16())

    def dynamic_int8(self) -> Call:
        return torch_int8(self._model, self._inputs).call

    def compiled(self) -> Call:
        torch._dynamo.reset()
        call = self._torch(torch.compile(copy.deepcopy(self._model)))
        call()
        return call

    def onnx(self) -> Call:
        return session(self._exported(), self._inputs, self._threads)

    def onnx_int8(self) -> Call:
        source, path = self._prepared(), self._folder / "int8.onnx"
        if not path.exists():
            round_to_int8(source, path)
        return session(path, self._inputs, self._threads)

    def openvino(self) -> Call:
        return self._openvino(self._exported(), "f32")

    def openvino_bf16(self) -> Call:
        import openvino

        if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise CannotRunHere("OpenVINO finds no bf16 instructions on this CPU")
        return self._openvino(self._exported(), "bf16")

    def openvino_int8(self) -> Call:
        """From a statically quantized ONNX file, as OpenVINO's own quantization needs nncf."""
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

        class Reader(CalibrationDataReader):
            def __init__(self, arrays: dict[str, np.ndarray]) -> None:
                self._left = [arrays]

            def get_next(self) -> dict[str, np.ndarray] | None:
                return self._left.pop() if self._left else None

        path = self._folder / "static.onnx"
        if not path.exists():
            quantize_static(
                self._prepared(),
                path,
                Reader({name: value.numpy() for name, value in self._inputs.items()}),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul", "Gemm"],
            )
        return self._openvino(path, "f32")

    def _torch(self, model: Any) -> Call:
        return lambda: model(**self._inputs)

    def _exported(self) -> Path:
        return self._prepared().with_name("dense.onnx")

    def _prepared(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        path = self._folder / "prepared.onnx"
        return path if path.exists() else prepared(self._model, self._inputs, self._folder)

    def _openvino(self, path: Path, precision: str) -> Call:
        import openvino

        settings = {
            "INFERENCE_NUM_THREADS": self._threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
        arrays = {name: value.numpy() for name, value in self._inputs.items()}
        return lambda: request.infer(arrays)


BUILDERS: dict[str, Callable[[Rivals], Call]] = {
    "torch fp32": Rivals.dense,
    "torch bf16": Rivals.bf16,
    "torch int8 (dynamic)": Rivals.dynamic_int8,
    "torch.compile fp32": Rivals.compiled,
    "ONNX Runtime fp32": Rivals.onnx,
    "ONNX Runtime int8 (dynamic)": Rivals.onnx_int8,
    "OpenVINO fp32": Rivals.openvino,
    "OpenVINO bf16": Rivals.openvino_bf16,
    "OpenVINO int8 (static)": Rivals.openvino_int8,
}
