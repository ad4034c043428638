"""Models that write text without torch: the tokens and texts are those of transformers' `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sealed import seal
from tests.tiers import first_fast
from tests.unit.infer.conftest import with_int8
from tests.unit.native.library.artifacts import coded, saved
from tests.unit.runtime.decoders import DECODERS, decoder
from tests.unit.runtime.pruned_models import needs_int8
from tests.unit.serving.writers import byte_tokenizer, write_decoder

from mvprune import infer, load
from mvprune.artifact import ArtifactError, read_manifest
from mvprune.data.textfiles import DataError
from mvprune.runtime import kernel
from mvprune.serving.writing import Wanted
from mvprune_core.prediction import Predictor

WORDS = 257
PROMPT = "hello, \u00e9\u65e5 "


def tokens_of(folder: Path, prompt: str = PROMPT, **parameters: Any) -> list[int]:
    with infer.load(folder, threads=1) as model:
        return [token.id for token in model.stream(prompt, **parameters)]


def generated(model: Any, prompt: str = PROMPT, new: int = 20, **settings: Any) -> list[int]:
    """The new tokens after the end token and those of the prompt."""
    ids = torch.tensor([[0, *byte_tokenizer()(prompt)["input_ids"]]])
    made = {"max_new_tokens": new, "do_sample": False, "eos_token_id": 0, "pad_token_id": 0} | settings
    found: list[int] = model.generate(ids, attention_mask=torch.ones_like(ids), **made)[0, ids.shape[1] :].tolist()
    return found


def model_of(name: str, **config: Any) -> Any:
    return decoder(name, vocab_size=WORDS, eos_token_id=0, **config)


@pytest.mark.parametrize("name", first_fast([*DECODERS]))
def test_the_tokens_are_those_of_the_dense_model(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    folder = saved(tmp_path / "out", model, density=0.2, tokenizer=byte_tokenizer())
    dense, sparse = load(folder), load(folder, runtime="sparse")
    for settings in ({}, {"no_repeat_ngram_size": 1}):  # the second has a text of many words
        wanted = generated(sparse, new=24, **settings)
        assert wanted == generated(dense, new=24, **settings)
        assert tokens_of(folder, max_new_tokens=24, **settings) == wanted
    assert len(set(wanted)) > 3


@needs_int8
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "Qwen3ForCausalLM"])
def test_activations_in_int8(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    folder = saved(tmp_path / "out", model, density=0.2, int8=True, tokenizer=byte_tokenizer())
    # Rounding makes much of little, so the first tokens only.
    assert tokens_of(folder, max_new_tokens=6) == generated(with_int8(folder), new=6)


@pytest.mark.parametrize(
    "config",
    [
        ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
        (
            "LlamaForCausalLM",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 500.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                }
            },
        ),
        ("LlamaForCausalLM", {"tie_word_embeddings": True, "hidden_act": "gelu", "attention_bias": True}),
        ("GPTNeoXForCausalLM", {"use_parallel_residual": False}),
        ("MistralForCausalLM", {"sliding_window": None}),
    ],
    ids=str,
)
@pytest.mark.parametrize("values", ["fp16", "int4"])
def test_other_configurations_and_codings(config: tuple[str, dict[str, Any]], values: str, tmp_path: Path) -> None:
    name, more = config
    folder = saved(
        tmp_path / "out", model_of(name, **more), density=0.3, coding=coded(values), tokenizer=byte_tokenizer()
    )
    assert tokens_of(folder, max_new_tokens=16) == generated(load(folder), new=16)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 1, "min_new_tokens": 18},
        {"eos_token_id": [0, *range(100, 180)]},
        {"top_k": 1, "do_sample": True},
        {"top_p": 0.0, "do_sample": True, "temperature": 3.0},
    ],
    ids=str,
)
def test_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    for place in ("parameters", "file"):
        folder = write_decoder(tmp_path / place, **(settings if place == "file" else {}))
        wanted = generated(load(folder), **settings)
        given = settings if place == "parameters" else {}
        assert tokens_of(folder, max_new_tokens=20, **given) == wanted


def test_sampling_is_by_the_probabilities_and_the_seed(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out")
    one = {"do_sample": True, "temperature": 5.0, "top_k": 4, "max_new_tokens": 1}
    first = torch.zeros(WORDS)
    ids = torch.tensor([[0, *byte_tokenizer()(PROMPT)["input_ids"]]])
    with torch.inference_mode():
        best = (load(folder)(ids).logits[0, -1] / 5).topk(4)
    first[best.indices] = best.values.softmax(0)
    with infer.load(folder, threads=1) as model:
        rounds = 600
        found = [next(iter(model.stream(PROMPT, seed=seed, **one))).id for seed in range(rounds)]
        counts = torch.bincount(torch.tensor(found), minlength=WORDS)
        assert (counts / rounds - first).abs().max() < 0.07
        texts = [model.generate([PROMPT], temperature=2.0, seed=seed, max_new_tokens=20)[0] for seed in (3, 3, 4)]
        assert texts[0] == texts[1] != texts[2]


def test_without_a_seed_each_text_is_sampled_anew(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out", do_sample=True, temperature=5.0, max_new_tokens=8)
    with infer.load(folder, threads=1) as model:
        texts = [*model.generate([PROMPT] * 4), *(one["generated_text"] for one in model.predict([PROMPT] * 4))]
        assert len(set(texts)) == len(texts)


def test_texts_come_in_pieces_and_end_before_a_stop(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out")
    writer = Predictor.open(folder).writer
    assert writer
    with infer.load(folder, threads=2) as model:
        assert (model.task, model.kind, model.writes, model.max_length) == ("causal-lm", "causal-lm", True, 64)
        for wanted in (
            Wanted("hello", {"max_new_tokens": 30}),
            Wanted("hello", {"max_new_tokens": 30, "no_repeat_ngram_size": 1}),
            Wanted("b" * 50 + "a" * 53, {"max_new_tokens": 10}, is_cut=True),
            Wanted("x", {}),
        ):
            pieces: list[Any] = []
            right = writer.write(wanted, pieces.append)
            text = model.stream(str(wanted.prompt), truncate=wanted.is_cut, **wanted.settings)
            tokens = list(text)
            assert "".join(token.text for token in tokens) == right.text
            assert (len(tokens), tokens[-1].ended) == (right.tokens, right.reason)
            assert (text.prompt_tokens, text.truncated_tokens) == (right.prompt_tokens, right.truncated_tokens)
            assert [token.text for token in tokens if token.text] == [piece.text for piece in pieces if piece.text]
        whole = model.generate(["hello"], max_new_tokens=30)[0]
        stop = whole[4:6]
        *_, last = tokens = list(model.stream("hello", max_new_tokens=30, stop=[stop, "never"]))
        assert "".join(token.text for token in tokens) == whole[: whole.index(stop)]
        assert last.ended == "stop"
        inputs = [{"text": "hello"}, {"text": "a" * 99}]
        assert model.predict(inputs) == Predictor.open(folder).predict(inputs)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out")
    with infer.load(folder) as model:
        for parameters, said in (
            ({"temperature": 0}, "temperature: must be a number from 0.01 to 100.00"),
            ({"max_new_tokens": 1.5}, "max_new_tokens: must be a whole number"),
            ({"num_beams": 4, "top_k": 3}, "do_sample must be false where num_beams is above 1"),
            ({"num_beams": 0}, "num_beams: must be a whole number from 1 to 64"),
            ({"stop": [""]}, "stop: must be a text that is not empty"),
            ({"do_sample": False, "top_p": 0.5}, "must not be given where do_sample is false"),
            ({"seed": object()}, "parameters: must be numbers, texts and flags"),
        ):
            with pytest.raises(DataError, match=said):
                model.generate(["a"], **parameters)
        with pytest.raises(DataError, match="text: must have at most 64 tokens, the model's positions, got 71"):
            model.generate(["a" * 70])
        with pytest.raises(DataError, match="less 60 for new tokens, got 6"):
            model.generate(["hello"], max_new_tokens=60)
        with pytest.raises(TypeError, match=r"give \[text\]"):
            model.generate("a")
        with pytest.raises(DataError, match="the model writes text: call mvprune_begin"):
            model.encode(["a"])
    for settings, said in (
        (
            {"num_beams": 4, "do_sample": True},
            "generation_config.json: do_sample must be false where num_beams is above 1",
        ),
        ({"suppress_tokens": [3]}, "suppress_tokens is a setting"),
    ):
        with pytest.raises(infer.Unsupported, match=f"{said}.*mvprune.load"):
            infer.load(write_decoder(tmp_path / next(iter(settings)), **settings))


HOSTILE: list[dict[str, Any]] = [{"hidden_size": value} for value in (0, -1, 2**31, 1.5, "48", None, 47, 24, 96)]
HOSTILE += [{"num_hidden_layers": value} for value in (0, 3, 2**40, 1001)]
HOSTILE += [{"num_attention_heads": value} for value in (0, 5, 2**33, 96, 1)]
HOSTILE += [{"num_key_value_heads": value} for value in (0, 3, 8)]
HOSTILE += [{"head_dim": value} for value in (0, 1, 5, 2**20, 13)]
HOSTILE += [{"rope_parameters": {"rope_type": "yarn"}}, {"rope_parameters": {"rope_theta": 0}}]
HOSTILE += [{"sliding_window": 8, "use_sliding_window": True}, {"hidden_act": "mish"}, {"max_position_embeddings": 0}]
HOSTILE += [{"architectures": ["GPT2LMHeadModel"]}, {"architectures": ["UMT5ForConditionalGeneration"]}]


def test_hostile_configurations(tmp_path: Path) -> None:
    folder = saved(tmp_path / "out", model_of("Qwen3ForCausalLM"), density=0.3, tokenizer=byte_tokenizer())
    config = json.loads((folder / "config.json").read_bytes())
    for changed in HOSTILE:
        (folder / "config.json").write_text(json.dumps(config | changed))
        seal(folder, read_manifest(folder))
        with pytest.raises(ArtifactError, match=r"config\.json"):
            infer.load(folder)


_PROGRAM = """
import sys
from mvprune import infer
with infer.load(sys.argv[1], threads=2) as model:
    print(model.instructions, [token.id for token in model.stream(sys.argv[2], max_new_tokens=12)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_other_instruction_sets(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "out", model_of(name), density=0.2, tokenizer=byte_tokenizer())
    wanted = generated(load(folder), new=12)
    for isa in ("avx2", "generic"):
        if isa == "avx2" and kernel.isa() not in ("avx512", "avx2"):
            continue
        environment = dict(os.environ, MVPRUNE_KERNEL=isa)
        command = [sys.executable, "-c", _PROGRAM, str(folder), PROMPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{isa} {wanted}\n"
