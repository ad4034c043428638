"""Models to artifacts and back: what is loaded is what was evaluated, bit for bit."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file
from tests.unit.artifact.saved_models import TINY_BERT, Tokenizer, bert, identical, kept, prune
from torch import nn

import mvprune
from mvprune import artifact
from mvprune.artifact import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    ArtifactError,
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
from mvprune.artifact.header import open_header
from mvprune.artifact.packing import pack_mask
from mvprune.artifact.sizes import description_bytes
from mvprune.common.units import size


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
    step = exact.abs().max() / 127  # the rows are nearly equally large, so they share it
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
    with pytest.raises(ArtifactError, match="base must be given for a delta artifact"):
        read_weights(folder / WEIGHTS_FILE)


def test_weights_that_only_a_mask_changed_are_stored_as_a_mask(save: Callable[..., Path], base: Path) -> None:
    """Whatever their dtype is to be: the base has them exactly. A matrix with one other weight has its own values."""
    model = bert()
    names = prune(model, base=Base(base))
    with torch.no_grad():
        weight = model.get_parameter(names[0])
        weight[weight != 0] *= 2
        weight = model.get_parameter(names[1])
        weight[0, 0] = 1e-30  # what a method has in place of 0
    options = {"coding": Coding(Values.INT8, Values.INT8), "base": Base(base)}
    round_values(model, names, **options)
    folder = save(model, names, **options)
    packed = open_header(folder / WEIGHTS_FILE).packed
    assert [packed[name].dtype for name in names] == ["I8"] + ["BASE"] * (len(names) - 1)
    assert kept(model, names) == verify(folder).accounting.kept_weights
    loaded = load(folder, base)
    assert identical(loaded, model)
    original = bert().get_parameter(names[1])
    masked = loaded.get_parameter(names[1])
    assert torch.equal(masked, torch.where(masked != 0, original, 0))
    assert 0 < int((masked != 0).sum()) < masked.numel() / 5


def test_the_bytes_of_a_mask(save: Callable[..., Path], base: Path) -> None:
    """Near the entropy of the mask, 0.19 bits a weight at 3 %, where a matrix is large enough."""
    generator = np.random.default_rng(0)
    array = np.where(generator.random((512, 512)) < 0.03, 1.0, 0.0)
    frame = pack_mask(array).entries["positions"][1]
    assert 0.19 < 8 * frame.nbytes / array.size < 0.25


def test_models_of_one_base_share_its_tensors(save: Callable[..., Path], base: Path) -> None:
    """The second is loaded when the folder has gone: every tensor of the base was kept, and is the same memory."""
    models = [bert(), bert()]
    folders = []
    for number, model in enumerate(models):
        torch.manual_seed(number)
        names = prune(model, base=Base(base))
        folders.append(save(model, names, base=Base(base), folder=f"artifact{number}"))
    shared = Base(base)
    first = mvprune.load(folders[0], shared)
    shutil.rmtree(base)
    second = mvprune.load(folders[1], base=shared)
    of_base = open_header(folders[0] / WEIGHTS_FILE).base.keys() - names
    assert "bert.embeddings.word_embeddings.weight" in of_base
    for name, parameter in first.named_parameters():
        same = parameter.data_ptr() == second.get_parameter(name).data_ptr()
        assert same == (name in of_base), name
        assert parameter.requires_grad != same
    assert identical(first, models[0])
    assert identical(second, models[1])
    assert not identical(first, second)


def test_a_delta_artifact_takes_no_other_base(save: Callable[..., Path], base: Path, tmp_path: Path) -> None:
    model = bert()
    folder = save(model, prune(model, base=Base(base)), base=Base(base))
    other = bert().bert
    with torch.no_grad():
        other.embeddings.word_embeddings.weight[3, 4] += 1
    other.save_pretrained(base)
    with pytest.raises(
        ArtifactError, match=r"word_embeddings.*must have the SHA-256 [0-9a-f]{64}; give the same model"
    ):
        load(folder, base)
    transformers.BertModel(transformers.BertConfig(**TINY_BERT | {"hidden_size": 16})).save_pretrained(base)
    with pytest.raises(ArtifactError, match=r"the base model must have '.*' of F32 \[.*32\]"):
        load(folder, base)
    with pytest.raises(ArtifactError, match=r"must contain \*\.safetensors"):
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


def _dirty(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        found = make(*args, **kwargs)
        return found.fill_(1e9) if found.is_floating_point() else found

    return made


def test_what_lies_in_memory_does_not_matter(save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """ModernBERT draws from a normal distribution until all is within its bounds."""
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    config = transformers.ModernBertConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, **special
    )
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    round_values(model)
    folder = save(model, [])
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, _dirty(getattr(torch, name)))
    assert identical(load(folder), model)


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


def test_all_files_count(saved: Path) -> None:
    """Card and report say how large the folder is, themselves included."""
    total = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    assert read_manifest(saved).total_bytes == total
    assert f"| bytes | {size(total)} in all files" in (saved / "README.md").read_text()
    assert f"<td>{size(total)} in all files" in (saved / "report.html").read_text()


def test_what_describes_a_model_takes_as_many_bytes_as_was_said(saved: Path) -> None:
    files = ("config.json", "vocab.txt", "templates/chat.jinja")
    config = transformers.AutoConfig.from_pretrained(saved)
    assert description_bytes(config, Tokenizer()) == sum((saved / name).stat().st_size for name in files)


def test_the_tokenizer_is_stored_without_white_space_and_lengths(save: Callable[..., Path], tmp_path: Path) -> None:
    """It is read as it was, by transformers. What its last call was asked for is not in it."""
    model, words = bert(), {word: number for number, word in enumerate(["[UNK]", "[PAD]", "naïve", "“日本", "a b"])}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="[UNK]", pad_token="[PAD]")
    tokenizer.save_pretrained(tmp_path / "plain")
    tokenizer("naïve other", truncation=True, padding="max_length", max_length=2)
    folder = save(model, prune(model), tokenizer=tokenizer)
    before, after = (path / "tokenizer.json" for path in (tmp_path / "plain", folder))
    assert json.loads(after.read_text()) == json.loads(before.read_text())
    assert after.stat().st_size < 0.7 * before.stat().st_size
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    text = "naïve “日本 other"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


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


@pytest.mark.slow
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
    model = nn.Linear(4, 2)
    model.register_buffer("steps", torch.tensor([2**40]))
    model.register_buffer("passing", torch.tensor([0.1]), persistent=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -(2.0**-26), 2.0**-24, -0.0]]))
    round_values(model)
    assert model.weight.tolist() == [[0.0999755859375, 0.0, 2.0**-24, 0.0]] * 2
    assert not torch.signbit(model.weight).any()
    assert model.weight.dtype == torch.float32
    assert model.weight.requires_grad
    assert model.steps.item() == 2**40
    assert model.passing.item() == torch.tensor(0.1).item()  # not stored, so not rounded
    before = model.weight.clone()
    round_values(model)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("embeddings", Values)
def test_a_head_with_one_output_is_not_rounded(embeddings: Values) -> None:
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1e6 + 0.1, 1e-9, -0.1, 0.3]]))
        model.bias.fill_(123456.789)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    round_values(model, coding=Coding(Values.INT8, embeddings))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_a_missing_package_is_one_line(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom mvprune import load"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = f"load needs the package {package}: pip install 'mvprune[runtime]'"
    assert answer.stderr.splitlines()[-1].endswith(line)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        artifact.nothing  # noqa: B018
