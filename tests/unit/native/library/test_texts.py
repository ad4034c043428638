"""Texts through the C interface: ids, cuts and prompts are those of transformers' tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.unit.artifact.saved_models import reseal
from tests.unit.native.library.artifacts import BODIES, EMBEDDING, made, saved
from tests.unit.native.library.interface import ARGUMENT, UNSUPPORTED, Model, NativeError
from tests.unit.native.tokenizers_made import bert

TEXTS = ["The model answers a question.", "", "Ein Mädchen überquert die Straße", "weights " * 60]
PAIRS = ["The score is 0.75", "tokens", None, "pruned " * 70]
LONGEST = 48


@pytest.fixture
def tokenizer() -> Any:
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bert(True), model_max_length=LONGEST, model_input_names=names, **special
    )


def artifact(folder: Path, task: str, tokenizer: Any, **config: Any) -> Path:
    assert BODIES["BERT"][1]["max_position_embeddings"] > LONGEST
    return saved(folder, made("BERT", task, vocab_size=len(tokenizer), **config), tokenizer=tokenizer)


@pytest.mark.parametrize("pairs", [None, PAIRS])
def test_tokens_and_answers_are_those_of_the_tokenizer(pairs: Any, tokenizer: Any, tmp_path: Path) -> None:
    with Model.open(artifact(tmp_path / "out", "ForTokenClassification", tokenizer)) as model:
        found, tokens = model.run_texts(TEXTS, pairs)
        seconds = pairs or [None] * len(TEXTS)
        encoded = [
            tokenizer(text, pair, truncation=True, return_offsets_mapping=True)
            for text, pair in zip(TEXTS, seconds, strict=True)
        ]
        rows = [one["input_ids"] for one in encoded]
        types = [one["token_type_ids"] for one in encoded]
        assert tokens["lengths"] == [len(row) for row in rows]
        assert max(tokens["lengths"]) == LONGEST
        assert tokens["ids"] == [token for row in rows for token in row]
        assert tokens["types"] == [kind for row in types for kind in row]
        places = list(zip(tokens["begins"], tokens["ends"], strict=True))
        assert places == [tuple(place) for one in encoded for place in one["offset_mapping"]]
        whose = [-1 if one is None else one for encoding in encoded for one in encoding.sequence_ids()]
        assert tokens["texts"] == whose
        assert model.run(rows, types).values.tobytes() == found.values.tobytes()


def test_of_questions_the_passage_is_cut(tokenizer: Any, tmp_path: Path) -> None:
    with Model.open(artifact(tmp_path / "out", "ForQuestionAnswering", tokenizer)) as model:
        question, passage = "question " * 10, "answer " * 90
        _, tokens = model.run_texts([question], [passage])
        assert tokens["ids"] == tokenizer(question, passage, truncation="only_second")["input_ids"]
        with pytest.raises(NativeError) as caught:  # the question leaves no room
            model.run_texts([passage], [passage])
        assert caught.value.status == ARGUMENT


def test_prompts_of_vectors(tokenizer: Any, tmp_path: Path) -> None:
    prompts = {"query": "question: ", "document": "answer: "}
    how = EMBEDDING | {"prompts": prompts, "default_prompt_name": "document", "max_seq_length": 9}
    with Model.open(artifact(tmp_path / "out", "Model", tokenizer, sentence_embedding=how)) as model:
        for name, prompt in ((None, "answer: "), ("query", "question: "), ("document", "answer: ")):
            _, tokens = model.run_texts([TEXTS[0]], prompt_name=name)
            assert tokens["ids"] == tokenizer(prompt + TEXTS[0], truncation=True, max_length=9)["input_ids"]
        with pytest.raises(NativeError, match="no prompt named passage") as caught:
            model.run_texts(TEXTS, prompt_name="passage")
        assert caught.value.status == ARGUMENT


def test_without_a_tokenizer_that_is_known(tokenizer: Any, tmp_path: Path) -> None:
    with Model.open(saved(tmp_path / "none", made("BERT", "ForSequenceClassification"))) as model:
        with pytest.raises(NativeError, match=r"has no tokenizer\.json: give ids") as caught:
            model.run_texts(TEXTS)
        assert caught.value.status == UNSUPPORTED
        assert model.run([[5, 6]]).values.shape == (1, 3)
    folder = artifact(tmp_path / "left", "ForSequenceClassification", tokenizer)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"truncation_side": "left"}))
    reseal(folder)
    with (
        Model.open(folder) as model,
        pytest.raises(NativeError, match="truncation_side must be right"),
    ):
        model.run_texts(TEXTS)
