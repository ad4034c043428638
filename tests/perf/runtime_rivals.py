"""What else runs a BERT on a CPU: each rival is built from the dense model and gives a call to time."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Call = Callable[[], Any]


class CannotRunHere(Exception):
    """A rival does not work on this machine; the text says why."""


class Rivals:
    """Builds rivals for one shape of input and one number of threads.

    Args:
        model: dense, fp32, in evaluation mode.
        inputs: of every call.
        threads: of every call.
        folder: for ONNX files.
    """

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor], threads: int, folder: Path) -> None:
        self._model, self._inputs, self._threads, self._folder = model, inputs, threads, folder
        self._arrays = {name: value.numpy() for name, value in inputs.items()}

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
        from torch.ao.quantization import quantize_dynamic

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated for a package that does not do this on CPUs
            return self._torch(quantize_dynamic(copy.deepcopy(self._model), {nn.Linear}, torch.qint8))

    def compiled(self) -> Call:
        torch._dynamo.reset()
        call = self._torch(torch.compile(copy.deepcopy(self._model)))
        call()
        return call

    def onnx(self) -> Call:
        return self._session(self._exported())

    def onnx_int8(self) -> Call:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        path = self._folder / f"dynamic-{self._tokens}.onnx"
        if not path.exists():
            quantize_dynamic(self._prepared(), path, weight_type=QuantType.QInt8, per_channel=True)
        return self._session(path)

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

        path = self._folder / f"static-{self._tokens}.onnx"
        if not path.exists():
            quantize_static(
                self._prepared(),
                path,
                Reader(self._arrays),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul", "Gemm"],
            )
        return self._openvino(path, "f32")

    @property
    def _tokens(self) -> int:
        return self._inputs["input_ids"].shape[1]

    def _torch(self, model: Any) -> Call:
        return lambda: model(**self._inputs)

    def _exported(self) -> Path:
        path = self._folder / f"dense-{self._tokens}.onnx"
        if not path.exists():
            names = list(self._inputs)
            torch.onnx.export(
                _Logits(self._model, names).eval(),
                tuple(self._inputs.values()),
                path,
                input_names=names,
                output_names=["logits"],
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        return path

    def _prepared(self) -> Path:
        """With shapes in it, as quantization wants them."""
        from onnxruntime.quantization.shape_inference import quant_pre_process

        path = self._folder / f"prepared-{self._tokens}.onnx"
        if not path.exists():
            quant_pre_process(self._exported(), path)
        return path

    def _session(self, path: Path) -> Call:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, self._arrays)

    def _openvino(self, path: Path, precision: str) -> Call:
        import openvino

        settings = {
            "INFERENCE_NUM_THREADS": self._threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
        return lambda: request.infer(self._arrays)


class _Logits(nn.Module):
    """The model with positional inputs, as ONNX has them."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(**dict(zip(self.names, inputs, strict=True))).logits
        return logits


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
