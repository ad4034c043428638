"""Sequence-level distillation: the teacher writes what the student is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.decoders import DECODERS, decoder, gpt2, of_decoders
from tests.unit.core.encoder_decoders import encoder_decoder, text_data
from tests.unit.core.tasks.test_causal_lm import many_pairs
from tests.unit.core.tasks.test_masked_lm import passages
from tests.unit.core.test_distillation import Phases
from tests.unit.core.test_resume import StopIn, same
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from mvprune.artifact import read_manifest
from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Stopped, Teacher, Training, compress
from mvprune_core.runs import steps, written_targets
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.generation import write_texts
from mvprune_core.training import distillation
from mvprune_core.training.loop import Trainer

CPU = torch.device("cpu")
SHORT = Training(max_steps=20, batch_size=16, learning_rate=5e-3)
WRITES = Teacher(writes_targets=True)
ALONE = Teacher(writes_targets=True, alpha=0.0)

Written = list[list[str]]


@pytest.fixture
def bart(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    encoder_decoder("bart").save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"


@pytest.fixture
def words(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    return of_decoders(tokenizer)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """What teachers write while a test runs, one list a call."""
    found: Written = []

    def recorded(*given: Any) -> list[str]:
        found.append(write_texts(*given))
        return found[-1]

    monkeypatch.setattr(written_targets, "write_texts", recorded)
    return found


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The examples of the trainings of a test, by their phase."""
    found: dict[str, Any] = {}
    run = Trainer.run

    def recorded(self: Trainer) -> int:
        found[self.curve.phase] = self.examples
        return run(self)

    monkeypatch.setattr(Trainer, "run", recorded)
    return found


def decoded(words: Any, rows: Sequence[Any]) -> list[str]:
    return [words.decode(row[row >= 0], skip_special_tokens=True) for row in rows]


def in_place_of(given: Sequence[str], texts: Sequence[str]) -> list[str]:
    """As they are learned: four words, and both ends."""
    return [" ".join((text or target).split()[:4]) for text, target in zip(texts, given, strict=True)]


def pairs_of(count: int) -> PassageData:
    prompts, answers = many_pairs(count, 1)
    return PassageData(get_task("causal-lm"), prompts, prompts[:20], answers, answers[:20])


@pytest.mark.parametrize(
    "teacher",
    [WRITES, pytest.param(ALONE, marks=pytest.mark.slow)],
    ids=["and its predictions", "alone"],
)
@pytest.mark.slow
def test_a_student_is_trained_on_what_the_dense_model_writes(
    bart: Path,
    tokenizer: PreTrainedTokenizerFast,
    written: Written,
    trained: dict[str, Any],
    tmp_path: Path,
    teacher: Teacher,
) -> None:
    options: dict[str, Any] = {"density": 0.5, "training": SHORT, "method": "magnitude", "max_target_length": 6}
    options |= {"cache": tmp_path / "cache", "teacher": teacher, "num_beams": 2}
    first, second, data = Phases(), Phases(), text_data(train=80)
    result = compress(bart, data, callback=first, **options)
    predicts = ["teaching"] if teacher is WRITES else []
    assert first.phases == ["loading", "dense", "evaluating", "writing", *predicts, "pruning", "evaluating"]
    assert [each for each in first.read if each[0] == "writing"][-1] == ("writing", 80, 80)
    [texts] = written
    given = [right[0] for right in data.train.targets]
    assert texts != given, "it has learned little"
    assert decoded(tokenizer, trained["dense"].decoder["labels"]) == given
    assert decoded(tokenizer, trained["pruning"].decoder["labels"]) == in_place_of(given, texts)
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["teacher"]["writes_targets"] is True
    assert manifest.dataset.fingerprint == data.fingerprint
    note = "the pruned model is trained on targets that the teacher wrote for 80 examples"
    assert any(one.startswith(note) for one in read_manifest(tmp_path / "out").notes)
    if teacher is ALONE:
        return
    again = compress(bart, data, callback=second, **options)
    assert second.phases == ["loading", "pruning", "evaluating"], "all of it is cached"
    assert same(result, again)
    compress(bart, data, **options | {"num_beams": 1})
    assert len(written) == 2, "other options of writing, other texts"


@pytest.mark.slow
def test_what_it_is_trained_on_does_not_change_what_it_is_evaluated_on(
    bart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_targets, "write_texts", lambda model, sources, *_: ["good"] * len(sources.examples))
    training = replace(SHORT, max_steps=60, learning_rate=1e-2)
    result = compress(
        *(bart, text_data()),
        density=0.5,
        training=training,
        method="magnitude",
        max_target_length=6,
        teacher=ALONE,
        dense_baseline=False,
    )
    assert {one.pruned for one in result.info.examples} == {"good"}, "it learned to write this"
    assert result.metrics["eval/rougeL"] == 0, "which is none of the targets"


