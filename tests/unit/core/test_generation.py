"""Artifacts of decoders write text: as the pruned model does, with the settings of the original one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.decoders import DECODERS, decoder, of_decoders
from tests.unit.core.tasks.test_masked_lm import passages
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mvprune import load
from mvprune.artifact import ArtifactError
from mvprune.artifact.generation import GENERATION_FILE, read_generation
from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune_core import Result, Training, compress
from mvprune_core.prediction import Predictor

# The last one only means something with beams: transformers would not save what it did not load so.
SETTINGS = {"max_new_tokens": 9, "no_repeat_ngram_size": 3, "repetition_penalty": 1.3, "length_penalty": 0.5}
MADE: dict[str, Any] = {"attention_mask": torch.ones(2, 6, dtype=torch.long)}
IDS = torch.randint(4, 30, (2, 6), generator=torch.Generator().manual_seed(0))
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 10},
    "beams that sample": {"num_beams": 2, "do_sample": True},
    "longer": {"max_new_tokens": 20, "repetition_penalty": 1.0},
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast
) -> Callable[[str], tuple[Result, Path]]:
    """A pruned decoder and its artifact."""
    data = PassageData(get_task("causal-lm"), passages(30, 1), passages(10, 2))
    training = Training(max_steps=3, batch_size=4, learning_rate=1e-3, max_length=24)

    @cache
    def make(name: str) -> tuple[Result, Path]:
        folder, model = tmp_path_factory.mktemp(name), decoder(name)
        model.save_pretrained(folder / "model")
        (folder / "model" / GENERATION_FILE).write_text(json.dumps(SETTINGS))
        of_decoders(tokenizer).save_pretrained(folder / "model")
        options: dict[str, Any] = {"method": "magnitude", "density": 0.3, "dense_baseline": False}
        result = compress(folder / "model", data, training=training, **options)
        result.save(folder / "artifact")
        return result, folder / "artifact"

    return make


def written(model: Any, **options: Any) -> list[list[int]]:
    torch.manual_seed(3)
    found: list[list[int]] = model.generate(IDS, **MADE, **options).tolist()
    return found


# transformers reads a tokenizer beside a Qwen2 as bytes, which this one is not.
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "qwen2"])
def test_the_artifact_writes_what_the_pruned_model_does(
    made: Callable[[str], tuple[Result, Path]], name: str, tmp_path: Path
) -> None:
    result, folder = made(name)
    kept, model = json.loads((folder / GENERATION_FILE).read_text()), load(folder)
    assert SETTINGS.items() <= kept.items()
    assert model.generation_config.use_cache is not False
    assert kept["pad_token_id"] == result.tokenizer.pad_token_id
    assert len(written(model)[0]) == 6 + 9
    for way, options in WAYS.items():
        assert written(model, **options) == written(result.model, use_cache=False, **options), way
    sparse = load(folder, runtime="sparse")
    for way in ("greedy", "longer", "beams"):
        assert written(sparse, **WAYS[way]) == written(model, **WAYS[way]), way
    export(folder, tmp_path / "dense", to="dense")
    dense = AutoModelForCausalLM.from_pretrained(tmp_path / "dense")
    assert SETTINGS.items() <= dense.generation_config.to_dict().items()
    assert written(dense) == written(model)


@pytest.mark.parametrize("runtime", ["dense", "sparse"])
def test_a_predictor_goes_on_from_a_text_whatever_its_company(
    made: Callable[[str], tuple[Result, Path]], runtime: Any
) -> None:
    result, folder = made("gpt2")
    predictor = Predictor.open(folder, runtime=runtime)
    texts = ["good word1", "bad", " ".join(["word2"] * 30)]
    found = predictor.predict([{"text": text} for text in texts])
    assert found == [predictor.predict([{"text": text}])[0] for text in texts]
    ids = result.tokenizer(result.tokenizer.eos_token + "good word1", return_tensors="pt")
    expected: Any = result.model
    tokens = expected.generate(**ids, eos_token_id=result.tokenizer.eos_token_id)[0, 3:]
    assert found[0] == {"generated_text": result.tokenizer.decode(tokens, skip_special_tokens=True)}
    assert len(found[0]["generated_text"].split()) > 2


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("[]", "must be a JSON object"),
        ("{", "invalid JSON"),
        ('{"max_new_tokens": -1}', "must be settings of generation"),
    ],
)
def test_files_that_hold_no_settings_are_refused(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / GENERATION_FILE).write_text(content)
    with pytest.raises(ArtifactError, match=f"^{GENERATION_FILE}: .*{found}"):
        read_generation(tmp_path, decoder("gpt2"))


def test_settings_take_no_place_of_methods(tmp_path: Path) -> None:
    names = {"validate": "x", "custom_generate": "owner/code", "use_cache": False, "_from_model_config": 1}
    (tmp_path / GENERATION_FILE).write_text(json.dumps(names | {"num_beams": 4}))
    model: Any = decoder("gpt2")
    read_generation(tmp_path, model)
    assert callable(model.generation_config.validate)
    assert not hasattr(model.generation_config, "custom_generate")
    assert (model.generation_config.num_beams, model.generation_config.use_cache) == (4, None)


def test_an_artifact_without_settings_has_those_of_its_config(
    made: Callable[[str], tuple[Result, Path]], tmp_path: Path
) -> None:
    shutil.copytree(made("gpt2")[1], tmp_path / "old")
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if file["path"] != GENERATION_FILE]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    (tmp_path / "old" / GENERATION_FILE).unlink()
    model = load(tmp_path / "old")
    assert model.generation_config.use_cache
    assert model.generation_config.max_new_tokens is None
