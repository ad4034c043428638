"""Tags of words: alignment with tokens, entities, learning."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.training_runs import trainer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertForTokenClassification, BertModel, PreTrainedTokenizerFast

from mvprune.data.loading import TaggedSplit, TokenClassificationData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Reason, Training, compress
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED
from mvprune_core.tasks.metrics import entities, entity_counts, entity_metrics
from mvprune_core.tasks.outputs import TokenLogits
from mvprune_core.training.distillation import DistillationLoss

CPU = torch.device("cpu")
LABELS = ("O", "B-GOOD", "I-GOOD")


def scored(said: list[list[str]], true: list[list[str]], names: list[str]) -> dict[str, float]:
    return entity_metrics(entity_counts(said, true, names).sum(axis=0))


def sentences(count: int, seed: int) -> TaggedSplit:
    """Entities of one word (good) or two (good great)."""
    source = random.Random(seed)
    words = []
    for _ in range(count):
        parts = source.choices([["word1"], ["word2"], ["word3"], ["good"], ["good", "great"]], k=source.randint(3, 6))
        words.append([word for part in parts for word in part])
    return TaggedSplit(words, [[{"good": 1, "great": 2}.get(word, 0) for word in sentence] for sentence in words])


@pytest.fixture
def data() -> TokenClassificationData:
    return TokenClassificationData(get_task("ner"), LABELS, sentences(300, 1), sentences(60, 2))


@pytest.fixture(scope="module")
def letters() -> PreTrainedTokenizerFast:
    """A tokenizer that cuts words into letters, and knows none of the digits."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        vocabulary |= {letter: len(vocabulary), f"##{letter}": len(vocabulary) + 1}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("removed")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def of(split: TaggedSplit, labels: tuple[str, ...] = LABELS) -> Any:
    return objective_for(TokenClassificationData(get_task("ner"), labels, split, split))


def config() -> Any:
    return SimpleNamespace(id2label=dict(enumerate(LABELS)))


def test_the_first_token_of_a_word_carries_its_tag(letters: PreTrainedTokenizerFast) -> None:
    objective = of(TaggedSplit([["ab", "c", "...", "9", "def"]], [[1, 2, 0, 0, 1]]))
    examples = objective.training_examples(letters, config(), 32)
    (ids,), (labels,) = examples.inputs["input_ids"], examples.inputs["labels"]
    assert letters.convert_ids_to_tokens(ids) == ["[CLS]", "a", "##b", "c", "[UNK]", "d", "##e", "##f", "[SEP]"]
    assert labels.tolist() == [IGNORED, 1, IGNORED, 2, 0, 1, IGNORED, IGNORED, IGNORED]
    (words,) = objective.validation_examples(letters, config(), 32).notes["word"]
    assert words.tolist() == [-1, 0, -1, 1, 3, 4, -1, -1, -1], "of the third word nothing is left"


WORDS = st.lists(st.text("abc.9", min_size=1, max_size=7), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=80)
@given(split=st.lists(WORDS, min_size=1, max_size=5), length=st.integers(4, 20))
def test_every_word_is_tagged_once_however_short_the_pieces(
    letters: PreTrainedTokenizerFast, split: list[list[str]], length: int
) -> None:
    split = [*split, ["abc"]]
    tags = [[index % 3 for index in range(len(words))] for words in split]
    objective = of(TaggedSplit(split, tags))
    pieces = objective.validation_examples(letters, config(), length)
    training = objective.training_examples(letters, config(), length)
    found: dict[tuple[int, int], int] = {}
    for index, (sentence, words) in enumerate(zip(pieces.notes["sentence"], pieces.notes["word"], strict=True)):
        ids = pieces.inputs["input_ids"][index]
        assert len(ids) == len(words) <= length
        assert (words >= 0).any()
        for token in np.flatnonzero(words >= 0):
            place = int(sentence[0]), int(words[token])
            assert place not in found
            found[place] = int(ids[token])
            assert training.inputs["labels"][index][token] == tags[place[0]][place[1]]
        assert ((training.inputs["labels"][index] == IGNORED) == (words < 0)).all()
    expected = {
        (number, index): bare[0]
        for number, words in enumerate(split)
        for index, word in enumerate(words)
        if (bare := letters(word, add_special_tokens=False)["input_ids"])
    }
    assert found == expected


