"""Causal language modelling: blocks of text, windows, perplexity, gradients, what is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st
from tests.unit.core.decoders import DECODERS, decoder, gpt2, of_decoders
from tests.unit.core.tasks.test_masked_lm import passages
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import settings
from tokenizers import processors
from torch.nn import functional
from transformers import BartConfig, BertConfig, BertLMHeadModel, PreTrainedTokenizerFast, T5Config

from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Reason, Stopped, Teacher, Training, compress
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED, Examples
from mvprune_core.tasks.losses import NextTokenCrossEntropy
from mvprune_core.training.gradients import BatchGradients

CPU = torch.device("cpu")


@pytest.fixture
def words(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    return of_decoders(tokenizer)


def of(*texts: str) -> Any:
    return objective_for(PassageData(get_task("causal-lm"), texts, texts))


def rows(examples: Examples, of_labels: str = "") -> list[list[int]]:
    columns = examples.notes["label"] if of_labels == "note" else examples.inputs[of_labels or "input_ids"]
    return [row.tolist() for row in columns]


def varied(count: int, seed: int) -> tuple[str, ...]:
    """Texts of several words, of different lengths."""
    source = random.Random(seed)
    return tuple(" ".join(f"word{source.randrange(20)}" for _ in range(source.randint(1, 30))) for _ in range(count))


def test_texts_are_joined_by_the_end_of_text_and_cut_into_blocks(words: PreTrainedTokenizerFast) -> None:
    good, bad, great, end, unknown = words.convert_tokens_to_ids(["good", "bad", "great", "[SEP]", "[UNK]"])
    examples = of("good bad", "great unseen", "bad").training_examples(words, None, 3)
    assert rows(examples) == [[end, good, bad], [end, great, unknown], [end, bad, end]]
    assert rows(examples, "labels") == [[IGNORED, good, bad], [IGNORED, great, IGNORED], [IGNORED, bad, end]]
    assert examples.per_token
    assert rows(of("good bad great").training_examples(words, None, 4)) == [[end, good, bad, great]], (
        "one token is none"
    )


def test_a_begin_token_stands_before_every_text(words: PreTrainedTokenizerFast) -> None:
    begin, end, good, bad = words.convert_tokens_to_ids(["[CLS]", "[SEP]", "good", "bad"])
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", begin)]
    )
    examples = of("good", "bad").training_examples(words, None, 9)
    assert rows(examples) == [[begin, good, end, begin, bad, end]]
    assert rows(examples, "labels") == [[IGNORED, good, end, IGNORED, bad, end]], "nobody has to predict it"


@tries(max_examples=40, deadline=None)
@given(count=st.integers(1, 6), seed=st.integers(0, 99), length=st.integers(2, 20))
def test_every_token_counts_once_with_half_a_window_before_it(
    tokenizer: PreTrainedTokenizerFast, count: int, seed: int, length: int
) -> None:
    words, texts = of_decoders(tokenizer), varied(count, seed)
    end = words.eos_token_id
    stream = [end, *(token for text in texts for token in (*words(text)["input_ids"], end))]
    examples = of(*texts).validation_examples(words, None, length)
    counted, start = [], 0
    for number, (ids, labels) in enumerate(zip(rows(examples), rows(examples, "note"), strict=True)):
        start = number * (length // 2)
        assert ids == stream[start : start + length]
        places = [place for place, label in enumerate(labels) if label != IGNORED]
        assert places == list(range(places[0], len(ids)))
        assert number == 0 or places[0] >= length - length // 2
        counted += [start + place for place in places]
    assert counted == list(range(1, len(stream)))


def by_hand(model: Any, tokens: list[int], length: int, stride: int) -> tuple[float, float]:
    """Perplexity and accuracy, as https://huggingface.co/docs/transformers/perplexity computes it."""
    losses, right, counted = [], 0, 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + length, len(tokens))
        ids = torch.tensor([tokens[begin:end]])
        with torch.no_grad():
            logits = model(ids).logits[0]
        for place in range(max(counted, 1), end):
            row, token = logits[place - 1 - begin], tokens[place]
            losses.append(float(functional.cross_entropy(row[None], torch.tensor([token]))))
            right += int(row.argmax()) == token
        counted = end
        if end == len(tokens):
            break
    return math.exp(sum(losses) / len(losses)), right / len(losses)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("length", [8, 13, 400])
