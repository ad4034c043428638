"""Models with an encoder and a decoder without torch: the tokens and texts are those of transformers' `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import transformers
from tests.sealed import seal
from tests.tiers import first_fast
from tests.unit.infer.conftest import with_int8
from tests.unit.native.library.artifacts import coded, saved
from tests.unit.runtime.decoders import ENCODER_DECODERS, T5S, decoder
from tests.unit.runtime.pruned_models import needs_int8
from tests.unit.serving.writers import END, byte_tokenizer
from tokenizers import processors

from mvprune import infer, load
from mvprune.artifact import ArtifactError, read_manifest
from mvprune.data.textfiles import DataError
from mvprune.runtime import kernel
from mvprune.serving.engine import native_engine
from mvprune.serving.writing import PromptRefused, Wanted
from mvprune_core.prediction import Predictor

WORDS = 257
PROMPT = "hello, \u00e9\u65e5 and twelve more words "
LONGEST = 24
"""Tokens of the longest input in training."""


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Of bytes, with a token at the end of each text."""
    made = byte_tokenizer()
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 0)])
    return made


def artifact(folder: Path, name: str, *, values: str = "fp16", int8: bool = False, **config: Any) -> Path:
    """Of a summarizer, which reads texts of up to LONGEST tokens."""
    folder.mkdir(parents=True)
    for file, content in _files(name, values, int8, **config).items():
        (folder / file).write_bytes(content)
    return folder


@cache
def _files(name: str, values: str, int8: bool, **config: Any) -> dict[str, bytes]:
    """What `artifact` writes: many tests ask for the same."""
    with TemporaryDirectory() as folder:
        made = _saved(Path(folder) / "out", name, values=values, int8=int8, **config)
        return {file.name: file.read_bytes() for file in made.iterdir()}


def _saved(folder: Path, name: str, *, values: str, int8: bool, **config: Any) -> Path:
    words = {"decoder_vocab_size": WORDS} if name == "MarianMTModel" else {}
    model = decoder(name, 0.3, vocab_size=WORDS, **words, **config)
    return saved(
        *(folder, model),
        density=0.3,
        coding=coded(values),
        int8=int8,
        tokenizer=tokenizer(),
        task="xsum",
        source_prefix="say: ",
        training={"max_length": LONGEST},
    )