@pytest.mark.parametrize("trimmed", [True, False])
def test_tokens_that_hold_the_blank_before_a_word(trimmed: bool) -> None:
    words = ["ab", "é", "c", "ab"]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "Ġab", "Ġc", "<end>"]
    merges = [("a", "b"), ("Ġ", "ab"), ("Ġ", "c")]
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trimmed)
    backend.post_processor = processors.ByteLevel(trim_offsets=trimmed)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    objective = of(TaggedSplit([words], [[1, 2, 0, 1]]))
    (found,) = objective.validation_examples(tokenizer, config(), 32).notes["word"]
    (ids,) = objective.validation_examples(tokenizer, config(), 32).inputs["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["ab", "Ġ", "Ã", "©", "Ġc", "Ġab"]
    assert found[[0, 4, 5]].tolist() == [0, 2, 3]
    assert sorted(found[1:4].tolist()) == [-1, -1, 1], "the blank or the letter after it"


def test_sentences_of_which_nothing_is_left_are_refused(letters: PreTrainedTokenizerFast) -> None:
    with pytest.raises(CompressionError, match="leaves nothing of the sentences' words") as raised:
        of(TaggedSplit([["...", "."]], [[1, 0]])).training_examples(letters, config(), 16)
    assert raised.value.reason is Reason.INVALID_DATASET


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("B-PER I-PER O B-LOC", [(0, 1, "PER"), (3, 3, "LOC")]),
        ("B-PER B-PER I-PER", [(0, 0, "PER"), (1, 2, "PER")]),
        ("I-PER I-PER O I-LOC", [(0, 1, "PER"), (3, 3, "LOC")]),
        ("I-PER I-LOC", [(0, 0, "PER"), (1, 1, "LOC")]),
        ("B-PER I-LOC I-LOC", [(0, 0, "PER"), (1, 2, "LOC")]),
        ("S-PER B-PER I-PER E-PER S-LOC", [(0, 0, "PER"), (1, 3, "PER"), (4, 4, "LOC")]),
        ("U-PER B-PER L-PER I-PER", [(0, 0, "PER"), (1, 2, "PER"), (3, 3, "PER")]),
        ("I-PER E-PER E-PER", [(0, 1, "PER"), (2, 2, "PER")]),
        ("PER PER O LOC", [(0, 1, "PER"), (3, 3, "LOC")]),
        ("B-X-Y I-X-Y", [(0, 1, "X-Y")]),
        ("O O", []),
        ("B I O S", [(0, 1, ""), (3, 3, "")]),
    ],
)
def test_entities_of_tags(tags: str, found: list[tuple[int, int, str]]) -> None:
    assert entities(tags.split()) == found


def test_a_letter_may_be_a_type() -> None:
    """L for a place, M for what is neither that nor a person: other entities, not two prefixes."""
    places, others = [["O", "L", "L"]], [["O", "M", "M"]]
    assert scored(places, others, ["O", "L", "M"])["f1"] == 0
    assert scored(places, places, ["O", "L", "M"])["f1"] == 1
    assert scored([["B", "I"]], [["B", "B"]], ["O", "B", "I", "LOC"])["f1"] == 0
    assert scored([["S", "S"]], [["S", "S"]], ["O", "B", "I", "E", "S"])["precision"] == 1
    assert scored([["S", "O"]], [["S", "S"]], ["O", "B", "I", "E", "S"])["recall"] == 0.5


@given(st.lists(st.sampled_from(["O", "O", "X", "Y"]), max_size=12), st.data())
def test_entities_are_found_in_every_scheme(kinds: list[str], data: st.DataObject) -> None:
    """Random entities, written as IOB2 and as IOBES, are read back."""
    spans: list[tuple[int, int, str]] = []
    index, iob2, iobes = 0, [], []
    for kind in kinds:
        length = 1 if kind == "O" else data.draw(st.integers(1, 4))
        if kind == "O":
            iob2.append("O")
            iobes.append("O")
        else:
            spans.append((index, index + length - 1, kind))
            iob2 += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
            iobes += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
        index += length
    assert entities(iob2) == entities(iobes) == spans


def test_metrics_are_those_counted_by_hand() -> None:
    references = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]
    # Right: LOC. Wrong: PER is too short, the second sentence's has another type, one is made up.
    predictions = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "B-LOC"]]
    names = ["O", "B-LOC", "B-PER", "B-X", "I-PER"]
    assert scored(predictions, references, names) == {
        "f1": pytest.approx(2 / 7),
        "precision": pytest.approx(1 / 4),
        "recall": pytest.approx(1 / 3),
        "accuracy": pytest.approx(3 / 6),
    }
    assert scored(references, references, names) == {"f1": 1, "precision": 1, "recall": 1, "accuracy": 1}
    assert scored([["O"]], [["B-X"]], names) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0}
    assert scored([["O"]], [["O"]], names)["accuracy"] == 1


@pytest.mark.slow
def test_compresses_and_finds_entities(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: TokenClassificationData
) -> None:
    torch.manual_seed(1)
    folder = save(BertModel(bert_config()))
    training = Training(max_steps=80, batch_size=32, learning_rate=5e-3, max_length=32)
    result = compress(folder, data, method="magnitude", density=0.5, training=training)
    assert result.primary_metric == "f1"
    assert result.metrics["eval/f1"] > 0.9
    assert {name for name in result.metrics if name.startswith("eval/")} == {
        f"eval/{name}" for name in data.task.metrics
    }