def test_perplexity_is_that_of_a_loop_by_hand(words: PreTrainedTokenizerFast, name: str, length: int) -> None:
    texts, model = varied(7, 3), decoder(name, max_position_embeddings=400).eval()
    objective = of(*texts)
    examples = objective.validation_examples(words, None, length)
    words.pad_token = words.eos_token
    found = objective.measure(objective.predict(model, examples, CPU))
    tokens = words.eos_token.join(["", *texts, ""])
    perplexity, accuracy = by_hand(model, words(tokens)["input_ids"], length, length // 2)
    assert found["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert found["accuracy"] == pytest.approx(accuracy, abs=1e-12)


def test_a_constant_answer_is_the_frequency_of_the_tokens(words: PreTrainedTokenizerFast) -> None:
    objective = of("good good bad")
    metrics = objective.constant_metrics(objective.validation_examples(words, None, 16))
    entropy = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    assert metrics == [{"perplexity": pytest.approx(math.exp(entropy)), "accuracy": 0.5}]


def test_parts_of_a_batch_have_the_gradients_of_the_whole(words: PreTrainedTokenizerFast) -> None:
    """Weighted by the labels that are compared: the first of a row is not, and rows have different numbers of them."""
    examples = of(*varied(9, 5)).training_examples(words, None, 23)
    ignored = [row.copy() for row in examples.inputs["labels"]]
    ignored[1][3:] = IGNORED
    examples = replace(examples, inputs={**examples.inputs, "labels": ignored})
    batch = examples.batch(np.arange(4), CPU)
    model = gpt2()
    model(**batch).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    for parts in (1, 2, 4):
        model = gpt2()
        chosen, loss = settings(accumulation_steps=parts), NextTokenCrossEntropy()
        made = BatchGradients(model=model, forward=model, examples=examples, loss=loss, settings=chosen, seed=0)
        made.compute(np.arange(4), 0)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", DECODERS)
def test_blocks_are_pruned_and_the_vocabulary_never(name: str, words: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """Tied to the embeddings or not."""
    for tied in (True, False):
        folder = tmp_path / f"{name}-{tied}"
        model = decoder(name, tie_word_embeddings=tied)
        layers = prunable_layers(model)
        matrices = [key for key, value in model.named_parameters() if value.dim() == 2 and ".0." in f".{key}"]
        assert {key for key in matrices if "norm" not in key} == {f"{key}.weight" for key in layers if ".0." in key}
        assert not any("lm_head" in key or "embed" in key or "wte" in key for key in layers)
        model.save_pretrained(folder)
        words.save_pretrained(folder)
        loaded = load_model(find_model(folder, None), of("good"), seed=0)
        assert (loaded.model.get_output_embeddings().weight is loaded.model.get_input_embeddings().weight) is tied
        assert not loaded.new
        if not name.startswith("qwen"):  # its tokenizer has a padding token by default
            assert [note for note in loaded.notes if "no padding token" in note]
            assert loaded.tokenizer.pad_token == loaded.tokenizer.eos_token == "[SEP]"


def test_what_is_no_decoder_is_refused(
    bert_config: Callable[..., BertConfig], save: Callable[..., Path], words: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(
        CompressionError, match=r"must predict a token only from those before it, got BertLMHeadModel, .* give a"
    ):
        load_model(find_model(save(BertLMHeadModel(bert_config())), None), of("good"), seed=0)
    load_model(find_model(save(BertLMHeadModel(bert_config(is_decoder=True)), "decoder"), None), of("good"), seed=0)
    with pytest.raises(
        CompressionError, match=r"has an AutoModelForCausalLM for, got t5; give a decoder such as GPT-2"
    ):
        of("good").check_config(T5Config())
    with pytest.raises(CompressionError, match=r"must be a decoder for causal-lm, got bart") as raised:
        of("good").check_config(BartConfig())
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


def test_tokenizers_and_texts_that_will_not_do(
    tokenizer: PreTrainedTokenizerFast, words: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(CompressionError, match=r"must have an end-of-text token .* set eos_token") as raised:
        of("good").training_examples(tokenizer, None, 16)
    assert raised.value.reason is Reason.INVALID_MODEL
    with pytest.raises(CompressionError, match="no token that the model's tokenizer knows") as raised:
        of("unseen unseen").validation_examples(words, None, 16)
    assert raised.value.reason is Reason.INVALID_DATASET
    with pytest.raises(ValueError, match=r"^training\.max_length must be at least 2 for causal-lm, got 1"):
        of("good").training_examples(words, None, 1)


def of_pairs(*pairs: tuple[str, str]) -> Any:
    prompts, answers = zip(*pairs, strict=True)
    return objective_for(PassageData(get_task("causal-lm"), prompts, prompts, answers, answers))


TEMPLATE = "{% for message in messages %}word1 {{ message['content'] }} {% endfor %}word2"


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_only_the_tokens_of_an_answer_are_learned(words: PreTrainedTokenizerFast, template: str | None) -> None:
    words.chat_template = template
    one, two, good, bad, end = words.convert_tokens_to_ids(["word1", "word2", "good", "bad", "[SEP]"])
    before = [end, good] if template is None else [one, good, two]
    objective = of_pairs(("good", "bad bad"), ("good", "unseen bad"))
    examples = objective.training_examples(words, None, 16)
    assert [row[: len(before)] for row in rows(examples)] == [before] * 2
    assert rows(examples)[0] == [*before, bad, bad, end]
    hidden = [IGNORED] * len(before)
    assert rows(examples, "labels") == [[*hidden, bad, bad, end], [*hidden, IGNORED, bad, end]]
    assert rows(objective.validation_examples(words, None, 16), "note") == rows(examples, "labels")


def test_the_begin_of_a_long_prompt_and_the_end_of_a_long_answer_are_left_out(words: PreTrainedTokenizerFast) -> None:
    good, bad, great, end = words.convert_tokens_to_ids(["good", "bad", "great", "[SEP]"])
    objective = of_pairs(("good bad", "great"), ("bad", "good " * 9))
    examples = objective.training_examples(words, None, 3)
    assert rows(examples) == [[bad, great, end], [bad, good, good]]
    assert rows(examples, "labels") == [[IGNORED, great, end], [IGNORED, good, good]]


def test_perplexity_of_answers_is_that_of_a_loop_by_hand(words: PreTrainedTokenizerFast) -> None:
    model, pairs = gpt2().eval(), [("good word1", "bad"), ("word2", "great word3 word4"), ("bad", "poor word5")]
    objective = of_pairs(*pairs)
    examples = objective.validation_examples(words, None, 16)
    found = objective.measure(objective.predict(model, examples, CPU))
    losses: list[float] = []
    for prompt, answer in pairs:
        before = words(f"[SEP] {prompt}")["input_ids"]
        after = words(f"{answer} [SEP]")["input_ids"]
        with torch.no_grad():
            said: Any = model(torch.tensor([[*before, *after]]))
        scores = said.logits[0].log_softmax(-1)
        losses += [-float(scores[len(before) - 1 + place, token]) for place, token in enumerate(after)]
    assert found["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)


def test_a_template_that_takes_no_message_is_refused(words: PreTrainedTokenizerFast) -> None:
    words.chat_template = "{{ raise_exception('a system message is needed') }}"
    with pytest.raises(CompressionError, match=r"chat template .* must take a user's message, .*is needed") as raised:
        of_pairs(("good", "bad")).training_examples(words, None, 16)
    assert raised.value.reason is Reason.INVALID_MODEL


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_compresses_and_goes_on(tmp_path: Path, words: PreTrainedTokenizerFast, tied: bool) -> None:
    gpt2(tie_word_embeddings=tied).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    data = PassageData(get_task("causal-lm"), passages(300, 1), passages(60, 2))
    training = Training(max_steps=80, batch_size=16, learning_rate=5e-3, max_length=32, train_embeddings=True)
    result = compress(tmp_path, data, method="magnitude", density=0.5, training=training, teacher=None)
    assert result.primary_metric == "perplexity"
    assert 1 <= result.metrics["eval/perplexity"] < 2, "of 19 words, 14 times each"
    assert result.metrics["eval/accuracy"] > 0.8
    assert {"delta_low/perplexity", "delta_high/perplexity", "above_constant"} <= set(result.metrics)
    saved = result.save(tmp_path / "artifact")
    assert saved.metrics["eval/perplexity"] == result.metrics["eval/perplexity"]


def many_pairs(count: int, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    prompts = varied(count, seed)
    return prompts, tuple(prompt.split()[0] for prompt in prompts)


def _of_pairs(count: int) -> PassageData:
    prompts, answers = many_pairs(count, 1)
    return PassageData(get_task("causal-lm"), prompts, prompts, answers, answers)


@pytest.mark.parametrize("name", DECODERS)
def test_company_changes_no_answer(name: str, words: PreTrainedTokenizerFast) -> None:
    objective = objective_for(_of_pairs(8))
    examples = objective.training_examples(words, None, 40)
    model: Any = decoder(name).eval()
    batch = examples.batch(np.arange(8), CPU)
    assert (batch.pop("labels") != IGNORED).any()
    assert (batch["attention_mask"] == 0).any()
    with torch.no_grad():
        together = model(**batch).logits
        for row, ids in enumerate(examples.inputs["input_ids"]):
            alone = model(torch.from_numpy(ids).long()[None]).logits[0]
            torch.testing.assert_close(together[row, : len(ids)], alone, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_stops_change_nothing_in_a_run_of_pairs(tmp_path: Path, words: PreTrainedTokenizerFast) -> None:
    gpt2().save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    data = _of_pairs(200)
    options: dict[str, Any] = {"density": 0.5, "method": "soft_movement", "teacher": Teacher(hidden_states=1.0)}
    options["training"] = Training(max_steps=60, batch_size=16, learning_rate=5e-3, max_length=40)
    whole = compress(tmp_path / "model", data, **options)
    assert whole.metrics["dense/accuracy"] > 0.5, "half of what is to be written are ends of texts"
    for phase, step in (("dense", 7), ("evaluating", 0), ("teaching", 0), ("pruning", 30)):
        with pytest.raises(Stopped):
            compress(tmp_path / "model", data, checkpoint=tmp_path / "state", callback=StopIn(phase, step), **options)
    assert same(whole, compress(tmp_path / "model", data, checkpoint=tmp_path / "state", **options))
