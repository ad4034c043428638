"""Models to artifacts and back: what is loaded is what was evaluated, bit for bit."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from torch import nn

import mvprune
from mvprune import artifact
from mvprune.artifact import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    ArtifactError,
    ArtifactFile,
    Base,
    Coding,
    ResultInfo,
    Values,
    load,
    read_manifest,
    read_weights,
    round_values,
    save_model,
    verify,
)
from mvprune.artifact.manifest import measure

BERT = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
}


class Tokenizer:
    """Writes what a tokenizer writes, a folder included."""

    def save_pretrained(self, folder: Path) -> None:
        (folder / "templates").mkdir()
        (folder / "templates" / "chat.jinja").write_text("{{ text }}")
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")


def bert(kind: str = "BertForSequenceClassification") -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return getattr(transformers, kind)(transformers.BertConfig(**BERT)).eval()


def prune(model: nn.Module, density: float = 0.1, **rounding: Any) -> list[str]:
    """Zeros, some of them negative, in the weights of the blocks; the values rounded."""
    names = [name for name, value in model.named_parameters() if ".layer." in name and value.ndim == 2]
    with torch.no_grad():
        for name in names:
            weight = model.get_parameter(name)
            weight.mul_((torch.rand_like(weight) < density).float())
    round_values(model, names, **rounding)
    return names


def kept(model: nn.Module, names: Iterable[str]) -> int:
    return sum(int(torch.count_nonzero(model.get_parameter(name))) for name in names)


@pytest.fixture
def save(tmp_path: Path, result: ResultInfo) -> Callable[..., Path]:
    def write(model: Any, names: list[str], **coding: Any) -> Path:
        accounting = dataclasses.replace(
            result.accounting,
            prunable_weights=sum(model.get_parameter(name).numel() for name in names),
            kept_weights=kept(model, names),
        )
        info = dataclasses.replace(result, accounting=accounting)
        save_model(tmp_path / "out", model, Tokenizer(), pruned=names, result=info, **coding)
        return tmp_path / "out"

    return write


@pytest.fixture
def saved(save: Callable[..., Path]) -> Path:
    model = bert()
    return save(model, prune(model))


def reseal(folder: Path, drop: str = "") -> None:
    """Gives a changed folder a manifest that vouches for it."""
    manifest = read_manifest(folder)
    files = tuple(
        ArtifactFile(file.path, *measure(folder / file.path), file.media_type)
        for file in manifest.files
        if file.path != drop
    )
    (folder / MANIFEST_FILE).write_bytes(dataclasses.replace(manifest, files=files).to_json())


def identical(found: nn.Module, expected: nn.Module) -> bool:
    left, right = found.state_dict(), expected.state_dict()
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].numpy().tobytes() == right[name].numpy().tobytes()
        for name in right
    )


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_a_loaded_model_is_the_saved_one(save: Callable[..., Path], density: float) -> None:
    model = bert()
    names = prune(model, density)
    folder = save(model, names)
    state = torch.get_rng_state()
    loaded = mvprune.load(folder)
    assert torch.equal(torch.get_rng_state(), state)
    assert type(loaded) is transformers.BertForSequenceClassification
    assert not any(module.training for module in loaded.modules())
    assert identical(loaded, model)
    assert kept(loaded, names) == verify(folder).accounting.kept_weights
    inputs = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        assert torch.equal(loaded(inputs).logits, model(inputs).logits)


@pytest.mark.parametrize("values", Values)
def test_every_coding_loads_as_it_was_rounded(save: Callable[..., Path], values: Values) -> None:
    model, coding = bert("BertForMaskedLM"), Coding(values, values)
    names = prune(model, coding=coding)
    folder = save(model, names, coding=coding)
    loaded = load(folder)
    assert identical(loaded, model)
    assert kept(loaded, names) == verify(folder).accounting.kept_weights
    round_values(loaded, names, coding)
    assert identical(loaded, model)


def test_int8_is_near_and_fp32_exact() -> None:
    weights = {}
    for values in Values:
        model = bert()
        round_values(model, ["classifier.weight"], Coding(values, values))
        weights[values] = model.classifier.weight.detach()
    exact = bert().classifier.weight.detach()
    assert torch.equal(weights[Values.FP32], exact)
    assert torch.equal(weights[Values.BF16], exact.bfloat16().float())
    step = exact.abs().amax(1, keepdim=True) / 127
    assert ((weights[Values.INT8] - exact).abs() <= 0.51 * step).all()
    assert not torch.equal(weights[Values.INT8], exact)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base model that a head was put on: its tensors lack the prefix."""
    bert().bert.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def test_a_delta_artifact_holds_what_changed(save: Callable[..., Path], base: Path) -> None:
    model = bert()
    names = prune(model, base=Base(base))
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, bert().bert.embeddings.word_embeddings.weight)
    folder = save(model, names, base=Base(base))
    entries = {name.partition("::")[0] for name in load_file(folder / WEIGHTS_FILE)}
    assert entries == {*names, "classifier.weight", "classifier.bias"}
    assert identical(load(folder, base), model)
    with pytest.raises(ArtifactError, match="tensors are the base model's: its folder is needed"):
        read_weights(folder / WEIGHTS_FILE)