def changed(folder: Path, file: str, **content: Any) -> Path:
    """The folder with other members in a JSON file."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_bytes()) | content))
    seal(folder, read_manifest(folder))
    return folder


def tokens_of(folder: Path, prompt: str = PROMPT, **parameters: Any) -> list[int]:
    with infer.load(folder, threads=2) as model:
        return [token.id for token in model.stream(prompt, truncate=True, **parameters)]


def generated(model: Any, prompt: str = PROMPT, new: int = 20, **settings: Any) -> list[int]:
    """The tokens after the start token."""
    ids = tokenizer()(f"say: {prompt}", truncation=True, max_length=LONGEST, return_tensors="pt")["input_ids"]
    made = {"max_new_tokens": new, "do_sample": False} | settings
    found: list[int] = model.generate(ids, attention_mask=torch.ones_like(ids), **made)[0, 1:].tolist()
    return found


@pytest.mark.parametrize("name", [*first_fast([*ENCODER_DECODERS]), *first_fast([*T5S])])
def test_the_tokens_are_those_of_the_dense_model(name: str, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", name)
    dense, sparse = load(folder), load(folder, runtime="sparse")
    for settings in ({}, {"no_repeat_ngram_size": 1}):  # the second has a text of many words
        wanted = generated(dense, new=40, **settings)
        assert wanted == generated(sparse, new=40, **settings)
        assert tokens_of(folder, max_new_tokens=40, **settings) == wanted
    assert len(set(wanted)) > 20


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
        ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-silu"}),
        ("MT5ForConditionalGeneration", {"feed_forward_proj": "relu"}),
        ("BartForConditionalGeneration", {"scale_embedding": False, "activation_function": "relu"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("values", ["fp32", "int8", "int4"])
def test_other_configurations_and_codings(name: str, config: dict[str, Any], values: str, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", name, values=values, **config)
    assert tokens_of(folder, max_new_tokens=16, no_repeat_ngram_size=1) == generated(
        load(folder), new=16, no_repeat_ngram_size=1
    )


def test_a_vocabulary_of_its_own(tmp_path: Path) -> None:
    """Marian may have two, and a bias of its words."""
    separate = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    model = decoder("MarianMTModel", 0.3, vocab_size=WORDS, decoder_vocab_size=WORDS - 3, **separate)
    model.final_logits_bias.normal_(0, 3)
    folder = saved(tmp_path / "out", model, density=0.3, tokenizer=tokenizer(), task="xsum", source_prefix="say: ")
    changed(folder, "generation_config.json", bad_words_ids=[[5]])
    ids = tokenizer()(f"say: {PROMPT}", return_tensors="pt")["input_ids"]
    settings: dict[str, Any] = {"max_new_tokens": 16, "no_repeat_ngram_size": 1}
    assert tokens_of(folder, **settings) == load(folder).generate(ids, do_sample=False, **settings)[0, 1:].tolist()


@needs_int8
@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "T5ForConditionalGeneration"])
def test_activations_in_int8(name: str, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", name, int8=True)
    # Rounding makes much of little, so the first tokens only.
    assert tokens_of(folder, max_new_tokens=6) == generated(with_int8(folder), new=6)


@pytest.mark.parametrize(
    "settings",
    [
        {"forced_bos_token_id": 77, "forced_eos_token_id": 2},
        {"forced_eos_token_id": [90, 80]},
        {"decoder_start_token_id": 9},
        {"repetition_penalty": 1.7, "min_length": 12, "eos_token_id": list(range(90, 200))},
        {"no_repeat_ngram_size": 2, "bad_words_ids": [[10], [149, 149], [2], [142, 10]]},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "T5ForConditionalGeneration"])
def test_settings_of_the_file(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    folder = changed(artifact(tmp_path / "out", name), "generation_config.json", **settings)
    assert tokens_of(folder, max_new_tokens=20) == generated(load(folder))


@pytest.mark.parametrize("name", first_fast(["BartForConditionalGeneration", "T5ForConditionalGeneration"]))
def test_both_engines_serve_the_same_texts(name: str, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", name)
    predictor = Predictor.open(folder)
    native = native_engine(folder, threads=1, activations=None, hypotheses=None)
    assert predictor.writer
    assert native.writer
    assert native.writer.why_no_chat == predictor.writer.why_no_chat != ""
    assert (native.facts.task, native.facts.kind, native.facts.max_tokens) == ("xsum", "summarization", LONGEST)
    for wanted in (
        Wanted("hello", {"max_new_tokens": 30, "no_repeat_ngram_size": 1}),
        Wanted("a longer text than it may be", {"max_new_tokens": 7, "repetition_penalty": 1.3}, is_cut=True),
        Wanted("x", {"max_new_tokens": 100, "no_repeat_ngram_size": 2}, stop=["\u0001", "!"]),
        Wanted("hello", {"num_beams": 4, "length_penalty": 2.0, "max_new_tokens": 30}),
        Wanted("x", {}),
    ):
        assert native.writer.write(wanted) == predictor.writer.write(wanted)
    inputs = [{"text": "hello"}, {"text": "a" * 99}]
    answers = native.predictor.predict(inputs)
    assert answers == predictor.predict(inputs)
    assert answers[1]["truncated_tokens"] == 99 + 6 - LONGEST
    said = set()
    for writer in (native.writer, predictor.writer):
        with pytest.raises(PromptRefused, match="the longest input in its training") as refused:
            writer.write(Wanted("a" * 99))
        said.add(refused.value.message)
    assert len(said) == 1


def test_ids_are_read_as_they_are(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", "T5ForConditionalGeneration")
    with infer.load(folder) as model:
        whole = [token.id for token in model.stream(f"say: {PROMPT[:9]}{END}", has_begin=True, max_new_tokens=9)]
        assert whole == [token.id for token in model.stream(PROMPT[:9], max_new_tokens=9)]
        with pytest.raises(DataError, match="whole number"):
            model.generate(["a"], num_beams=0.5)


HOSTILE: dict[str, list[dict[str, Any]]] = {
    "T5ForConditionalGeneration": [
        *({"d_model": value} for value in (0, -1, 2**31, 1.5, "48", None, 47, 24, 96)),
        *({"num_layers": value, "num_decoder_layers": None} for value in (0, 3, 2**40, 1001)),
        *({"num_heads": value} for value in (0, 5, 2**33, 1)),
        *({"d_kv": value} for value in (0, 5, 2**20, 24)),
        *({"relative_attention_num_buckets": value} for value in (0, 1, 13, 2**40)),
        *({"relative_attention_max_distance": value} for value in (0, 11, 2**60)),
        *({"feed_forward_proj": value} for value in ("gated-gelu", "mish", "gated-")),
        {"architectures": ["BartForConditionalGeneration"]},
        {"architectures": ["T5EncoderModel"]},
    ],
    "BartForConditionalGeneration": [
        *({"d_model": value} for value in (0, 2**31, 47, 96)),
        *({"encoder_layers": value} for value in (0, 3, 2**40)),
        *({"decoder_layers": value} for value in (0, 3)),
        *({"encoder_attention_heads": value} for value in (0, 5, 2**33)),
        *({"decoder_attention_heads": value} for value in (0, 7, 96)),
        *({"max_position_embeddings": value} for value in (0, None, 2**40)),
        {"activation_function": "mish"},
        {"architectures": ["MBartForConditionalGeneration"]},
        {"architectures": ["T5ForConditionalGeneration"]},
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_configurations(name: str, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "out", name)
    config = json.loads((folder / "config.json").read_bytes())
    for spoiled in HOSTILE[name]:
        with pytest.raises(ArtifactError, match=r"config\.json|weights\.safetensors|weight"):
            infer.load(changed(folder, "config.json", **spoiled))
        changed(folder, "config.json", **config)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decoder_start_token_id": 257}, "decoder_start_token_id must be a token of the model"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id must be a whole number"),
        ({"decoder_start_token_id": None, "bos_token_id": None}, "decoder_start_token_id must be"),
        ({"forced_eos_token_id": [2, 2**40]}, "forced_eos_token_id must be a token of the model"),
        ({"bad_words_ids": [[]]}, "bad_words_ids must be lists of tokens"),
        ({"bad_words_ids": [5, "x"]}, "bad_words_ids must be"),
        ({"encoder_repetition_penalty": 2.0}, "encoder_repetition_penalty is a setting that is not computed here"),
        ({"num_beam_groups": 2}, "num_beam_groups is a setting that is not computed here"),
    ],
    ids=str,
)
def test_what_is_wrong_in_settings_is_said(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = changed(artifact(tmp_path / "out", "BartForConditionalGeneration"), "generation_config.json", **settings)
    with pytest.raises(ArtifactError, match=rf"generation_config\.json: {said}"):
        infer.load(folder)


_PROGRAM = """
import sys
from mvprune import infer
with infer.load(sys.argv[1], threads=2) as model:
    print(model.instructions, [token.id for token in model.stream(sys.argv[2], truncate=True, max_new_tokens=30)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PegasusForConditionalGeneration", "BartForConditionalGeneration", *T5S])
def test_other_instruction_sets(name: str, tmp_path: Path) -> None:
    folder = changed(artifact(tmp_path / "out", name), "generation_config.json", no_repeat_ngram_size=1)
    wanted = generated(load(folder), new=30)
    for isa in ("avx2", "generic"):
        if isa == "avx2" and kernel.isa() not in ("avx512", "avx2"):
            continue
        environment = dict(os.environ, MVPRUNE_KERNEL=isa)
        command = [sys.executable, "-c", _PROGRAM, str(folder), PROMPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{isa} {wanted}\n"
