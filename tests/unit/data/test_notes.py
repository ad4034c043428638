"""What reading data tells: the columns that were read, and what should be known of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from mvprune.data.columns import Columns
from mvprune.data.loading import DataError, load_files, load_rows, load_validation
from mvprune.data.tasks import get_task

OWN = get_task("text-classification")
SST2 = get_task("sst2")
NER = get_task("ner")
MASKED = get_task("masked-lm")
NFC, NFD = "caf\u00e9", "cafe\u0301"


def rows(labels: list, **more: object) -> str:
    return "".join(
        json.dumps({"text": f"t{number}", "label": label, **more}) + "\n" for number, label in enumerate(labels)
    )


def with_classes(path: Path, columns: dict, features: dict) -> Path:
    """A parquet file as the library datasets writes it."""
    described = json.dumps({"info": {"features": features}})
    parquet.write_table(pyarrow.table(columns).replace_schema_metadata({"huggingface": described}), path)
    return path


def class_label(*names: str) -> dict:
    return {"names": list(names), "_type": "ClassLabel"}


def test_the_columns_are_stated(load):
    data = load("Body\tlabel\na\tx\nb\ty\n", task=OWN, columns=Columns(text="body", label="label"))
    assert data.columns == ("columns: text 'Body', label 'label'",)
    data = load("title\tcontent\tclass\na\tc\tx\nb\td\ty\n", task=OWN)
    assert data.columns == ("columns: text 'title', second text 'content', label 'class' (found by name)",)
    data = load("text\tlabel\na\tx\nb\ty\n", task=OWN, validation="sentence\tlabel\nc\tx\n")
    assert data.columns == (
        "columns of train.tsv: text 'text', label 'label' (found by name)",
        "columns of validation.tsv: text 'sentence', label 'label' (found by name)",
    )
    assert load('{"body": "a"}\n', task=MASKED, name="train.jsonl").columns == ("columns: text 'body' (found by name)",)
    assert load("a\nb\n", task=MASKED, name="train.txt").columns == ()
    lists = '{"words": ["a", "b"], "ner": ["B-X", "O"]}\n'
    found = load(lists, task=NER, name="train.jsonl", columns=Columns(label="ner")).columns
    assert found == ("columns: text 'words', label 'ner' (found by name)",)


def test_validation_is_read_by_the_columns_of_training(load):
    train, validation = "sentiment\ttext\nx\ta\ny\tb\n", "text\tscore\tsentiment\tbody\nc\t1\tx\td\n"
    data = load(train, task=OWN, validation=validation)
    assert data.validation.texts == ["c"]
    assert data.validation.labels == [0]


@pytest.mark.parametrize("train", [["US", "us", "x"], ["not-ok", "not_ok"], ["a_b", "A-B", "c"]])
def test_labels_that_differ_in_case_only(train: list, load):
    data = load(rows(train), task=OWN, name="train.jsonl")
    pair = sorted(train)[:2] if "x" not in train else ["US", "us"]
    note = f"the labels {', '.join(pair)} differ only in case, '-' or '_', and are read as 2 classes"
    assert note in data.notes
    assert not any("differ only" in note for note in load(rows(["a", "b"]), task=OWN, name="train.jsonl").notes)


@pytest.mark.parametrize(("train", "other"), [(NFC, NFD), (NFD, NFC)])
def test_a_label_in_two_forms_of_unicode(train: str, other: str, load):
    data = load(rows([train, "b"]), task=OWN, name="train.jsonl", validation=rows([other]))
    assert data.labels == ("b", NFC)
    assert data.validation.labels == [1]
    assert any("decomposed form (NFD) are read in the composed one (NFC)" in note for note in data.notes)
    tags = load(f"a B-{train}\nb O\n", task=NER, name="train.txt", validation=f"a B-{other}\n")
    assert tags.labels == ("O", f"B-{NFC}")


HIDDEN = ["\u200b", "\ufeff", "\u00ad", "\u200e", "\u2060", "\u202c"]  # each at another end
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # with a joiner that its spelling needs


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("form", ["{0}x", "x{0}", " x {0} "])
def test_labels_that_differ_in_invisible_characters_are_one_class(hidden: str, form: str, load):
    other = form.format(hidden)
    data = load(rows(["x", other, "b"]), task=OWN, name="train.jsonl")
    assert (data.labels, data.train.labels) == (("b", "x"), [1, 1, 0])
    [note] = data.notes[:1]
    assert note.startswith(f"the labels {other.strip()!r} of train.jsonl are read as x, without U+{ord(hidden):04X} (")
    assert load(rows([1, f"0{hidden}"]), task=OWN, name="train.jsonl").train.labels == [1, 0]
    regression = load(rows([0.5, f"{hidden}0.25"]), task=get_task("text-regression"), name="train.jsonl")
    assert regression.train.labels == [0.5, 0.25]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.txt", "a B-X{0}\nb O\nc B-X\n"),
        ("train.jsonl", '{{"words": ["a", "b", "c"], "ner": ["B-X{0}", "O", "B-X"]}}\n'),
    ],
)
@pytest.mark.parametrize("hidden", HIDDEN[:3])
def test_tags_that_differ_in_invisible_characters_are_one(hidden: str, name: str, content: str, load, write, tmp_path):
    data = load(content.format(hidden), task=NER, name=name)
    assert (data.labels, data.train.tags) == (("O", "B-X"), [[1, 0, 1]])
    assert (
        f"the tags 'B-X\\x{ord(hidden):x}' of" in data.notes[0]
        or f"\\u{ord(hidden):04x}' of {name} are" in data.notes[0]
    )
    evaluated = load_validation(NER, write(tmp_path / f"dev-{name}", content.format(hidden)), [f"B-X{HIDDEN[1]}", "O"])
    assert evaluated.validation.tags == [[0, 1, 0]]


@pytest.mark.parametrize("hidden", [*HIDDEN, "\u200d"])
def test_columns_are_found_with_invisible_characters(hidden: str, load):
    data = load(f"Text{hidden}\t{hidden}label\na\tx\nb\ty\n", task=OWN)
    assert data.train.texts == ["a", "b"]
    named = Columns(text="body", label=f"kind{hidden}")
    assert load(f"bo{hidden}dy\tkind\na\tx\nb\ty\n", task=OWN, columns=named).labels == ("x", "y")


@pytest.mark.parametrize("hidden", ["\u200b", "\u200c", "\ufe0f"])
def test_a_models_classes_are_matched_without_invisible_characters(hidden: str, write, tmp_path: Path):
    path = write(tmp_path / "dev.jsonl", rows([f"good{hidden}", "bad"]))
    data = load_validation(OWN, path, [f"b{hidden}ad", "good"])
    assert data.validation.labels == [1, 0]
    assert any(" of dev.jsonl are read as " in note and "good" in note for note in data.notes)


@pytest.mark.parametrize("joined", [PERSIAN, "\u2764\ufe0f", "\U0001f469\u200d\U0001f4bb"])
def test_joiners_mean_something(joined: str, load):
    """Both spellings are kept, and named with the characters in which they differ."""
    without = "".join(one for one in joined if one not in "\u200c\u200d\ufe0f")
    code = next(f"U+{ord(one):04X} (" for one in joined if one in "\u200c\u200d\ufe0f")
    data = load(rows([joined, without]), task=OWN, name="train.jsonl")
    assert set(data.labels) == {joined, without}
    [note] = [note for note in data.notes if "read as" in note]
    assert "differ only in case, '-', '_' or invisible characters (" + code in note
    assert note.endswith("and are read as 2 classes")
    assert not any("read as" in note for note in load(rows([joined, "other"]), task=OWN, name="train.jsonl").notes)


def test_a_label_of_invisible_characters_is_none(refused):
    error = refused(rows(["a", "\u200b\u200e"]), task=OWN, name="train.jsonl")
    assert "line 2: 'label' must have a visible character, got '\\u200b\\u200e'" in str(error)


@pytest.mark.parametrize(
    ("train", "validation", "names"),
    [
        ("text,label\na,True\nb,False\n", rows([True]), ("False", "True")),
        (rows([True, False]), "text,label\na,TRUE\n", ("false", "true")),
        ("text,label\na,true\nb,False\nc,TRUE\n", "text,label\na,True\n", ("False", "true")),
    ],
)
def test_true_is_true_in_every_format(train: str, validation: str, names: tuple, tmp_path: Path, write):
    first, second = (
        write(tmp_path / f"{name}{'.jsonl' if content.startswith('{') else '.csv'}", content)
        for name, content in (("train", train), ("dev", validation))
    )
    data = load_files(OWN, first, second)
    assert data.labels == names
    assert data.validation.labels == [1]


def test_true_beside_other_names_is_one_of_them(load, refused):
    data = load("text\tlabel\na\ttrue\nb\tfalse\nc\thalf-true\n", task=OWN)
    assert data.labels == ("false", "half-true", "true")
    assert "all integers or all names, got 0, and 'true' in line 1" in str(
        refused(rows([True, 0]), task=OWN, name="train.jsonl")
    )


@pytest.mark.parametrize("labels", [["x", "y"], [], [0, 1], {"x": 1}])
def test_several_labels_a_text_are_not_supported(labels: object, refused):
    error = refused(rows(["a", "b", labels]), task=OWN, name="train.jsonl")
    assert error.line == 3
    kind = type(labels).__name__
    remedy = "the task multi-label-classification takes several labels for each text"
    assert f"'label' must be one label, got a {kind}; {remedy}" in str(error)


def test_rows_to_validate_on_that_are_trained_on(load):
    data = load(rows(["a", "b", "a"]), task=OWN, name="train.jsonl", validation=rows(["a", "b"], more=1))
    assert "2 of 2 validation rows are training rows too" in data.notes
    other = load(rows(["a", "b"]), task=OWN, name="train.jsonl", validation='{"text": "new", "label": "a"}')
    assert other.notes == ()


def test_a_class_that_is_never_seen(load):
    mnli = get_task("mnli")
    header = "sentence1\tsentence2\tgold_label\n"
    data = load(f"{header}a\tb\tneutral\nc\td\tentailment\n", task=mnli, validation=f"{header}e\tf\tneutral\n")
    assert data.notes == ("no row of train.tsv has the label contradiction: the model cannot learn it",)
    tags = load("a B-X\nb O\n", task=NER, name="train.txt", validation="c B_X\n")
    assert "no word of train.txt has the tag B_X: the model cannot learn it" in tags.notes


def test_a_tag_of_another_form_is_said(load):
    notes = load("a B-X\nb OTHER\nc O\n", task=NER, name="train.txt").notes
    assert any("the tags OTHER are not of the form of the others, such as B-PER" in note for note in notes)
    assert not any("form" in note for note in load("a PER\nb O\nc LOC\n", task=NER, name="train.txt").notes)


@pytest.mark.parametrize("order", [("no", "yes"), ("yes", "no")])
def test_the_classes_of_a_parquet_file(order: tuple, tmp_path: Path):
    """The integers are those of the file itself, in whatever order the other one has them."""
    features = {"label": class_label("yes", "no"), "text": {"dtype": "string", "_type": "Value"}}
    train = with_classes(tmp_path / "train.parquet", {"text": ["a", "b"], "label": [0, 1]}, features)
    dev = with_classes(
        tmp_path / "dev.parquet", {"text": ["c"], "label": [order.index("no")]}, {"label": class_label(*order)}
    )
    data = load_files(OWN, train, dev)
    assert data.labels == ("yes", "no")
    assert data.train.labels == [0, 1]
    assert data.validation.labels == [1]
    assert load_validation(OWN, dev, ["NO", "yes"]).validation.labels == [0], "the model's names have another order"


def test_the_classes_of_a_named_task_come_first(tmp_path: Path):
    columns = {"sentence": ["a", "b"], "label": [0, 1]}
    by_name = with_classes(tmp_path / "a.parquet", columns, {"label": class_label("positive", "negative")})
    assert load_files(SST2, by_name, by_name).train.labels == [1, 0]
    others = with_classes(tmp_path / "b.parquet", columns, {"label": class_label("neg", "pos")})
    data = load_files(SST2, others, others)
    assert data.train.labels == [0, 1]
    assert any("read as the numbers of the classes negative, positive, not as its neg, pos" in n for n in data.notes)


def test_classes_that_are_not_those_of_training(tmp_path: Path):
    train = with_classes(
        tmp_path / "train.parquet", {"text": ["a", "b"], "label": [0, 1]}, {"label": class_label("yes", "no")}
    )
    dev = with_classes(tmp_path / "dev.parquet", {"text": ["a"], "label": [0]}, {"label": class_label("pos", "neg")})
    with pytest.raises(
        DataError, match=r"dev\.parquet, row 1: the label must be one of yes, no, or 0 to 1, got 0 \(pos\)"
    ):
        load_files(OWN, train, dev)


@pytest.mark.parametrize("kind", ["List", "Sequence", "old"])
def test_the_tags_of_a_parquet_file(kind: str, tmp_path: Path):
    names = class_label("O", "B-X", "I-X")
    feature = [names] if kind == "old" else {"feature": names, "_type": kind}
    columns = {"tokens": [["a", "b"], ["c"]], "ner_tags": [[1, 2], [0]]}
    path = with_classes(tmp_path / "train.parquet", columns, {"ner_tags": feature})
    data = load_files(NER, path, path)
    assert data.labels == ("O", "B-X", "I-X")
    assert data.train.tags == [[1, 2], [0]]
    assert load_validation(NER, path, ["I-X", "O", "B-X"]).validation.tags == [[2, 0], [1]]


@pytest.mark.parametrize("metadata", ["{", "[]", '{"info": 5}', '{"info": {"features": {"label": 3}}}', '{"a": 1}'])
def test_metadata_of_another_kind_is_none(metadata: str, tmp_path: Path):
    table = pyarrow.table({"text": ["a", "b"], "label": [0, 1]}).replace_schema_metadata({"huggingface": metadata})
    parquet.write_table(table, tmp_path / "train.parquet")
    assert load_files(OWN, tmp_path / "train.parquet", tmp_path / "train.parquet").labels == ("0", "1")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("x", " "), "text that is not blank"),
        (("x", "\u200b"), "text that is not blank"),
        (("x", "x"), "different"),
        (("x", "x\u2060"), "different"),
    ],
)
def test_names_of_classes_that_cannot_be(names: tuple, found: str, tmp_path: Path):
    path = with_classes(tmp_path / "a.parquet", {"text": ["a"], "label": [0]}, {"label": class_label(*names)})
    with pytest.raises(
        DataError, match=rf"a\.parquet: the names of the classes of 'label' in the metadata must be {found}$"
    ):
        load_files(OWN, path, path)


def test_labels_of_a_model_are_matched_exactly_first(load, write, tmp_path: Path):
    path = write(tmp_path / "dev.jsonl", rows(["US", "us", "Them"]))
    assert load_validation(OWN, path, ["us", "US", "Them"]).validation.labels == [1, 0, 2]
    assert load_validation(OWN, path, ["us", "US", "them"]).validation.labels == [1, 0, 2]
    with pytest.raises(DataError, match=r"line 1: the label must be one of .*, got 'Us'"):  # it may be either
        load_validation(OWN, write(tmp_path / "b.jsonl", rows(["Us"])), ["us", "US", "them"])
    data = load_validation(OWN, write(tmp_path / "a.jsonl", rows(["NOT-ok", "Ok"])), ["ok", "not_ok"])
    assert data.validation.labels == [1, 0]
    assert data.notes == ("the labels NOT-ok, Ok of a.jsonl are read as not_ok, ok",)


def test_a_hubs_integers_are_those_of_its_classes():
    given = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    data = load_rows(OWN, given, given, name="owner/set", classes={"label": ["x", "y"]})
    assert (data.labels, data.train.labels) == (("x", "y"), [1, 0])
