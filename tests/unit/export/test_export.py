"""What an artifact is exported to computes what the artifact's model computes."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from scipy import sparse
from tests.full_disk import full_disk
from tests.unit.artifact.conftest import pruning
from tests.unit.runtime.pruned_models import for_int8

from mvprune.artifact import ArtifactError, ResultInfo, Values, read_manifest
from mvprune.common.units import size
from mvprune.export import FORMATS, Exported, export
from mvprune.export.writing import graphs_of

Made = Callable[..., tuple[Any, Path]]
INPUTS = torch.arange(24).reshape(2, 12)
CLASSIFIER = "BertForSequenceClassification"


class Classifier(NamedTuple):
    """A pruned BERT, its artifact, and that exported to ONNX."""

    model: Any
    artifact: Path
    onnx: Exported


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, result: ResultInfo) -> Classifier:
    folder = tmp_path_factory.mktemp("classifier")
    model, artifact = pruning(folder, result)(CLASSIFIER)
    return Classifier(model, artifact, export(artifact, folder / "onnx", to="onnx"))


@pytest.mark.slow
def test_dense_opens_with_no_package_of_ours(pruned_model: Made, tmp_path: Path) -> None:
    model, artifact = pruned_model(CLASSIFIER)
    export(artifact, tmp_path / "dense", to="dense")
    code = (
        "import sys\nsys.modules['mvprune'] = None\nimport torch, transformers\n"
        "model = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[1])\n"
        "print(model(torch.arange(24).reshape(2, 12)).logits.tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "dense"], capture_output=True, text=True, check=True)
    with torch.no_grad():
        assert torch.equal(torch.tensor(json.loads(done.stdout)), model(INPUTS).logits)
    written = {path.name for path in (tmp_path / "dense").iterdir()}
    assert written == {"config.json", "model.safetensors", "vocab.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk_is_named_whatever_library_writes(pruned_model: Made, tmp_path: Path, to: str) -> None:
    _, artifact = pruned_model(CLASSIFIER)
    with full_disk(0), pytest.raises(ArtifactError, match=r"^/.*(File too large|os error 27)"):
        export(artifact, tmp_path / to, to=to)
    assert [*(tmp_path / to).iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
def test_the_answer_says_what_is_not_kept(classifier: Classifier, tmp_path: Path, to: str) -> None:
    artifact = classifier.artifact
    done = classifier.onnx if to == "onnx" else export(artifact, tmp_path / to, to=to)
    if to == "csr":
        assert done.notes == ()
        return
    (note,) = done.notes
    weights, sparse_weights = (
        size(path.stat().st_size)
        for path in (
            done.folder / ("model.onnx" if to == "onnx" else "model.safetensors"),
            artifact / "weights.safetensors",
        )
    )
    assert note == (
        f"{to} has the zeros, but not the size and the speed of the sparse model: its weights take {weights}, "
        f"the artifact's {sparse_weights}; `mvprune.load('{artifact}', runtime=\"sparse\")` runs the sparse model; "
        f"`mvpctl benchmark {artifact}` measures both speeds"
    )


@pytest.mark.parametrize("to", ["dense", "csr"])
def test_rounded_activations_are_in_no_other_format(pruned_model: Made, tmp_path: Path, to: str) -> None:
    artifact = for_int8(pruned_model(CLASSIFIER)[1], tmp_path / "int8")
    assert export(artifact, tmp_path / to, to=to).notes[-1] == (
        f"{to} has no rounding of activations: the metrics in the manifest are those of int8 activations"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CLASSIFIER, "BertForQuestionAnswering"])
def test_onnx_computes_what_torch_does(classifier: Classifier, pruned_model: Made, tmp_path: Path, kind: str) -> None:
    if kind == CLASSIFIER:
        model, folder = classifier.model, classifier.onnx.folder
    else:
        model, artifact = pruned_model(kind)
        folder = export(artifact, tmp_path / "onnx", to="onnx").folder
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.arange(28).reshape(4, 7)  # another shape than any that the export has seen
    feeds = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    with torch.no_grad():
        expected = model(**feeds)
    found = session.run(list(expected.keys()), {name: value.numpy() for name, value in feeds.items()})
    for name, output in zip(expected.keys(), found, strict=True):
        assert np.allclose(output, expected[name].numpy(), atol=1e-5)
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.onnx", "vocab.txt"}


@pytest.mark.slow
def test_onnx_in_int8(classifier: Classifier, tmp_path: Path) -> None:
    model, artifact, plain = classifier
    done = export(artifact, tmp_path / "onnx", to="onnx", quantize="int8")
    linear = sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    assert done.notes[0].startswith(f"int8: {linear} products; ")
    assert (done.tolerance, done.difference < 0.1) == (None, True)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": INPUTS, "attention_mask": torch.ones_like(INPUTS), "token_type_ids": 0 * INPUTS}
    (found,) = session.run(["logits"], {name: value.numpy() for name, value in feeds.items()})
    with torch.no_grad():
        expected = model(**feeds).logits
    assert 0 < np.abs(found - expected.numpy()).max() < 0.1 * expected.abs().max()
    assert done.files.keys() == {"config.json", "model.onnx", "vocab.txt"}
    assert done.files["model.onnx"] < plain.files["model.onnx"], "most of this small file is the graph"


@pytest.mark.slow
def test_an_onnx_file_that_computes_something_else_is_refused(classifier: Classifier) -> None:
    model = copy.deepcopy(classifier.model)
    with torch.no_grad():
        model.classifier.bias[0] += 0.01
    with pytest.raises(ArtifactError, match=r"model.onnx: logits must be within 1e-04 of torch's, got"):
        graphs_of(model).check(classifier.onnx.folder)


@pytest.mark.parametrize("values", [Values.FP16, Values.INT8])
def test_csr_files_hold_the_pruned_weights(pruned_model: Made, tmp_path: Path, values: Values) -> None:
    model, artifact = pruned_model(CLASSIFIER, values)
    export(artifact, tmp_path / "csr", to="csr")
    layers = {layer.name: layer for layer in read_manifest(artifact).layers}
    assert {path.name for path in (tmp_path / "csr").iterdir()} == {f"{name}.npz" for name in layers}
    for name, layer in layers.items():
        matrix = sparse.load_npz(tmp_path / "csr" / f"{name}.npz")
        assert matrix.nnz == layer.nonzero
        assert np.array_equal(matrix.toarray(), model.get_parameter(name).detach().numpy())


@pytest.mark.parametrize(("to", "quantize"), [("csr", "int8"), ("onnx", "int4")])
def test_what_cannot_be_quantized(pruned_model: Made, tmp_path: Path, to: str, quantize: str) -> None:
    _, artifact = pruned_model(CLASSIFIER)
    with pytest.raises(ValueError, match=f"quantize must be int8, with the format onnx, or unset, got '{quantize}'"):
        export(artifact, tmp_path / "none", to=to, quantize=quantize)
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_exported(pruned_model: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, artifact = pruned_model(CLASSIFIER)
    with pytest.raises(ValueError, match="to must be one of dense, onnx, csr, got 'gguf'"):
        export(artifact, tmp_path / "x", to="gguf")
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export(artifact, artifact, to="dense")
    with pytest.raises(ArtifactError, match="must be an artifact's folder"):
        export(tmp_path / "nothing", tmp_path / "x", to="dense")
    assert not (tmp_path / "x").exists()
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "mvprune.export.csr", raising=False)
    with pytest.raises(ImportError, match=r"export to csr needs the package scipy: pip install 'mvprune\[export\]'"):
        export(artifact, tmp_path / "x", to="csr")
    assert FORMATS == ("dense", "onnx", "csr")
