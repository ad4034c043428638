"""Data of a task: GLUE's own files, rows in memory, fingerprints."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune.data.kinds.base import GLUE
from mvprune.data.loading import ClassificationData, DataError, Split, TaskFiles, find_task_files, load_files, load_rows
from mvprune.data.tasks import TASKS, get_task

SST2 = get_task("sst2")
MRPC = get_task("mrpc")
OWN = get_task("text-classification")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"


GLUE_FILES = {
    "CoLA": (
        "",
        'gj04\t1\t\tThe ship sank.\ngj04\t0\t*\tShip the sank "it.\n',
        ["The ship sank.", 'Ship the sank "it.'],
        [1, 0],
    ),
    "SST-2": ("sentence\tlabel\n", "good \t1\nbad \t0\n", ["good ", "bad "], [1, 0]),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
        '1\t7\t8\ta "x\tb\n0\t9\t10\tc\td\n',
        [('a "x', "b"), ("c", "d")],
        [1, 0],
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n",
        "1\t2\t3\ta\tb\t1\n4\t5\t6\tc\td\t0\n",
        [("a", "b"), ("c", "d")],
        [1, 0],
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n",
        "0\tg\tf\t2012\t1\tnone\tnone\ta\tb\t5.000\n1\tg\tf\t2012\t4\tnone\tnone\tc\td\t3.800\n",
        [("a", "b"), ("c", "d")],
        [5.0, 3.8],
    ),
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
        "\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n",
        "0\t1\t1n\tg\t(a)\t(b)\t(A)\t(B)\ta\tb\tneutral\tcontradiction\n"
        "1\t2\t2e\tg\t(c)\t(d)\t(C)\t(D)\tc\td\tneutral\tentailment\n",
        [("a", "b"), ("c", "d")],
        [2, 0],
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel\n",
        "0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n",
        [("a", "b"), ("c", "d")],
        [1, 0],
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel\n",
        "0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n",
        [("a", "b"), ("c", "d")],
        [1, 0],
    ),
    "WNLI": ("index\tsentence1\tsentence2\tlabel\n", "0\ta\tb\t1\n1\tc\td\t0\n", [("a", "b"), ("c", "d")], [1, 0]),
}


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.hub_id == GLUE], ids=lambda task: task.name)
def test_glues_own_files(task, tmp_path: Path, write):
    header, rows, texts, labels = GLUE_FILES[task.folder]
    assert find_task_files(task, tmp_path) is None
    train = write(tmp_path / task.folder / "train.tsv", header + rows)
    assert find_task_files(task, tmp_path) is None
    validation = write(tmp_path / task.folder / task.validation_file, header + rows)
    assert find_task_files(task, tmp_path) == TaskFiles(train, validation)
    data = load_files(task, train, validation)
    found = data.train.texts if data.train.pairs is None else list(zip(data.train.texts, data.train.pairs, strict=True))
    assert found == texts
    assert data.train.labels == labels
    assert data.labels == task.labels


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("squad", ("SQuAD/train-v1.1.json", "SQuAD/dev-v1.1.json")),
        ("squad", ("SQuAD/train-v1.1.part-300.json", "SQuAD/dev-v1.1.json")),
        ("squad_v2", ("SQuAD/train-v2.0.json", "SQuAD/dev-v2.0.json")),
        ("ner", ("CoNLL-2003/train.txt", "CoNLL-2003/valid.txt")),
        ("wikitext-2", ("WikiText-2/wiki.train.tokens", "WikiText-2/wiki.valid.tokens")),
    ],
)
def test_official_files_of_the_other_tasks(name: str, files: tuple[str, str], tmp_path: Path, write):
    assert find_task_files(get_task(name), tmp_path) is None
    train, validation = (write(tmp_path / file, "x") for file in files)
    assert find_task_files(get_task(name), tmp_path) == TaskFiles(train, validation)


@pytest.mark.parametrize("task", [task for task in TASKS.values() if not task.folder], ids=lambda task: task.name)
def test_tasks_without_a_folder_have_no_files(task, tmp_path: Path):
    assert task.hub_id is None
    assert find_task_files(task, tmp_path) is None


def test_mnli_has_a_second_split_to_evaluate_on(tmp_path: Path, write):
    mnli = get_task("mnli")
    header, rows, _, _ = GLUE_FILES["MNLI"]
    paths = [write(tmp_path / "MNLI" / name, header + rows) for name in ("train.tsv", "dev_matched.tsv")]
    alone = find_task_files(mnli, tmp_path)
    assert alone == TaskFiles(*paths)
    other = write(tmp_path / "MNLI" / "dev_mismatched.tsv", header + rows.replace("\ta\tb\t", "\te\tf\t"))
    files = find_task_files(mnli, tmp_path)
    assert files == TaskFiles(*paths, {"mismatched": other})
    data = load_files(mnli, *paths, more_validation=files.more_validation)
    assert data.more_validation["mismatched"].texts == ["e", "c"]
    assert data.more_validation["mismatched"].labels == [2, 0]
    assert data.fingerprint != load_files(mnli, *paths).fingerprint
    write(other, header + rows + "2\tcut\n")
    with pytest.raises(
        DataError, match=r"dev_mismatched\.tsv, line 4: the row must have 12 cells, as the header has, got 2"
    ):
        load_files(mnli, *paths, more_validation=files.more_validation)


def test_cola_with_a_header_of_its_own(load):
    data = load("label\tsentence\n1\tyes it is\n0\tit yes is\n", task=get_task("cola"))
    assert data.train.labels == [1, 0]
    data = load("id\tlabel\tnote\tsentence\nx\t1\ty\tyes it is\nx\t0\ty\tit yes is\n", task=get_task("cola"))
    assert data.train.texts == ["yes it is", "it yes is"]


def test_few_broken_rows_of_qqp_are_left_out_many_are_an_error(load, refused):
    header, rows, _, _ = GLUE_FILES["QQP"]
    qqp = get_task("qqp")
    broken = "7\t8\t9\tcut in\n"
    data = load(header + rows * 500 + broken, task=qqp)
    assert len(data.train) == 1000
    error = refused(header + rows * 500 + broken * 2, task=qqp)
    assert error.line == 1002
    assert "the row must have 6 cells, as the header has, got 4" in str(error)


def test_rows_of_a_data_set(load):
    rows = [{"idx": 0, "sentence": "good", "label": 1}, {"idx": 1, "sentence": "bad", "label": 0}]
    data = load_rows(SST2, rows, rows[:1], name="nyu-mll/glue")
    assert data.train == Split(["good", "bad"], None, [1, 0])
    same = load(GOOD, validation="sentence\tlabel\ngood\t1\n")
    assert data.fingerprint == same.fingerprint


def test_label_names_that_the_data_set_knows():
    rows = [{"text": "x", "label": 0}, {"text": "y", "label": 2}]
    data = load_rows(OWN, rows, rows, name="owner/set", classes={"label": ["sport", "world", "arts"]})
    assert data.labels == ("sport", "world", "arts")
    assert data.train.labels == [0, 2]


def test_errors_of_rows_name_split_and_row():
    rows = [{"sentence": "x", "label": 1}, {"sentence": "y", "label": 0}]
    with pytest.raises(
        DataError,
        match=r"^owner/set \(validation\), row 2: the label must be one of negative, positive, or 0 to 1, got -1",
    ):
        load_rows(SST2, rows, [rows[0], {"sentence": "z", "label": -1}], name="owner/set")
    with pytest.raises(DataError, match=r"^owner/set \(train\): the rows must be at least 1, got 0"):
        load_rows(SST2, [], rows, name="owner/set")


def test_a_fingerprint_is_of_the_content():
    split = Split(["a", "b"], None, [0, 1])
    assert split.fingerprint() == Split(["a", "b"], None, [0, 1]).fingerprint()
    others = [
        Split(["a", "c"], None, [0, 1]),
        Split(["b", "a"], None, [0, 1]),
        Split(["a", "b"], None, [1, 0]),
        Split(["a", "b"], ["a", "b"], [0, 1]),
        Split(["a", "b"], None, [0.0, 1.0]),
        Split(['a","b'], None, [0, 1]),
    ]
    assert len({split.fingerprint(), *(other.fingerprint() for other in others)}) == 7
    assert len(split.fingerprint()) == 64


def test_the_fingerprint_of_a_data_set_covers_names_and_both_splits():
    one, two = Split(["a", "b"], None, [0, 1]), Split(["c", "d"], None, [0, 1])
    every = [
        ClassificationData(SST2, ("x", "y"), one, two),
        ClassificationData(SST2, ("x", "y"), two, one),
        ClassificationData(SST2, ("x", "z"), one, two),
    ]
    assert len({data.fingerprint for data in every}) == 3


def test_values_of_ones_own_for_one_text_or_two(load):
    own = get_task("text-regression")
    data = load("text\tscore\na\t0.5\nb\t-3\n", task=own)
    assert data.labels == ()
    assert data.train == Split(["a", "b"], None, [0.5, -3.0])
    data = load("text1\ttext2\ttarget\na\tc\t0.5\nb\td\t-3\n", task=own)
    assert data.train == Split(["a", "b"], ["c", "d"], [0.5, -3.0])
