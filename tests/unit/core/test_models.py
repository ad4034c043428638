"""What a model's folder says of its inputs: positions, padding, tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.training_runs import Recorder
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    BertweetTokenizer,
    CanineConfig,
    CanineModel,
    GPT2Config,
    GPT2Model,
    GPTJConfig,
    GPTJModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    XLNetConfig,
    XLNetModel,
)

from mvprune.artifact import ArtifactError
from mvprune.data.loading import ClassificationData, Split
from mvprune_core import CompressionError, Reason, Teacher, Training, compress
from mvprune_core.evaluation import evaluate
from mvprune_core.models.artifact_loading import open_artifact
from mvprune_core.models.loading import find_model, load_model, longest_input
from mvprune_core.models.token_cache import tokenizer_digest
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for


def test_positions_that_stand_for_padding_are_not_counted(save: Callable[..., Path], data: ClassificationData) -> None:
    config = RobertaConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=40,
        max_position_embeddings=18,
        pad_token_id=1,
    )
    long = Split(["good " * 30, *data.train.texts], None, [1, *data.train.labels])
    result = compress(
        save(RobertaModel(config)),
        ClassificationData(data.task, data.labels, long, data.validation),
        method="magnitude",
        density=0.5,
        training=Training(max_steps=5, batch_size=200, max_length=128),
        dense_baseline=False,
    )
    assert result.accounting.kept_weights > 0


@pytest.mark.slow
@pytest.mark.parametrize("types", [1, 2])
def test_a_model_with_one_type_of_text_takes_pairs(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: ClassificationData, tmp_path: Path, types: int
) -> None:
    folder, artifact = save(BertModel(bert_config(type_vocab_size=types))), tmp_path / "artifact"
    file = folder / "tokenizer_config.json"
    names = ["input_ids", "token_type_ids", "attention_mask"]  # as of BERT
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_input_names": names}))
    train, validation = (replace(split, pairs=split.texts) for split in (data.train, data.validation))
    pairs = replace(data, train=train, validation=validation)
    quick = Training(max_steps=5, batch_size=32)
    compress(folder, pairs, method="magnitude", density=0.5, training=quick, dense_baseline=False).save(artifact)
    assert ("token_type_ids" in open_artifact(artifact).loaded.tokenizer("good", "bad")) == (types == 2)


def test_positions_without_end_are_no_limit(save: Callable[..., Path], data: ClassificationData) -> None:
    config = XLNetConfig(vocab_size=40, d_model=32, n_layer=1, n_head=2, d_inner=64)
    assert config.max_position_embeddings == -1
    loaded = load_model(find_model(save(XLNetModel(config)), None), objective_for(data), seed=0)
    assert longest_input(loaded, 100) == 100


def test_a_decoder_pads_with_its_tokenizers_padding(save: Callable[..., Path], data: ClassificationData) -> None:
    config = GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=40, bos_token_id=3, eos_token_id=3)
    loaded = load_model(find_model(save(GPT2Model(config)), None), objective_for(data), seed=0)
    assert loaded.config.pad_token_id == loaded.tokenizer.pad_token_id == 0
    other = save(GPT2Model(GPT2Config(**config.to_diff_dict() | {"pad_token_id": 5})), "other")
    assert load_model(find_model(other, None), objective_for(data), seed=0).config.pad_token_id == 0


def test_all_that_decides_a_slow_tokenizers_tokens_is_told_apart(tmp_path: Path) -> None:
    def digest(name: str, merges: str, **options: Any) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "vocab.txt").write_text("hello 1\nwor@@ 1\nld 1\n")
        (folder / "bpe.codes").write_text(merges)
        tokenizer = BertweetTokenizer(str(folder / "vocab.txt"), str(folder / "bpe.codes"), **options)
        tokenizer.save_pretrained(folder)
        return tokenizer_digest(AutoTokenizer.from_pretrained(folder))

    first = digest("first", "h e 1\n")
    assert digest("copy", "h e 1\n") == first
    assert len({first, digest("normalized", "h e 1\n", normalization=True), digest("merged", "l d 1\n")}) == 3


def test_from_which_side_texts_are_cut_decides_the_tokens(
    model_folder: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    file = model_folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation_side": "left"}))
    other: Any = AutoTokenizer.from_pretrained(model_folder)
    assert tokenizer_digest(other) != tokenizer_digest(tokenizer)
    assert (
        other("good bad word1", truncation=True, max_length=3)["input_ids"]
        != (tokenizer("good bad word1", truncation=True, max_length=3)["input_ids"])
    )


QUICK = Training(max_steps=5, batch_size=32)
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize(
    ("model", "training", "message"),
    [
        (
            lambda: AlbertModel(AlbertConfig(**TINY, vocab_size=40, embedding_size=16)),
            Training(gradient_checkpointing=True),
            r"^training\.gradient_checkpointing must be false .*, got true for AlbertFor",
        ),
        (
            lambda: CanineModel(CanineConfig(**TINY, num_hash_buckets=64)),  # reads characters
            Training(),
            r"^the model must have an nn\.Embedding of its tokens, got CanineFor\w+;",
        ),
        (
            # What it rotates is wider than its heads.
            lambda: GPTJModel(GPTJConfig(vocab_size=40, n_embd=32, n_layer=2, n_head=2, n_positions=64, rotary_dim=64)),
            Training(),
            r"^GPTJFor\w+ cannot read the data; .* of 3 tokens ends with RuntimeError: The size of tensor",
        ),
    ],
    ids=["without gradient checkpointing", "without a table of tokens", "that cannot read"],
)
def test_a_model_that_cannot_be_trained_is_refused_before(
    save: Callable[..., Path],
    data: ClassificationData,
    model: Callable[[], PreTrainedModel],
    training: Training,
    message: str,
) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=message) as raised:
        compress(save(model()), data, method="magnitude", density=0.5, training=training, callback=recorder)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    assert recorder.phases == ["loading"]


def with_a_hole(folder: Path) -> Path:
    """Gives one word an id that no row of the embeddings has; the number of tokens is still right."""
    path = folder / "tokenizer.json"
    rules = json.loads(path.read_text())
    rules["model"]["vocab"]["word19"] = 500
    path.write_text(json.dumps(rules))
    return folder


HOLE = r"the tokenizer of '[^']*' must give ids below 40, the rows of the model's embeddings, got 500 for 'word19'; "


def test_an_id_without_an_embedding_is_refused_though_the_tokens_are_few_enough(
    model_folder: Path, data: ClassificationData
) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=f"^{HOLE}") as error:
        compress(with_a_hole(model_folder), data, density=0.5, callback=recorder)
    assert error.value.reason is Reason.INVALID_MODEL
    assert recorder.phases == ["loading"]


def test_so_it_is_in_a_teacher_before_anything_is_trained(
    save: Callable[..., Path], model_folder: Path, bert_config: Callable[..., Any], data: ClassificationData
) -> None:
    teacher, recorder = with_a_hole(save(BertForSequenceClassification(bert_config()), "teacher")), Recorder()
    with pytest.raises(CompressionError, match=f"^{HOLE}"):
        compress(model_folder, data, density=0.5, teacher=Teacher(teacher), callback=recorder)
    assert recorder.phases == ["loading"]


@pytest.mark.slow
def test_so_it_is_in_an_artifact(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    result = compress(model_folder, data, method="magnitude", density=0.5, training=QUICK, dense_baseline=False)
    result.tokenizer.add_tokens([f"more{number}" for number in range(20)])
    result.save(tmp_path / "out")
    reason = r"its tokenizer cannot be used: .* must give ids below 40, .* got 49 for 'more19'"
    with pytest.raises(ArtifactError, match=reason):
        Predictor.open(tmp_path / "out")
    with pytest.raises(ArtifactError, match=reason):
        evaluate(tmp_path / "out")


def test_a_token_type_without_an_embedding_is_refused(model_folder: Path, data: ClassificationData) -> None:
    path = model_folder / "tokenizer.json"
    rules = json.loads(path.read_text())
    rules["post_processor"]["pair"][-1]["SpecialToken"]["type_id"] = 2
    path.write_text(json.dumps(rules))
    file = model_folder / "tokenizer_config.json"
    names = ["input_ids", "token_type_ids", "attention_mask"]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_input_names": names}))
    message = r"must give token types below 2, the rows of bert\.embeddings\.token_type_embeddings, got 2; give"
    with pytest.raises(CompressionError, match=message) as error:
        compress(model_folder, data, density=0.5)
    assert error.value.reason is Reason.INVALID_MODEL
