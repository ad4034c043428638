"""ONNX files of models that write text: with a cache of keys and values, they write what torch's generate writes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tests.unit.artifact.conftest import saving
from tests.unit.core.decoders import decoder
from tests.unit.core.encoder_decoders import encoder_decoder
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from mvprune import load
from mvprune.artifact import ArtifactError, ResultInfo, round_values
from mvprune.export import Exported, export
from mvprune.export.graphs import TOLERANCE, Graphs, OneGraph, Session
from mvprune.export.writing import DecoderGraphs, EncoderDecoderGraphs, _same_token, graphs_of

Save = Callable[..., Path]
NEW = 9
FILES = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
# With relative positions, and with those of the tokens.
ENCODER_DECODERS: dict[str, dict[str, Any]] = {"t5": {}, "encoder-decoder": {"layers": 1}}
DECODERS: dict[str, dict[str, Any]] = {"gpt2": {}, "mistral": {"sliding_window": 4, "num_hidden_layers": 1}}
BESIDE = {"config.json", "generation_config.json", "vocab.txt", "templates/chat.jinja"}
_BLOCK = re.compile(r"\.(layers?|block|h)\.\d")


def pruned(model: Any) -> list[str]:
    """Half of the weights of the blocks are zeros."""
    names = [name for name, value in model.named_parameters() if _BLOCK.search(name) and value.ndim == 2]
    names = [name for name in names if "relative_attention_bias" not in name]
    with torch.no_grad():
        for name in names:
            weight = model.get_parameter(name)
            weight.mul_((torch.rand_like(weight) < 0.5).float())
    round_values(model, names)
    return names


def saved(save: Save, name: str) -> Path:
    if name in DECODERS:
        model = decoder(name, **DECODERS[name])
    else:
        model = encoder_decoder(name, **ENCODER_DECODERS[name])
        with torch.no_grad():
            for weight in (value for path, value in model.named_parameters() if ".crossattention." in path):
                weight.mul_(3)  # with one layer, texts would hardly depend on their sources
        model.generation_config.decoder_start_token_id = 2
        model.generation_config.num_beams = 3  # the files leave this to whoever calls them
    model.eval()
    return save(model, pruned(model), folder=name)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, result: ResultInfo) -> tuple[Path, Exported]:
    """The artifact of a pruned pair of an encoder and a decoder, and its ONNX files."""
    folder = tmp_path_factory.mktemp("pair")
    artifact = saved(saving(folder, result), "encoder-decoder")
    return artifact, export(artifact, folder / "onnx", to="onnx")


def opened(folder: Path, name: str) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert len(set(names)) == len(names)
    return lambda inputs: dict(zip(names, session.run(None, dict(inputs)), strict=True))


def shapes(folder: Path, name: str) -> dict[str, list[Any]]:
    session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    return {one.name: one.shape for one in (*session.get_inputs(), *session.get_outputs())}


def padded(tokens: int, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(4, 30, (3, tokens), generator=torch.Generator().manual_seed(7))
    mask = torch.ones_like(ids)
    for row, kept in enumerate((tokens, tokens - 2, 2)):
        mask[row, : tokens - kept] = 0
    mask = mask if left else mask.flip(1)
    return ids * mask, mask


def renamed(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.replace("present", "past_key_values"): value for name, value in outputs.items() if "present" in name}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ENCODER_DECODERS))
def test_an_encoder_decoder_writes_what_generate_writes(
    save: Save, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    if name == "encoder-decoder":
        artifact, done = request.getfixturevalue("pair")
    else:
        artifact = saved(save, name)
        done = export(artifact, tmp_path / "onnx", to="onnx")
    folder = done.folder
    assert done.files.keys() == {*FILES, *BESIDE}
    assert 0 < (done.difference or 0) < TOLERANCE == done.tolerance
    assert done.notes[0].startswith("the decoder's weights are in decoder_model.onnx, for the first token")

    past, present = arrays_of(1)
    assert list(shapes(folder, FILES[0])) == ["input_ids", "attention_mask", "last_hidden_state"]
    found = shapes(folder, FILES[1])
    assert list(found) == ["input_ids", "encoder_hidden_states", "encoder_attention_mask", "logits", *present]
    found = shapes(folder, FILES[2])
    own = [one for one in present if ".decoder." in one]
    assert list(found) == ["input_ids", "encoder_attention_mask", *past, "logits", *own]
    assert found["input_ids"] == ["batch_size", 1]
    assert found[past[0]] == ["batch_size", 2, "past_decoder_sequence_length", 16]

    ids, mask = padded(9, left=False)
    encoder, first, then = (opened(folder, one) for one in FILES)
    constant = {"encoder_attention_mask": mask.numpy()}
    hidden = encoder({"input_ids": ids.numpy(), "attention_mask": mask.numpy()})["last_hidden_state"]
    text = np.full((3, 1), 2)
    outputs = first({"input_ids": text, "encoder_hidden_states": hidden, **constant})
    state = renamed(outputs)
    for _ in range(NEW):
        text = np.concatenate([text, outputs["logits"][:, -1:].argmax(-1)], axis=1)
        outputs = then({"input_ids": text[:, -1:], **constant, **state})
        state |= renamed(outputs)
    model: Any = load(artifact)
    options: dict[str, Any] = {"num_beams": 1, "max_new_tokens": NEW, "min_new_tokens": NEW}
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    wanted = model.generate(ids, attention_mask=mask, **options)
    assert text.tolist() == wanted.tolist()
    assert len({tuple(row) for row in text.tolist()}) == 3, "texts depend on their sources"


def arrays_of(layers: int) -> tuple[list[str], list[str]]:
    """The names of an encoder-decoder's keys and values, as inputs and as outputs."""
    parts = [f"{layer}.{part}" for layer in range(layers) for part in ("decoder", "encoder")]
    named = [f"{part}.{what}" for part in parts for what in ("key", "value")]
    return [f"past_key_values.{one}" for one in named], [f"present.{one}" for one in named]


