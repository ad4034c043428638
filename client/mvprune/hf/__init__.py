"""The artifact as a format of transformers.

    import mvprune.hf
    model = AutoModelForSequenceClassification.from_pretrained("out/")

Without the import, transformers reports that the folder has no weights. The model is dense, in the dtype that
from_pretrained is called with, and can be trained and saved. Training fills the zeros of its pruned weights, with a
warning, unless `keep_zeros(model)` is called before it. A delta artifact's base model is found as `mvprune.load`
finds it, by the name in the manifest, and its tensors are verified.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from mvprune.artifact.errors import needs

with needs("mvprune.hf", "runtime"):
    import numpy as np
    import torch
    from safetensors.numpy import save_file
    from transformers.core_model_loading import ConversionOps, WeightConverter
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    from mvprune.artifact import MANIFEST_FILE, WEIGHTS_FILE, ArtifactError, verify
    from mvprune.artifact.base import Base, open_base
    from mvprune.artifact.described import QUANT_METHOD
    from mvprune.artifact.header import VERSION, Header, open_header
    from mvprune.artifact.packing import unpack_parts
    from mvprune.artifact.positions import refuse_longer_inputs
    from mvprune.artifact.structures import shrink_to
    from mvprune.artifact.zeros import (
        FilledZerosWarning,
        keep_zeros,
        pruned_names,
        remember_pruned,
        warn_of_filled_zeros,
    )

__all__ = ["FilledZerosWarning", "MvpruneConfig", "MvpruneQuantizer", "keep_zeros"]


@register_quantization_config(QUANT_METHOD)
class MvpruneConfig(QuantizationConfigMixin):
    """``quantization_config`` in an artifact's config.json."""

    dequantize = True  # the loaded model is a plain one

    def __init__(self, version: int = VERSION, **_: Any) -> None:
        self.quant_method: Any = QUANT_METHOD  # the base class only knows its own methods
        self.version = version


@register_quantizer(QUANT_METHOD)
class MvpruneQuantizer(HfQuantizer):
    """Unpacks the tensors of an artifact while transformers loads them."""

    is_trainable = True
    header: Header
    base: Base | None = None
    _discard: weakref.finalize[..., Any] | None = None

    def update_attn_implementation(self, config: Any) -> Any:
        """The first hook that receives the configuration: sets the name of the weights file."""
        config.transformers_weights = WEIGHTS_FILE
        return config

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        files = kwargs["checkpoint_files"]  # the list that transformers goes through afterwards
        path = Path(files[0])
        # A hub's cache may contain only the model's files.
        manifest = verify(path.parent) if (path.parent / MANIFEST_FILE).exists() else None
        self.header = open_header(path)
        shrink_to(model, self._shapes(model.base_model_prefix))
        if self.header.base:
            if manifest is None:
                raise ArtifactError(
                    f"{path.name} is a delta artifact and must have {MANIFEST_FILE} beside it, got none; "
                    "download the whole folder"
                )
            self.base = base = open_base(self.header, manifest.model, None)
            assert base is not None  # noqa: S101 (the header refers to it)
            whole = {name: base.read(self.header.base[name]) for name in self.header.whole_base}
            files.append(self._write_base(whole))
        return model

    def _shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by their names in a model without its head, and in one with a head."""
        shapes = {name.removeprefix(f"{prefix}."): shape for name, shape in self.header.shapes().items()}
        return shapes | {f"{prefix}.{name}": shape for name, shape in shapes.items()}

    def _write_base(self, tensors: dict[str, np.ndarray[Any, Any]]) -> str:
        """The base's tensors, under the artifact's names, in a temporary file, because transformers reads only
        files."""
        folder = tempfile.mkdtemp(prefix="mvprune-base-")
        self._discard = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        save_file(tensors, path := f"{folder}/base.safetensors")
        return path

    def get_weight_conversions(self) -> list[WeightConverter]:
        """One conversion for all packed tensors: their parts become the tensor."""
        return [WeightConverter(["::positions", "::values", "::scales"], "", [_Unpack(self)])]

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        model._weight_conversions = None  # saving writes plain tensors
        del model.config.transformers_weights
        refuse_longer_inputs(model)
        known, prefix = dict(model.named_parameters(remove_duplicate=False)), model.base_model_prefix
        spellings = ((name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")) for name in pruned_names(self.header))
        remember_pruned(model, [name for some in spellings for name in some if name in known])
        warn_of_filled_zeros(model)
        if self._discard is not None:
            self._discard()
        return model

    def is_serializable(self) -> bool:
        """Saving goes through `mvprune.artifact.save_model`."""
        return False


class _Unpack(ConversionOps):
    def __init__(self, quantizer: MvpruneQuantizer) -> None:
        self.hf_quantizer = quantizer  # by this name transformers knows not to cast the parts

    def __deepcopy__(self, _: object) -> _Unpack:  # transformers copies it for every tensor
        return self

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, list[torch.Tensor]]:
        """The parts of one tensor, by pattern → the tensor, in the dtype of the model's."""
        name, model = kwargs["full_layer_name"], kwargs["model"]
        quantizer, stored = self.hf_quantizer, self._stored_name(name, model.base_model_prefix)
        referred = quantizer.header.base.get(stored)
        base = quantizer.base.read(referred) if quantizer.base is not None and referred is not None else None
        parts = {pattern.removeprefix("::"): _array(content) for pattern, content in input_dict.items()}
        dtype, packed = model.get_parameter_or_buffer(name).dtype, quantizer.header.packed[stored]
        return {name: [torch.from_numpy(unpack_parts(packed, parts, base).array()).to(dtype)]}

    def _stored_name(self, name: str, prefix: str) -> str:
        """A model without its head, or with one, has names with another prefix than the file."""
        packed = self.hf_quantizer.header.packed
        return next(n for n in (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")) if n in packed)


def _array(content: torch.Tensor | list[torch.Tensor]) -> np.ndarray[Any, Any]:
    part = content[0] if isinstance(content, list) else content
    array: np.ndarray[Any, Any] = (part.view(torch.int16) if part.dtype == torch.bfloat16 else part).numpy()
    return array.view(np.uint16) if part.dtype == torch.bfloat16 else array