@pytest.mark.slow
def test_a_run_of_less_than_an_epoch_writes_what_its_steps_read(
    bart: Path, tokenizer: PreTrainedTokenizerFast, written: Written, trained: dict[str, Any]
) -> None:
    short = Training(max_steps=5, batch_size=8, learning_rate=1e-3)
    options: dict[str, Any] = {"density": 0.5, "training": short, "method": "magnitude", "max_target_length": 6}
    compress(bart, text_data(), teacher=WRITES, **options)
    assert len(written[0]) == len(trained["pruning"]) == 40
    sources, pairs = decoded(tokenizer, trained["pruning"].inputs["input_ids"]), text_data().train
    places = [pairs.sources.index(source) for source in sources]
    assert places == sorted(places)
    given = [pairs.targets[place][0] for place in places]
    assert decoded(tokenizer, trained["pruning"].decoder["labels"]) == in_place_of(given, written[0])


@pytest.mark.slow
def test_a_teacher_of_other_tokens_writes_but_does_not_predict(
    bart: Path, tmp_path: Path, trained: dict[str, Any], written: Written, tokenizer: PreTrainedTokenizerFast
) -> None:
    plain = sorted((word for word in tokenizer.get_vocab() if "[" not in word), reverse=True)
    names = ["<a>", "<b>", "<c>", "<d>", *plain]
    other = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="<d>"))
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    other.post_processor = processors.TemplateProcessing(single="<c> $A <b>", special_tokens=[("<b>", 1), ("<c>", 2)])
    special = {"pad_token": "<a>", "eos_token": "<b>", "bos_token": "<c>", "unk_token": "<d>"}
    words = PreTrainedTokenizerFast(tokenizer_object=other, **special)
    ends = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 1}
    encoder_decoder("t5", vocab_size=len(names), tie_word_embeddings=False, **ends).save_pretrained(tmp_path / "t5")
    words.save_pretrained(tmp_path / "t5")
    options: dict[str, Any] = {"density": 0.5, "training": SHORT, "method": "magnitude", "max_target_length": 6}
    named = Phases()
    compress(bart, text_data(), teacher=replace(ALONE, model=tmp_path / "t5"), callback=named, **options)
    assert named.phases == ["loading", "writing", "dense", "evaluating", "pruning", "evaluating"]
    assert len(set(written[0])) > 2
    given = [right[0] for right in text_data().train.targets]
    assert decoded(tokenizer, trained["pruning"].decoder["labels"]) == in_place_of(given, written[0])
    with pytest.raises(CompressionError, match=r"^teacher\.model must predict the tokens of the student") as refused:
        compress(bart, text_data(), teacher=replace(WRITES, model=tmp_path / "t5"), **options)
    assert "of another" in str(refused.value)
    assert len(written) == 1, "it is refused before it writes"


@pytest.mark.parametrize("name", DECODERS)
def test_company_changes_no_answer_that_is_written(name: str, words: PreTrainedTokenizerFast) -> None:
    data, model = pairs_of(40), decoder(name).eval()
    longest = max(len(answer.split()) for answer in data.train_answers) + 1
    sources = objective_for(data).sources(words, model.config, 40, np.arange(3, 40))
    assert sources.settings == {"max_new_tokens": longest, "eos_token_id": 3, "pad_token_id": 3}
    assert len({len(row) for row in sources.examples.inputs["input_ids"]}) > 2
    counts: list[int] = []
    texts = write_texts(model, sources, CPU, report=counts.append)
    assert counts == [16, 32, 37]
    writer: Any = model
    for row, text in zip(sources.examples.inputs["input_ids"], texts, strict=True):
        ids = torch.from_numpy(row).long()[None]
        own = writer.generate(ids, max_new_tokens=longest, do_sample=False, eos_token_id=3, pad_token_id=3)
        assert text == words.decode(own[0, len(row) :], skip_special_tokens=True).strip()
    assert len(set(texts)) > 2


def test_an_answer_has_at_most_half_of_the_tokens(words: PreTrainedTokenizerFast) -> None:
    long = " ".join(["good"] * 30)
    data = PassageData(get_task("causal-lm"), (long, "bad"), ("bad",), (long, "bad"), ("bad",))
    sources = objective_for(data).sources(words, gpt2().config, 20, np.arange(2))
    assert sources.settings["max_new_tokens"] == 10
    assert [len(row) for row in sources.examples.inputs["input_ids"]] == [10, 2]