def test_a_fine_tuned_models_order_of_tags_is_kept(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: TokenClassificationData
) -> None:
    names = ("I-GOOD", "O", "B-GOOD")
    torch.manual_seed(1)
    model = BertForTokenClassification(bert_config(num_labels=3, id2label=dict(enumerate(names))))
    objective = objective_for(data)
    loaded = load_model(find_model(save(model), None), objective, seed=0)
    assert loaded.fine_tuned
    assert [loaded.config.id2label[index] for index in range(3)] == list(names)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    expected = [[1, 2, 0][tag] for tag in data.train.tags[0]]
    assert examples.inputs["labels"][0].tolist() == [IGNORED, *expected, IGNORED]
    validation = objective.validation_examples(loaded.tokenizer, loaded.config, 32)
    praise = set(loaded.tokenizer.convert_tokens_to_ids(["good", "great"]))
    metrics = objective.measure(objective.predict(_Reader(praise, loaded.config), validation, CPU))
    tags = [tag for sentence in data.validation.tags for tag in sentence]
    assert metrics["accuracy"] == pytest.approx(sum(tag < 2 for tag in tags) / len(tags))
    assert 0 < metrics["f1"] < 1


class _Reader(torch.nn.Module):
    """Takes every word of praise for the beginning of an entity, in 16 bits."""

    def __init__(self, praise: set[int], config: Any) -> None:
        super().__init__()
        self.praise, self.config = praise, config

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        begins = torch.isin(input_ids, torch.tensor(sorted(self.praise)))
        return SimpleNamespace(logits=torch.stack([begins & False, ~begins, begins], dim=-1).bfloat16())


@pytest.mark.parametrize("taught", [False, True])
def test_accumulated_gradients_count_every_tag_alike(
    model_folder: Path, data: TokenClassificationData, taught: bool
) -> None:
    long, short = ["good"] * 20, ["word1"]
    uneven = TaggedSplit([long, short, short], [[1] * 20, [0], [0]])
    objective = objective_for(TokenClassificationData(data.task, LABELS, uneven, uneven))
    # A teacher has logits for every token, even [CLS] and [SEP], which have no tags.
    said = torch.randn(22 + 3 + 3, 3, generator=torch.Generator().manual_seed(0))
    starts = torch.tensor([0, 22, 25, 28])
    loss = DistillationLoss({"logits": said}, {"logits": starts}, (TokenLogits(),), temperature=2.0, alpha=0.9)
    weights = []
    for parts in (1, 2):
        loaded = load_model(find_model(model_folder, None), objective, seed=0)
        examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
        training = Training(max_steps=3, batch_size=3, learning_rate=1e-2, accumulation_steps=parts)
        distillation = loss if taught else None
        trainer(loaded.model, examples, training.settings(data.task), distillation=distillation).run()
        weights.append(loaded.model.get_submodule("classifier").weight.detach().clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-5)


SPELLINGS = [
    ("B-{}", "I-{}", "O"),
    ("B_{}", "I_{}", "O"),
    ("{}-B", "{}-I", "O"),
    ("{}_B", "{}_I", "O"),
    ("b-{}", "i-{}", "o"),
    ("B:{}", "I:{}", "O"),
]


@pytest.mark.parametrize(("begin", "inside", "outside"), SPELLINGS)
def test_f1_is_the_same_in_every_spelling(begin: str, inside: str, outside: str) -> None:
    def spelled(tags: str) -> list[str]:
        forms = {"B": begin, "I": inside}
        return [outside if tag == "O" else forms[tag[0]].format(tag[2:]) for tag in tags.split()]

    names = spelled("O B-PER I-PER B-X-Y I-X-Y")
    references = [spelled("B-PER I-PER O B-X-Y B-X-Y"), spelled("I-PER O B-PER")]
    predictions = [spelled("B-PER O O B-X-Y I-X-Y"), spelled("I-PER O B-PER")]
    assert scored(predictions, references, names) == {
        "f1": pytest.approx(4 / 9),
        "precision": pytest.approx(2 / 4),
        "recall": pytest.approx(2 / 5),
        "accuracy": pytest.approx(6 / 8),
    }


def test_a_type_may_look_like_a_position() -> None:
    """Where another spelling fits not all tags, a tag is a type or has its position before a hyphen."""
    assert scored([["E_mail"]], [["S_phone"]], ["O", "E_mail", "S_phone"])["f1"] == 0
    assert entities(["PART-I", "VITAMIN-C"]) == [(0, 0, "PART-I"), (1, 1, "VITAMIN-C")]
    assert entities(["B-I", "I-I", "B-B"]) == [(0, 1, "I"), (2, 2, "B")]
