"""Embeddings: vectors of texts, learned from the given model without labels."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from tests.unit.core.conftest import sentences
from tests.unit.core.test_resume import StopIn, same
from torch import nn
from transformers import BertConfig, BertModel, T5Config

import mvprune.hf  # noqa: F401 (SentenceTransformer opens artifacts)
from mvprune import load
from mvprune.artifact.vectors import sentence_embedding_of
from mvprune.data.kinds.embedding.texts import EmbeddingData, Judgements, PlainTexts, ScoredPairs, Split
from mvprune.data.loading import ClassificationData
from mvprune.data.tasks import get_task
from mvprune.sources.sentence_transformers import KEY, POOLINGS, SentenceEmbedding, write_sentence_embedding
from mvprune_core import CompressionError, Reason, Stopped, Teacher, Training, compress
from mvprune_core.evaluation import CannotEvaluate, evaluate
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.runs import quantized
from mvprune_core.tasks import Objective, objective_for
from mvprune_core.tasks.embedding import Embedding
from mvprune_core.tasks.losses import RandomDirection
from mvprune_core.tasks.outputs import Vectors

CPU = torch.device("cpu")
SHORT = Training(max_steps=12, batch_size=16, learning_rate=2e-3)
BOTH = ("ndcg_at_10_both", "mrr_at_10_both", "recall_at_1_both", "recall_at_10_both")


def texts(count: int, seed: int) -> tuple[str, ...]:
    source = random.Random(seed)
    made = dict[str, None]()
    while len(made) < count:
        made[" ".join(f"word{source.randrange(20)}" for _ in range(source.randint(2, 12)))] = None
    return tuple(made)


QUERIES, DOCUMENTS = texts(12, 3), texts(20, 4)
JUDGED = Judgements(QUERIES, DOCUMENTS, tuple(((number, 1.0), (number + 5, 2.0)) for number in range(12)))
SCORED = ScoredPairs(QUERIES, DOCUMENTS[:12], tuple(float(number) for number in range(12)))


def data(validation: Split = PlainTexts(texts(24, 2)), task: str = "embedding", count: int = 64) -> EmbeddingData:  # noqa: B008 (immutable)
    return EmbeddingData(get_task(task), texts(count, 1), validation)


@pytest.fixture
def folder(model_folder: Path) -> Path:
    """A model of sentence-transformers."""
    prompts = {"query": "word1 ", "document": "word2 word3 "}
    write_sentence_embedding(model_folder, SentenceEmbedding("mean", True, prompts), 32)
    return model_folder


def opened(folder: Path, found: EmbeddingData, **options: Any) -> tuple[Embedding, Any]:
    objective = objective_for(found, options)
    assert isinstance(objective, Embedding)
    return objective, load_model(find_model(folder, None), objective, 0)


def vectors_of(objective: Objective, loaded: Any) -> Any:
    examples = objective.validation_examples(loaded.tokenizer, loaded.config, 32)
    return objective.predict(loaded.model, examples, CPU)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_sentence_transformers(model_folder: Path, pooling: str, normalize: bool) -> None:
    write_sentence_embedding(model_folder, SentenceEmbedding(pooling, normalize), 32)
    objective, loaded = opened(model_folder, data())
    expected = SentenceTransformer(str(model_folder)).encode(list(objective.data.validation.texts))  # type: ignore[union-attr]
    np.testing.assert_allclose(vectors_of(objective, loaded), expected, atol=2e-6)
    assert loaded.fine_tuned
    assert not loaded.notes


def test_prompts_stand_before_queries_and_documents(folder: Path) -> None:
    objective, loaded = opened(folder, data(JUDGED, "retrieval"))
    theirs = SentenceTransformer(str(folder))
    expected = [theirs.encode_query(list(QUERIES)), theirs.encode_document(list(DOCUMENTS))]
    np.testing.assert_allclose(vectors_of(objective, loaded), np.concatenate(expected), atol=2e-6)
    assert loaded.notes == (
        "the training texts are read without any of the model's prompts (query, document); --set prompt_name chooses",
    )
    objective, loaded = opened(folder, data(), prompt_name="query")
    assert not loaded.notes
    first = loaded.tokenizer("word1 " + objective.data.train[0])["input_ids"]
    assert objective.training_examples(loaded.tokenizer, loaded.config, 32).inputs["input_ids"][0].tolist() == first
    with pytest.raises(
        CompressionError, match="prompt_name must be one of the model's prompts, query, document, got 'code'"
    ):
        opened(folder, data(), prompt_name="code")


def test_what_is_guessed_of_the_pooling_is_said(model_folder: Path) -> None:
    _, loaded = opened(model_folder, data())
    assert "they are the mean of its tokens' states, as in sentence-transformers" in loaded.notes[0]
    _, loaded = opened(model_folder, data(), pooling="cls")
    assert not loaded.notes
    assert loaded.config.sentence_embedding["pooling_mode"] == "cls"
    write_sentence_embedding(model_folder, SentenceEmbedding("max"), 32)
    _, loaded = opened(model_folder, data(), pooling="cls")
    assert loaded.notes == ("the pooling is cls, in place of the model's own, max",)


def test_an_encoder_decoder_is_refused(save: Callable[..., Path]) -> None:
    from transformers import T5Model

    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    with pytest.raises(CompressionError, match="must be no encoder-decoder for the task embedding, got t5") as caught:
        opened(save(T5Model(T5Config(**sizes))), data())
    assert caught.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


def test_the_loss_is_the_squared_distance_relative_to_the_teacher() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(5, 8), torch.randn(5, 8)
    expected = sum(float((t - s) @ (t - s) / (t @ t)) for s, t in zip(student, teacher, strict=True)) / 5
    assert Vectors().loss(student, teacher, torch.ones(5, 1).bool(), 2.0).item() == pytest.approx(expected, rel=1e-5)
    one, other = (nn.functional.normalize(x, dim=-1) for x in (student, teacher))
    found = Vectors().loss(one, other, torch.ones(5, 1).bool(), 2.0)
    assert found.item() == pytest.approx(2 * (1 - float((one * other).sum(-1).mean())), rel=1e-5)


@pytest.mark.slow
def test_gradients_in_random_directions_have_the_moments_of_the_jacobian() -> None:
    torch.manual_seed(0)
    inputs, weight = torch.randn(1, 3), torch.randn(4, 3, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda w: torch.tanh(inputs @ w.T)[0], weight).reshape(4, 12)
    gradients = []
    for number in range(4000):
        loss = RandomDirection("v")({"v": torch.tanh(inputs @ weight.T)}, {"input_ids": torch.tensor([[number]])})
        gradients.append(torch.autograd.grad(loss, weight)[0].flatten())
    stacked = torch.stack(gradients)
    expected = jacobian.T @ jacobian
    assert (stacked.T @ stacked / 4000 - expected).abs().max() < 0.1 * expected.abs().max()


def test_each_batch_of_texts_has_its_own_direction() -> None:
    vectors = torch.eye(3)

    def along(*ids: list[int]) -> list[float]:
        """The gradients of the texts' vectors."""
        read = vectors[: len(ids)].clone().requires_grad_()
        RandomDirection("v")({"v": read}, {"input_ids": torch.tensor(ids)}).backward()
        found: list[float] = read.grad.flatten().tolist()  # type: ignore[union-attr]
        return found

    assert along([1, 2, 3]) == along([1, 2, 3])
    same_sum = [along([1, 2, 3]), along([3, 2, 1]), along([2, 2, 2]), along([1, 5, 0])]
    assert len(set(map(tuple, same_sum))) == 4
    assert along([1, 2], [3, 4])[:3] != along([3, 4], [1, 2])[:3]


