"""Summarization and translation: what the decoder reads, the loss, what is written, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.decoders import gpt2
from tests.unit.core.encoder_decoders import ENCODER_DECODERS, encoder_decoder, pairs, text_data
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import settings
from transformers import BertLMHeadModel, EncoderDecoderModel, MBart50Tokenizer, MBartTokenizer, PreTrainedTokenizerFast

import mvprune
from mvprune.artifact import read_manifest
from mvprune.export import export
from mvprune_core import CompressionError, Reason, SharedBaseline, Stopped, Teacher, Training, compress
from mvprune_core.evaluation import evaluate
from mvprune_core.models.artifact_loading import open_artifact
from mvprune_core.models.loading import Loaded, find_model, load_model
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED, Examples
from mvprune_core.tasks.losses import CrossEntropy
from mvprune_core.tasks.passes import counted
from mvprune_core.tasks.text_to_text import TextToText, shifted
from mvprune_core.training.distillation import HiddenStates
from mvprune_core.training.gradients import BatchGradients

CPU = torch.device("cpu")
LEARNED = Training(max_steps=80, batch_size=16, learning_rate=1e-2)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Path]:
    def write(model: Any, words: Any = tokenizer) -> Path:
        model.save_pretrained(tmp_path / "model")
        words.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return write


def loaded_of(folder: Path, **options: Any) -> tuple[Loaded, Any]:
    objective = objective_for(text_data(), options)
    return load_model(find_model(folder, None), objective, seed=0), objective


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_the_decoder_reads_what_its_model_would_give_it(name: str, folder: Callable[..., Path]) -> None:
    loaded, objective = loaded_of(folder(encoder_decoder(name)))
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    model: Any = loaded.model
    for labels, read in zip(examples.decoder["labels"][:20], examples.decoder["decoder_input_ids"][:20], strict=True):
        own = model.prepare_decoder_input_ids_from_labels(torch.from_numpy(labels).long()[None])
        assert read.tolist() == own[0].tolist()


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_the_loss_is_the_models_own_and_padding_changes_nothing(name: str, folder: Callable[..., Path]) -> None:
    loaded, objective = loaded_of(folder(encoder_decoder(name)))
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    batch = examples.batch(np.arange(6), CPU)
    assert (batch["attention_mask"] == 0).any()
    labels = batch.pop("labels")
    model: Any = loaded.model.eval()
    output = model(**batch)
    loss = CrossEntropy()(output, {**batch, "labels": labels})
    own = model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
    torch.testing.assert_close(loss, own)
    for row in range(6):
        one = examples.batch(np.array([row]), CPU)
        count = one.pop("labels").shape[1]
        torch.testing.assert_close(model(**one).logits[0], output.logits[row, :count], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bart", "t5", "encoder-decoder"])
def test_parts_of_a_batch_have_the_gradients_of_the_whole(name: str, folder: Callable[..., Path]) -> None:
    loaded, objective = loaded_of(folder(encoder_decoder(name)))
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    gradients = []
    for parts in (1, 3):
        model, loss = encoder_decoder(name), CrossEntropy()
        chosen = settings(accumulation_steps=parts)
        made = BatchGradients(model=model, forward=model, examples=examples, loss=loss, settings=chosen, seed=0)
        made.compute(np.arange(12), 0)
        gradients.append({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    crossed = [
        name for name in gradients[0] if any(part in name for part in ("encoder_attn", "EncDec", "crossattention"))
    ]
    assert len(crossed) > 3, "those of the cross-attention"
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_hidden_states_of_the_decoder_have_the_mask_of_the_target(name: str, folder: Callable[..., Path]) -> None:
    loaded, objective = loaded_of(folder(encoder_decoder(name)))
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    model: Any = loaded.model.eval()
    teacher = encoder_decoder(name).eval()
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(1.5)
    hidden = HiddenStates(teacher, 1.0, "fp32", per_token=True)

    def loss(*rows: int) -> tuple[float, float]:
        batch = examples.batch(np.array(rows), CPU)
        count = int((batch.pop("labels") != IGNORED).sum())
        with torch.no_grad():
            return float(hidden.loss(model(**batch, output_hidden_states=True), batch)) * count, count

    together, alone = loss(*range(5)), [loss(row) for row in range(5)]
    assert together == pytest.approx([sum(each) for each in zip(*alone, strict=True)], rel=1e-4)
    assert together[0] > 0


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_both_stacks_are_pruned_and_the_vocabulary_never(name: str, folder: Callable[..., Path]) -> None:
    loaded, _ = loaded_of(folder(encoder_decoder(name)))
    names = list(prunable_layers(loaded.model))
    assert {"encoder", "decoder"} <= {part for name in names for part in name.split(".")}
    assert any(part in name for name in names for part in ("encoder_attn", "EncDec", "crossattention"))
    assert not any(part in name for name in names for part in ("lm_head", "shared", "embed", "predictions"))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", ["bart", "t5", "encoder-decoder"])
def test_company_changes_nothing_that_is_written(name: str, beams: int, folder: Callable[..., Path]) -> None:
    untied = {} if name == "encoder-decoder" else {"tie_word_embeddings": False}  # a tied one repeats what it reads
    loaded, objective = loaded_of(folder(encoder_decoder(name, **untied)), num_beams=beams, max_target_length=6)
    examples = objective.validation_examples(loaded.tokenizer, loaded.config, 32)
    seen: list[int] = []
    with counted(loaded.model, seen.append):
        together = objective.predict(loaded.model, examples, CPU)
    assert seen[-1] == len(examples) == 20, "each is counted once"
    model: Any = loaded.model
    for row, ids in enumerate(examples.inputs["input_ids"][:5]):
        own = model.generate(torch.from_numpy(ids).long()[None], num_beams=beams, max_new_tokens=6)
        assert together[row] == loaded.tokenizer.decode(own[0], skip_special_tokens=True).strip()
    assert len(set(together)) > 2


def test_texts_are_cut_and_that_is_said(folder: Callable[..., Path], tokenizer: PreTrainedTokenizerFast) -> None:
    loaded, objective = loaded_of(folder(encoder_decoder("bart")), max_target_length=3, source_prefix="good ")
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 4)
    begin, end, good = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "good"])
    assert all(row[:2].tolist() == [begin, good] and len(row) == 4 for row in examples.inputs["input_ids"])
    assert all(row[0] == begin and row[-1] == end and len(row) == 3 for row in examples.decoder["labels"])
    [note] = objective.notes_on(examples)
    assert note == "200 of 200 targets have more than 3 tokens, and are cut in training (max_target_length)"
    whole = objective_for(text_data())
    assert whole.notes_on(whole.training_examples(loaded.tokenizer, loaded.config, 32)) == ()


def test_a_target_without_an_end_gets_one(tokenizer: PreTrainedTokenizerFast) -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="[SEP]", pad_token="[PAD]")
    bare.backend_tokenizer.post_processor = None
    model = encoder_decoder("t5")
    examples = objective_for(text_data()).training_examples(bare, model.config, 32)
    assert all(row[-1] == bare.eos_token_id and len(row) == 3 for row in examples.decoder["labels"])


def test_batches_pad_both_texts() -> None:
    examples = Examples(
        {"input_ids": [np.array([5, 6, 7], np.int32), np.array([8], np.int32)]},
        {},
        pad_token=1,
        padding_side="left",
        decoder={"decoder_input_ids": [np.array([2], np.int32), np.array([2, 9], np.int32)]}
        | {"labels": [np.array([3], np.int32), np.array([9, 3], np.int32)]},
    )
    batch = {name: value.tolist() for name, value in examples.batch(np.array([0, 1]), CPU).items()}
    assert batch == {
        "input_ids": [[5, 6, 7], [1, 1, 8]],
        "attention_mask": [[1, 1, 1], [0, 0, 1]],
        "decoder_input_ids": [[2, 1], [2, 9]],
        "decoder_attention_mask": [[1, 0], [1, 1]],
        "labels": [[3, IGNORED], [9, 3]],
    }
    assert examples.output_lengths.tolist() == [1, 2]


@pytest.mark.parametrize(("name", "learned"), [("bart", 0.5), ("t5", 0.2)])
@pytest.mark.slow
def test_compresses_and_writes(
    name: str, learned: float, folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    predict = TextToText.predict

    def recorded(self: TextToText, model: Any, examples: Examples, *others: Any) -> list[str]:
        read.append(len(examples))
        return predict(self, model, examples, *others)

    monkeypatch.setattr(TextToText, "predict", recorded)
    training, model = replace(LEARNED, evaluate_every=40), encoder_decoder(name, initializer_factor=1.0)
    options: dict[str, Any] = {"max_target_length": 8, "num_beams": 2, "evaluated_examples": 5}
    result = compress(folder(model), text_data(), density=0.5, method="magnitude", training=training, **options)
    assert result.metrics["dense/rougeL"] > learned
    assert read.count(20) == 2, "the dense model and the result"
    assert read.count(5) >= 2 * 2 + 1, "while they are trained, and to choose how embeddings are stored"
    assert set(read) == {5, 20}
    assert "delta_low/rougeL" in result.metrics
    assert any(note.startswith("metrics are rouge: f1|stemmer:yes") for note in result.notes)
    result.save(tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    assert manifest.spec["num_beams"] == 2
    sources = text_data().validation.sources[:3]
    assert [one.source for one in manifest.examples] == [*sources]
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(text in card for one in manifest.examples for text in (one.source, one.dense, one.pruned))
    assert 0.49 < manifest.accounting.density < 0.51
    again = evaluate(tmp_path / "out", _written(tmp_path, 20), runtime="sparse")
    assert again.metrics == {name: pytest.approx(result.metrics[f"eval/{name}"]) for name in again.metrics}
    models: list[Any] = [mvprune.load(tmp_path / "out", runtime=runtime) for runtime in ("dense", "sparse")]
    assert models[0].generation_config.num_beams == 2
    assert models[0].generation_config.max_new_tokens == 8
    ids = torch.tensor([[2, 12, 13, 14, 3]])
    one, other = (model.generate(ids, attention_mask=torch.ones_like(ids)).tolist() for model in models)
    assert one == other
    sampled = [model.generate(ids, do_sample=True, num_beams=1, top_k=5) for model in models if torch.manual_seed(0)]
    assert sampled[0].tolist() == sampled[1].tolist()
    some = pairs(20, 2).sources
    answers = Predictor.open(tmp_path / "out").predict([{"text": text} for text in some])
    opened = open_artifact(tmp_path / "out")
    objective = objective_for(text_data(), options)
    examples = objective.validation_examples(opened.loaded.tokenizer, opened.loaded.config, opened.max_length)
    assert [answer["generated_text"] for answer in answers] == predict(objective, opened.loaded.model, examples, CPU)


@pytest.mark.slow
def test_a_pair_is_exported_and_has_no_structures(folder: Callable[..., Path], tmp_path: Path) -> None:
    path, training = folder(encoder_decoder("encoder-decoder")), replace(LEARNED, max_steps=2)
    options: dict[str, Any] = {"density": 0.5, "training": training, "dense_baseline": False, "max_target_length": 8}
    result = compress(path, text_data(), method="magnitude", num_beams=2, length_penalty=0.0, **options)
    assert result.save(tmp_path / "out").spec["length_penalty"] == 0
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    dense: Any = EncoderDecoderModel.from_pretrained(tmp_path / "dense")
    artifact: Any = mvprune.load(tmp_path / "out")
    ids = torch.tensor([[2, 12, 13, 14, 3]])
    assert dense.generate(ids).tolist() == artifact.generate(ids).tolist()
    assert (dense.generation_config.max_new_tokens, dense.generation_config.length_penalty) == (8, 0)
    for structure in ("heads", "layers"):
        with pytest.raises(CompressionError, match=r"must be unset for a model whose (heads|layers).* are not known"):
            compress(path, text_data(), structure=structure, **options)


def test_a_shared_dense_model_has_written_too(folder: Callable[..., Path]) -> None:
    path, training = folder(encoder_decoder("bart")), replace(LEARNED, max_steps=3)
    options: dict[str, Any] = {"training": training, "method": "magnitude", "max_target_length": 6}
    dense = compress(path, text_data(), density=1, num_beams=2, **options)
    shared = SharedBaseline("the other run", dense.info)
    found = compress(path, text_data(), density=0.5, teacher=None, dense_baseline=shared, **options)
    assert [one.dense for one in found.info.examples] == [one.pruned for one in dense.info.examples]
    assert any(note.endswith("which has other settings: num_beams 2 in place of unset") for note in found.notes)


@pytest.mark.slow
def test_runs_with_other_options_of_the_kind_have_other_dense_models(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    path, training = folder(encoder_decoder("bart")), replace(LEARNED, max_steps=3)
    options: dict[str, Any] = {"density": 0.5, "training": training, "method": "magnitude", "cache": tmp_path / "cache"}
    seen = []
    for given in ({}, {"source_prefix": "good "}, {"max_target_length": 6}, {"num_beams": 2}, {}):
        seen.append(StopIn("", 1))
        compress(path, text_data(), callback=seen[-1], **options, **given)
    assert ["dense" in one.seen for one in seen] == [True, True, True, True, False]


@pytest.mark.slow
def test_stops_change_nothing(folder: Callable[..., Path], tmp_path: Path) -> None:
    options: dict[str, Any] = {"density": 0.4, "method": "soft_movement", "max_target_length": 6}
    options |= {"training": replace(LEARNED, max_steps=12), "teacher": Teacher(hidden_states=1.0)}
    path = folder(encoder_decoder("bart"))
    whole = compress(path, text_data(), **options)
    for phase, step in (("dense", 5), ("evaluating", 0), ("teaching", 0), ("pruning", 9)):
        with pytest.raises(Stopped):
            compress(path, text_data(), checkpoint=tmp_path / "state", callback=StopIn(phase, step), **options)
    assert same(whole, compress(path, text_data(), checkpoint=tmp_path / "state", **options))


def _written(tmp_path: Path, count: int) -> Path:
    some = pairs(count, 2)
    rows = zip(some.sources, (right[0] for right in some.targets), strict=True)
    path = tmp_path / "b.tsv"
    path.write_text("source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in rows))
    return path


@pytest.mark.parametrize(("model", "got"), [(gpt2, "gpt2"), (None, "bert")])
def test_what_has_no_encoder_and_decoder_is_refused(
    model: Any, got: str, folder: Callable[..., Path], bert_config: Any
) -> None:
    made = model() if model else BertLMHeadModel(bert_config(is_decoder=True))
    with pytest.raises(
        CompressionError, match=f"AutoModelForSeq2SeqLM for, got {got}; give an encoder-decoder"
    ) as refused:
        compress(folder(made), text_data(), density=0.5)
    assert refused.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (
            {"max_target_length": 97},
            "max_target_length must be at most 96, the positions of the model's decoder, got 97",
        ),
        ({"source_language": "en_XX"}, "source_language must be unset for the task summarization"),
        ({"trim_vocabulary": True}, "trim_vocabulary must be false for the task summarization, whose models predict"),
        ({"num_beams": 17}, "num_beams must be from 1 to 16, got 17"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], rule: str, folder: Callable[..., Path]) -> None:
    with pytest.raises((CompressionError, ValueError), match=rule):
        compress(folder(encoder_decoder("bart")), text_data(), density=0.5, **options)


def test_a_tokenizer_without_languages_takes_none(folder: Callable[..., Path]) -> None:
    path = folder(encoder_decoder("bart"))
    with pytest.raises(CompressionError, match="target_language must be unset for a tokenizer without languages"):
        load_model(find_model(path, None), objective_for(text_data("translation"), {"target_language": "ro_RO"}), 0)


PIECES = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁word{number}" for number in range(20))]


@pytest.mark.parametrize("make", [MBartTokenizer, MBart50Tokenizer])
def test_languages_are_those_of_the_tokenizer(make: Any, folder: Callable[..., Path]) -> None:
    words = make(vocab=[(piece, -1.0) for piece in PIECES])
    ends = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    path = folder(encoder_decoder("mbart", vocab_size=len(words), **ends), words)

    def load(**options: Any) -> tuple[Loaded, Any]:
        objective = objective_for(text_data("translation"), {"max_target_length": 5, **options})
        return load_model(find_model(path, None), objective, seed=0), objective

    loaded, objective = load(source_language="de_DE", target_language="ro_RO")
    german, romanian = (loaded.tokenizer.convert_tokens_to_ids(code) for code in ("de_DE", "ro_RO"))
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    source = examples.inputs["input_ids"][0].tolist()
    read, labels = (examples.decoder[name][0].tolist() for name in ("decoder_input_ids", "labels"))
    writer: Any = loaded.model
    written = writer.generate(torch.tensor([source])).tolist()[0]
    if make is MBartTokenizer:
        assert (source[-1], labels[-1], read[0]) == (german, romanian, romanian)
        assert written[0] == romanian
    else:
        assert (source[0], labels[0], read[:2]) == (german, romanian, [2, romanian])
        assert written[:2] == [2, romanian]
    assert loaded.tokenizer.init_kwargs["tgt_lang"] == "ro_RO"
    with pytest.raises(CompressionError, match=r"target_language must be a language .* got none; it has ar_AR, cs_CZ"):
        load(source_language="de_DE")
    with pytest.raises(
        CompressionError, match=r"source_language must be a language .* got 'qq_QQ'; it has ar_AR, cs_CZ"
    ):
        load(source_language="qq_QQ", target_language="ro_RO")


def test_tokens_that_no_file_names_are_the_tokenizers(folder: Callable[..., Path]) -> None:
    model = encoder_decoder("encoder-decoder")
    assert model.config.decoder_start_token_id is None
    loaded, _ = loaded_of(folder(model))
    assert [note for note in loaded.notes if "_token_id" in note] == [
        "the model's files have no decoder_start_token_id: that of the tokenizer's [CLS] was taken",
        "the model's files have no eos_token_id: that of the tokenizer's [SEP] was taken",
    ]
    writer: Any = loaded.model
    found = writer.generation_config
    assert (found.decoder_start_token_id, found.eos_token_id, found.pad_token_id) == (2, 3, 0)


def test_shifted_begins_with_the_language_of_mbart() -> None:
    labels = np.array([5, 6, 3, 9], np.int32)
    assert shifted(labels, encoder_decoder("mbart").config).tolist() == [9, 5, 6, 3]
    assert shifted(labels, encoder_decoder("bart").config).tolist() == [0, 5, 6, 3]