def test_a_delta_artifact_takes_no_other_base(save: Callable[..., Path], base: Path, tmp_path: Path) -> None:
    model = bert()
    folder = save(model, prune(model, base=Base(base)), base=Base(base))
    other = bert().bert
    with torch.no_grad():
        other.embeddings.word_embeddings.weight[3, 4] += 1
    other.save_pretrained(base)
    with pytest.raises(ArtifactError, match=r"word_embeddings.*another digest: it is not the same model"):
        load(folder, base)
    transformers.BertModel(transformers.BertConfig(**BERT | {"hidden_size": 16})).save_pretrained(base)
    with pytest.raises(ArtifactError, match=r"the base model has no '.*' of F32 \[.*32\]"):
        load(folder, base)
    with pytest.raises(ArtifactError, match="no base model"):
        load(folder, tmp_path / "nowhere")


def test_a_trimmed_embedding_is_small_and_loads_with_zero_rows(save: Callable[..., Path]) -> None:
    """The tokenizer works as before; a token that was trimmed has no embedding."""
    model = bert()
    with torch.no_grad():
        model.get_input_embeddings().weight[10:] = 0
    names = prune(model)
    folder = save(model, names)
    assert load_file(folder / WEIGHTS_FILE)["bert.embeddings.word_embeddings.weight::values"].nbytes <= 9 * 32 * 2
    assert identical(load(folder), model)


def test_tied_weights_stay_tied(save: Callable[..., Path]) -> None:
    model = bert("BertForMaskedLM")
    folder = save(model, prune(model))
    entries = load_file(folder / WEIGHTS_FILE)
    tables = {name for name in entries if "word_embeddings" in name or "decoder.weight" in name}
    assert tables == {"bert.embeddings.word_embeddings.weight::values"}
    loaded = load(folder)
    assert identical(loaded, model)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize(
    "config",
    [
        transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=24, n_inner=64),
        transformers.LlamaConfig(
            vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
        ),
        transformers.T5Config(vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    ],
    ids=lambda config: config.model_type,
)
def test_other_architectures(save: Callable[..., Path], config: Any) -> None:
    """With buffers that are not in the state dict (rotary frequencies), and embeddings shared three times."""
    torch.manual_seed(0)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = auto.from_config(config).eval()
    round_values(model)
    loaded = load(save(model, []))
    assert identical(loaded, model)
    inputs = {"input_ids": torch.arange(24).reshape(2, 12)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_what_is_written(saved: Path) -> None:
    manifest = verify(saved)
    assert sorted(path.name for path in saved.iterdir()) == [
        "README.md",
        "config.json",
        "history.json",
        MANIFEST_FILE,
        "report.html",
        "templates",
        "vocab.txt",
        WEIGHTS_FILE,
    ]
    assert {file.path: file.media_type for file in manifest.files} == {
        "README.md": "text/markdown",
        "config.json": "application/json",
        "history.json": "application/json",
        "report.html": "text/html",
        "templates/chat.jinja": "text/plain",
        "vocab.txt": "text/plain",
        WEIGHTS_FILE: "application/octet-stream",
    }
    assert manifest.accounting.sparse_bytes == (saved / WEIGHTS_FILE).stat().st_size
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]


def test_the_same_model_gives_the_same_artifact(tmp_path: Path, result: ResultInfo) -> None:
    model = bert()
    names = prune(model, 0)
    info = dataclasses.replace(result, accounting=dataclasses.replace(result.accounting, kept_weights=0))
    digests = {save_model(tmp_path / n, model, Tokenizer(), pruned=names, result=info).digest for n in "ab"}
    assert len(digests) == 1
    assert model.config.architectures is None  # untouched


def test_a_half_precision_model_loads_in_fp32(save: Callable[..., Path]) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model = bert().to(dtype)
        names = prune(model)
        folder = save(model, names)
        loaded = load(folder)
        assert identical(loaded, model.float())
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_any_change_of_any_file_is_noticed(saved: Path) -> None:
    random = np.random.default_rng(0)
    expected = read_weights(saved / WEIGHTS_FILE)
    for path in (saved / file.path for file in verify(saved).files):
        content = path.read_bytes()
        for position in random.integers(0, len(content), 5):
            path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
            with pytest.raises(ArtifactError):
                load(saved)
            path.write_bytes(content[:position])
            with pytest.raises(ArtifactError):
                load(saved)
        path.write_bytes(content)
    assert all(np.array_equal(load(saved).state_dict()[name], array) for name, array in expected.items())


def test_round_values() -> None:
    model = nn.Linear(4, 1)
    model.register_buffer("steps", torch.tensor([2**40]))
    model.register_buffer("passing", torch.tensor([0.1]), persistent=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -(2.0**-26), 2.0**-24, -0.0]]))
    round_values(model)
    assert model.weight.tolist() == [[0.0999755859375, 0.0, 2.0**-24, 0.0]]
    assert not torch.signbit(model.weight).any()
    assert model.weight.dtype == torch.float32
    assert model.weight.requires_grad
    assert model.steps.item() == 2**40
    assert model.passing.item() == torch.tensor(0.1).item()  # not stored, so not rounded
    before = model.weight.clone()
    round_values(model)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("value", [65520.0, -1e30, float("inf"), float("nan")])