def test_metrics_are_those_of_the_given_model_and_of_sentence_transformers(folder: Path) -> None:
    objective, loaded = opened(folder, data(SCORED, "sentence-similarity"))
    found = vectors_of(objective, loaded)
    measured = objective.against(found).measure(found)
    assert measured["cosine"] == pytest.approx(1)
    evaluator = EmbeddingSimilarityEvaluator(
        list(SCORED.texts), list(SCORED.others), list(SCORED.scores), main_similarity="cosine", write_csv=False
    )
    theirs = evaluator(SentenceTransformer(str(folder)))
    assert measured["spearman"] == pytest.approx(theirs["spearman_cosine"], abs=1e-5)
    assert measured["pearson"] == pytest.approx(theirs["pearson_cosine"], abs=1e-5)


def test_evaluations_on_the_way_read_queries_only(folder: Path) -> None:
    whole, loaded = opened(folder, data(JUDGED, "retrieval"))
    given = vectors_of(whole, loaded)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    whole = whole.against(given)
    measured = whole.measure(vectors_of(whole, loaded))
    assert whole.enough_on_the_way == 12
    few = whole.shortened(12)
    assert len(few.validation_examples(loaded.tokenizer, loaded.config, 32)) == 12
    found = few.measure(vectors_of(few, loaded))
    assert found == {name: pytest.approx(measured[name]) for name in found if name != "cosine"} | {
        "cosine": pytest.approx(found["cosine"])
    }
    assert set(measured) - set(found) == set(BOTH)
    assert len(few.data.validation) == 12