def test_arrays_of_several_layers_come_layer_by_layer() -> None:
    first, then = graphs_of(encoder_decoder("encoder-decoder", layers=2).eval()).all()[1:]
    past, present = arrays_of(2)
    assert list(first.model(**first.example, return_dict=True)) == ["logits", *present]
    assert list(then.example) == ["input_ids", "encoder_attention_mask", *past]
    own = [one for one in present if ".decoder." in one]
    assert list(then.model(**then.example, return_dict=True)) == ["logits", *own]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_decoder_writes_what_generate_writes(save: Save, tmp_path: Path, name: str) -> None:
    artifact, folder = saved(save, name), tmp_path / "onnx"
    done = export(artifact, folder, to="onnx")
    assert done.files.keys() == {"model.onnx", *BESIDE}
    assert 0 < (done.difference or 0) < TOLERANCE == done.tolerance
    found = shapes(folder, "model.onnx")
    layers = 1 if name == "mistral" else 2
    parts = [f"{layer}.{what}" for layer in range(layers) for what in ("key", "value")]
    arrays = [f"past_key_values.{one}" for one in parts]
    ids_mask_places = ["input_ids", "attention_mask", "position_ids"]
    assert list(found) == [*ids_mask_places, *arrays, "logits", *(f"present.{one}" for one in parts)]

    ids, mask = padded(6, left=True)
    write, text, state = opened(folder, "model.onnx"), ids.numpy(), {}
    for one in arrays:
        _, heads, _, size = found[one]
        state[one] = np.zeros((3, heads, 0, size), np.float32)
    kept, new = mask.numpy(), text
    for _ in range(NEW):
        places = (kept.cumsum(1) - 1).clip(0)[:, -new.shape[1] :]
        outputs = write({"input_ids": new, "attention_mask": kept, "position_ids": places, **state})
        state, new = renamed(outputs), outputs["logits"][:, -1:].argmax(-1)
        text, kept = np.concatenate([text, new], axis=1), np.concatenate([kept, np.ones_like(new)], axis=1)
    wanted = load(artifact).generate(ids, attention_mask=mask, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0)
    assert text.tolist() == wanted.tolist()