def test_what_fp16_cannot_hold_is_refused(value: float) -> None:
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight[0, 2] = value
    with pytest.raises(ArtifactError, match=r"^tensor 'weight' holds a value that is not finite, or too large"):
        round_values(model)


def test_save_refuses_what_load_could_not_give_back(tmp_path: Path, save: Callable[..., Path]) -> None:
    with pytest.raises(ArtifactError, match="Linear is not a transformers model"):
        save(nn.Linear(2, 2), [])
    with pytest.raises(ArtifactError, match=r"tensor '.*': holds a value that fp16 cannot represent"):
        save(bert(), [])
    model = bert()
    round_values(model)
    model.classifier = nn.Linear(32, 5)
    with pytest.raises(ArtifactError, match=r"config.json: the .* differ in classifier.bias, classifier.weight"):
        save(model, [])
    model = bert()
    torch.nn.utils.parametrizations.weight_norm(model.classifier)
    with pytest.raises(ArtifactError, match=r"differ in classifier.parametrizations"):
        save(model, [])
    model = bert()
    model.config.auto_map = {"AutoModel": "code.Model"}
    with pytest.raises(ArtifactError, match="auto_map is refused"):
        save(model, [])

    class Mine(transformers.BertForSequenceClassification):
        pass

    with pytest.raises(ArtifactError, match="architectures names 'Mine', which is not a transformers model class"):
        save(Mine(transformers.BertConfig(**BERT)), [])
    assert list((tmp_path / "out").iterdir()) == []


def test_save_refuses_a_wrong_count(tmp_path: Path, result: ResultInfo) -> None:
    model = bert()
    names = prune(model)
    with pytest.raises(ArtifactError, match=r"kept_weights is 8, but the pruned weights have \d+ non-zeros"):
        save_model(tmp_path / "out", model, Tokenizer(), pruned=names, result=result)
    with pytest.raises(ArtifactError, match="pruned weight 'x' is not in the model's state dict"):
        save_model(tmp_path / "out", model, Tokenizer(), pruned=["x"], result=result)


def test_save_refuses_a_folder_with_files(saved: Path, save: Callable[..., Path]) -> None:
    before = (saved / MANIFEST_FILE).read_bytes()
    with pytest.raises(ArtifactError, match="new or empty folder"):
        save(bert(), [])
    assert (saved / MANIFEST_FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map is refused"),
        ({"attn_implementation": "someone/kernel"}, "attn_implementation is refused"),
        ({"_attn_implementation_internal": "someone/kernel"}, "_attn_implementation_internal is refused"),
        ({"sub": [{"experts_implementation": "x"}]}, "experts_implementation is refused"),
        ({"architectures": None}, "expected a list of one class name"),
        ({"architectures": ["BertModel", "BertModel"]}, "expected a list of one class name"),
        ({"architectures": ["BertNothing"]}, "not a transformers model class"),
        ({"architectures": ["pipeline"]}, "not a transformers model class"),
        ({"architectures": ["PreTrainedModel"]}, "not a transformers model class"),
        ({"architectures": ["GPT2LMHeadModel"]}, "for model_type 'bert'"),
        ({"architectures": ["__class__"]}, "not a transformers model class"),
        ({"model_type": "nothing"}, "model_type 'nothing' is not known"),
        ({"model_type": ["bert"]}, "is not known"),
        ({"hidden_size": "large"}, "cannot be built from it"),
        ({"num_attention_heads": 5}, "cannot be built from it"),
        ({"num_hidden_layers": 3}, "differ in bert.encoder.layer.2"),
        ({"hidden_size": 64}, "differ in bert.embeddings"),
        ({"architectures": ["BertForTokenClassification"]}, "differ in bert.pooler"),
    ],
)
def test_load_refuses_a_configuration_with_code_or_of_another_model(
    saved: Path, change: dict[str, Any], reason: str
) -> None:
    path = saved / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    reseal(saved)
    with pytest.raises(ArtifactError) as caught:
        load(saved)
    assert str(caught.value).startswith("config.json: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1, "a": 2}', b"\xff"])
def test_load_refuses_what_is_no_configuration(saved: Path, content: bytes) -> None:
    (saved / "config.json").write_bytes(content)
    reseal(saved)
    with pytest.raises(ArtifactError, match=r"^config.json: "):
        load(saved)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS_FILE])
def test_load_takes_no_file_that_the_manifest_does_not_name(saved: Path, name: str) -> None:
    reseal(saved, drop=name)
    with pytest.raises(ArtifactError, match=f"^manifest.json: {name} is not among its files"):
        load(saved)


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_a_missing_package_is_one_line(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom mvprune import load"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = f"load needs the package {package}: pip install 'mvprune[runtime]'"
    assert answer.stderr.splitlines()[-1].endswith(line)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        artifact.nothing  # noqa: B018