@pytest.mark.slow
def test_where_nothing_was_written_the_given_target_stays(bart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = objective_for(pairs_of(4)).with_targets(np.array([1, 3]), ["", "good"]).data
    assert pairs.train_answers == (pairs_of(4).train_answers[1], "good")
    some = objective_for(text_data()).with_targets(np.array([2, 5]), ["good", ""]).data.train
    assert some.targets == (("good",), text_data().train.targets[5])
    monkeypatch.setattr(written_targets, "write_texts", lambda model, sources, *_: ["good", *[""] * 31])
    short = Training(max_steps=2, batch_size=16, learning_rate=1e-3)
    result = compress(bart, text_data(), density=0.5, training=short, method="magnitude", teacher=ALONE)
    note = "wrote for 32 examples (it wrote nothing for 31, which keep the given ones)"
    assert any(note in one for one in result.notes)


def test_texts_are_stored_as_they_are() -> None:
    for texts in (["größer", "", "名"], [""], ["a"]):
        assert written_targets._unpack(written_targets._pack(texts)) == texts


@pytest.mark.slow
def test_answers_to_prompts_are_written(
    words: PreTrainedTokenizerFast, tmp_path: Path, written: Written, trained: dict[str, Any]
) -> None:
    gpt2().save_pretrained(tmp_path / "gpt2")
    words.save_pretrained(tmp_path / "gpt2")
    options: dict[str, Any] = {"method": "magnitude", "density": 0.5, "training": replace(SHORT, max_length=40)}
    result = compress(tmp_path / "gpt2", pairs_of(60), teacher=WRITES, **options)
    labels = trained["pruning"].inputs["labels"]
    assert decoded(words, labels) == in_place_of(pairs_of(60).train_answers, written[0])
    assert "dense/perplexity" in result.metrics


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"teacher": WRITES}, r"teacher\.writes_targets must be unset for plain texts, .* got true; give prompts and"),
        (
            {"teacher": WRITES, "density": 1.0, "keep_fine_tuned": True},
            r"teacher\.writes_targets must be unset with keep_fine_tuned, which trains nothing, got 'true'",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(
    options: dict[str, Any], rule: str, words: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    gpt2().save_pretrained(tmp_path / "gpt2")
    words.save_pretrained(tmp_path / "gpt2")
    data = PassageData(get_task("causal-lm"), passages(60, 1), passages(20, 2))
    with pytest.raises((CompressionError, ValueError), match=rule):
        compress(tmp_path / "gpt2", data, **{"density": 0.5} | options)


def test_a_task_without_texts_refuses_it(model_folder: Path, data: Any) -> None:
    rule = r"teacher\.writes_targets must be unset for the task .*, got 'true'; it is an option of .*causal-lm"
    with pytest.raises(ValueError, match=rule):
        compress(model_folder, data, density=0.5, teacher=WRITES)


def test_a_store_of_predictions_is_bounded_by_the_longest_targets(bart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_STORED", 200_000)
    options: dict[str, Any] = {"density": 0.5, "training": SHORT, "max_target_length": 6}
    with pytest.raises(ValueError, match=r"and 1,200 tokens have 0\.0; take .* or alpha 0, with which only what it"):
        compress(bart, text_data(), teacher=WRITES, **options)
    monkeypatch.setattr(steps.CompressionRun, "baseline", lambda self: pytest.fail("training begins"))
    with pytest.raises(pytest.fail.Exception):
        compress(bart, text_data(), teacher=ALONE, **options)


@pytest.mark.slow
@pytest.mark.parametrize("teacher", [WRITES, replace(ALONE, hidden_states=1.0)], ids=["predictions", "hidden states"])
def test_stops_change_nothing(bart: Path, tmp_path: Path, teacher: Teacher) -> None:
    options: dict[str, Any] = {"density": 0.4, "method": "soft_movement", "max_target_length": 6, "teacher": teacher}
    options["training"] = replace(SHORT, max_steps=12)
    whole = compress(bart, text_data(train=80), **options)
    for phase, step in (("dense", 5), ("writing", 0), ("pruning", 0), ("pruning", 9)):
        with pytest.raises(Stopped):
            compress(bart, text_data(train=80), checkpoint=tmp_path / "state", callback=StopIn(phase, step), **options)
    assert same(whole, compress(bart, text_data(train=80), checkpoint=tmp_path / "state", **options))