@pytest.mark.slow
def test_all_files_are_rounded(pair: tuple[Path, Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, plain = pair

    def traced(model: Any, example: Any, outputs: Any, path: Path, sizes: Any) -> None:
        """Takes the files of the same model, which torch would make again in many seconds."""
        shutil.copy(plain.folder / path.name, path)

    monkeypatch.setattr("mvprune.export.onnx.trace", traced)
    done = export(artifact, tmp_path / "int8", to="onnx", quantize="int8")
    # One layer each. Encoder: 6; decoder: 10 and 2 of its head; with a past: no keys and values of the cross-attention.
    assert done.notes[0].startswith(f"int8: {6 + 12 + 10} products; ")
    assert done.tolerance is None
    assert 0 < (done.difference or 0) < 0.2
    assert done.files.keys() == plain.files.keys()
    assert all(done.files[name] < plain.files[name] for name in FILES)


@pytest.mark.slow
def test_files_of_another_model_are_refused(pair: tuple[Path, Exported], tmp_path: Path) -> None:
    artifact, done = pair
    folder = shutil.copytree(done.folder, tmp_path / "onnx")
    model: Any = load(artifact)
    with torch.no_grad():
        model.decoder.bert.encoder.layer[0].output.dense.bias[0] += 1
    with pytest.raises(ArtifactError, match=r"^decoder_model.onnx: logits must be within 1e-04 of torch's, got"):
        graphs_of(model).check(folder)
    (folder / FILES[2]).unlink()
    with pytest.raises(ArtifactError, match="EncoderDecoderModel cannot be exported to ONNX: onnxruntime"):
        graphs_of(model).check(folder)


def test_a_model_whose_layers_keep_something_else_is_refused(save: Save, tmp_path: Path) -> None:
    model = decoder("gpt2").eval()
    artifact = save(model, pruned(model))

    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("these layers\nkeep a state")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.transformer), "forward", breaks)
        with pytest.raises(ArtifactError, match=r"GPT2LMHeadModel cannot be exported to ONNX: .* these layers\)$"):
            export(artifact, tmp_path / "onnx", to="onnx")
    assert not list((tmp_path / "onnx").iterdir())


@pytest.mark.parametrize(
    ("kind", "graphs"),
    [("gpt2", DecoderGraphs), ("bart", EncoderDecoderGraphs), ("xlnet", OneGraph), ("mamba", OneGraph)],
)
def test_what_keeps_something_else_than_keys_and_values_has_no_cache(kind: str, graphs: type[Graphs]) -> None:
    sizes = {"xlnet": {"d_model": 32, "n_layer": 1, "n_head": 2}, "mamba": {"hidden_size": 32, "num_hidden_layers": 1}}
    if kind in sizes:
        model: Any = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](vocab_size=40, **sizes[kind]))
    else:
        model = encoder_decoder(kind) if kind == "bart" else decoder(kind)
    found = graphs_of(model)
    assert type(found) is graphs
    assert (len(found.notes) == 1) == (kind != "gpt2")


@pytest.mark.parametrize(
    ("logits", "refused"), [([1.0, 5.0, 3.0], False), ([1.0, 2.0, 3.0], False), ([9.0, 5.0, 3.0], True)]
)
def test_only_tokens_as_probable_as_torchs_are_taken(logits: list[float], refused: bool) -> None:
    session = Session.__new__(Session)
    session.file = "model.onnx"
    wanted, token = np.array([[1.0, 5.0, 5.0]]), np.array([1])
    if not refused:
        _same_token(session, np.array([logits]), wanted, token, TOLERANCE)
        return
    with pytest.raises(ArtifactError, match=r"model.onnx: the tokens that it writes must be those of torch's generate"):
        _same_token(session, np.array([logits]), wanted, token, TOLERANCE)