@pytest.mark.slow
def test_inputs_are_as_long_as_the_model_says(model_folder: Path) -> None:
    write_sentence_embedding(model_folder, SentenceEmbedding(max_seq_length=9), 32)
    options: dict[str, Any] = {"density": 1, "dense_baseline": False, "keep_fine_tuned": True, "teacher": None}
    for given, length in ((None, 9), (12, 12)):
        info = compress(model_folder, data(), training=Training(max_length=given), **options).info
        assert info.spec["training"]["max_length"] == length
    objective, loaded = opened(model_folder, data())
    assert objective.config_of_run(loaded.config, 9)[KEY]["max_seq_length"] == 9


@pytest.mark.parametrize("metric", ["ndcg_at_10", "mrr_at_10", "recall_at_1_both", "cosine"])
def test_any_metric_of_a_search_can_be_the_primary_one(metric: str, folder: Path) -> None:
    found = data(JUDGED, "retrieval")
    objective, loaded = opened(folder, replace(found, task=replace(found.task, primary_metric=metric)))
    vectors = vectors_of(objective, loaded)
    other = np.roll(vectors, 1, axis=0)
    objective = objective.against(other)
    sample = objective.sample_metric(vectors)
    assert sample is not None
    count, metric_of = sample
    assert metric_of(np.ones(count)) == pytest.approx(objective.measure(vectors)[metric])
    assert objective.enough_on_the_way == (None if metric.endswith("_both") else 12)


@pytest.mark.parametrize("metric", ["spearman", "pearson", "cosine"])
def test_any_metric_of_pairs_can_be_the_primary_one(metric: str, folder: Path) -> None:
    found = data(SCORED, "sentence-similarity")
    objective, loaded = opened(folder, replace(found, task=replace(found.task, primary_metric=metric)))
    vectors = vectors_of(objective, loaded)
    objective = objective.against(np.roll(vectors, 1, axis=0))
    sample = objective.sample_metric(vectors)
    assert sample is not None
    count, metric_of = sample
    assert metric_of(np.ones(count)) == pytest.approx(objective.measure(vectors)[metric])


@pytest.mark.slow
def test_an_artifact_by_itself_cannot_be_compared_with_the_given_model(folder: Path, tmp_path: Path) -> None:
    compress(folder, data(), density=1, dense_baseline=False, keep_fine_tuned=True, teacher=None).save(tmp_path / "out")
    (tmp_path / "texts.txt").write_text("word1 word2\nword3\n")
    with pytest.raises(CannotEvaluate, match="the task embedding measures against the given model"):
        evaluate(tmp_path / "out", tmp_path / "texts.txt")
    (tmp_path / "dev.tsv").write_text("query\tdocument\nword1 word2\tword1\nword3\tword4\n")
    assert set(evaluate(tmp_path / "out", tmp_path / "dev.tsv", task="retrieval").metrics) == set(BOTH)


@pytest.mark.slow
def test_a_run_learns_the_vectors_and_the_artifact_gives_them(folder: Path, tmp_path: Path) -> None:
    found = data(JUDGED, "retrieval", 128)
    options: dict[str, Any] = {"density": 0.3, "cache": tmp_path / "cache", "embedding_dtype": "fp32"}
    result = compress(
        folder, found, method="magnitude", training=replace(SHORT, max_steps=40), weight_dtype="fp32", **options
    )
    assert result.metrics["dense/cosine"] == pytest.approx(1)
    assert result.metrics["eval/cosine"] > 0.9
    assert set(result.metrics) >= {f"eval/{name}" for name in (*BOTH, "ndcg_at_10", "mrr_at_10", "recall_at_10")}
    result.save(out := tmp_path / "out")
    expected = SentenceTransformer(str(out)).encode_query(list(QUERIES))
    for runtime in ("dense", "sparse"):
        model: Any = load(out, runtime=runtime)  # type: ignore[arg-type]
        np.testing.assert_allclose(model.encode(QUERIES, prompt_name="query"), expected, atol=2e-6)
    assert json.loads((out / "sentence_bert_config.json").read_text()) == {"max_seq_length": 64}
    (tmp_path / "dev.jsonl").write_text(
        "".join(
            json.dumps({"query": QUERIES[number], "document": DOCUMENTS[document], "relevance": grade}) + "\n"
            for number, judged in enumerate(JUDGED.relevant)
            for document, grade in judged
        )
    )
    again = evaluate(out, tmp_path / "dev.jsonl")
    assert set(again.metrics) == set(BOTH)
    assert again.recorded["ndcg_at_10_both"] == result.metrics["eval/ndcg_at_10_both"]


def test_encode_takes_prompts_dimensions_and_any_order(folder: Path, tmp_path: Path) -> None:
    compress(folder, data(), density=1, dense_baseline=False, keep_fine_tuned=True, teacher=None).save(tmp_path / "out")
    model: Any = load(tmp_path / "out")
    many = texts(9, 8)
    whole = model.encode(many, batch_size=4)
    np.testing.assert_allclose(whole[::-1], model.encode(many[::-1], batch_size=3), atol=2e-6)
    few = model.encode(many, dimensions=5)
    np.testing.assert_allclose(few, whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True), atol=2e-6)
    assert model.encode([]).shape == (0, 32)
    np.testing.assert_allclose(model.encode(["word7"], prompt_name="query"), model.encode(["word1 word7"]), atol=2e-6)
    for wrong, error in (
        ({"prompt_name": "code"}, "prompt_name must be one of the model's"),
        ({"dimensions": 33}, "dimensions must be from 1 to 32, those of the model, got 33"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=error):
            model.encode(many, **wrong)
    with pytest.raises(TypeError, match="texts must be a list of texts"):
        model.encode("word7")


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"density": 0.3, "method": "movement", "training": SHORT}
    whole = compress(folder, data(), **options)
    with pytest.raises(Stopped):
        compress(folder, data(), checkpoint=tmp_path / "state", callback=StopIn("pruning", 5), **options)
    assert same(whole, compress(folder, data(), checkpoint=tmp_path / "state", **options))


def test_a_teacher_of_another_width_is_refused(
    folder: Path, save: Callable[..., Path], bert_config: Callable[..., BertConfig]
) -> None:
    wide = save(BertModel(bert_config(hidden_size=48)), "wide")
    with pytest.raises(CompressionError, match=r"must make vectors of as many numbers as the model, 32, got .* 48"):
        compress(folder, data(), density=0.3, training=SHORT, teacher=Teacher(model=wide))


def test_a_run_without_a_teacher_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"teacher must be .* for the task embedding, whose texts have no labels"):
        compress(folder, data(), density=0.3, training=SHORT, teacher=None)
    with pytest.raises(ValueError, match=r"alpha must be 1 for the task embedding, whose texts have no labels, "):
        compress(folder, data(), density=0.3, training=SHORT, teacher=Teacher(alpha=0.5))
    with pytest.raises(ValueError, match="pooling must be one of mean, cls, max, lasttoken, got 'middle'"):
        compress(folder, data(), density=0.3, training=SHORT, pooling="middle")


@pytest.mark.slow
def test_a_classifier_of_the_same_body_has_no_vectors(folder: Path, tmp_path: Path) -> None:
    known = ClassificationData(get_task("sst2"), ("negative", "positive"), sentences(40, 1), sentences(20, 2))
    loaded = load_model(find_model(folder, None), objective_for(known), 0)
    assert sentence_embedding_of(loaded.config) is None
    config = json.loads((folder / "config.json").read_text()) | {KEY: SentenceEmbedding().content}
    (folder / "config.json").write_text(json.dumps(config))  # as a dense export of an embedder has it
    compress(folder, known, density=0.5, method="magnitude", training=SHORT).save(tmp_path / "out")
    assert not (tmp_path / "out" / "modules.json").exists()
    assert not hasattr(load(tmp_path / "out"), "encode")


def test_examples_to_test_on_are_compared_with_their_own_vectors_of_the_given_model(folder: Path) -> None:
    judged = Judgements(QUERIES[::-1], DOCUMENTS, tuple(((number, 1.0),) for number in range(12)))
    found = data(JUDGED, "retrieval")
    held = replace(found, test=replace(found, validation=judged))
    result = compress(folder, held, density=1, keep_fine_tuned=True, teacher=None, embedding_dtype="fp32")
    assert result.metrics["test/cosine"] == pytest.approx(1, abs=1e-4)
    assert result.metrics["test/ndcg_at_10"] == pytest.approx(result.metrics["test/ndcg_at_10_both"], abs=1e-4)


@pytest.mark.slow
def test_a_note_on_int8_says_what_its_metric_is_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "TOLERANCE", -1.0)
    options: dict[str, Any] = {"density": 1, "keep_fine_tuned": True, "teacher": None}
    for judged, of in ((data(JUDGED, "retrieval"), " of the 12 examples evaluated in training"), (data(), "")):
        result = compress(folder, judged, **options)
        name = judged.task.primary_metric
        [note] = [one for one in result.notes if "would be" in one]
        assert note.startswith(f"the embeddings are stored in fp16: with int8 the {name}{of} would be ")
