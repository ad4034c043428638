"""CoNLL files of other layouts: comments, an index, rows of another width, columns by number or name."""

from __future__ import annotations

import pytest

from mvprune.data.columns import Columns
from mvprune.data.tasks import get_task

NER = get_task("ner")
INDEXED = "1\tAnn\tB-P\tO\n2\tsat\tO\tO\n\n1\tRome\tB-L\tO\n"
CONLL_U = """# sent_id = 1
# text = du vin a
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\tB-X
1\tde\tde\tADP\t_\t_\t0\troot\t_\tO
2\tle\tle\tDET\t_\t_\t1\tdet\t_\tO
2.1\tX\t_\t_\t_\t_\t_\t_\t_\tB-X
3\tvin\tvin\tNOUN\t_\t_\t1\tobj\t_\tB-DRINK
"""


@pytest.mark.parametrize(
    "comment",
    [
        "# id 77\tdomain=en",  # tabs where rows have spaces: fewer columns
        "# a b c d e f",
        "# id = 1",  # as many columns as a row, and no tag
        "#",
        "# one\n# two\tthree\n# id = 9",
    ],
)
def test_comments_before_a_sentence_are_passed_over(comment: str, load):
    data = load(f"{comment}\nAnn _ _ B-P\nsat _ _ O\n\n{comment}\nRome _ _ B-L\n", task=NER, name="train.conll")
    assert data.train.words == [["Ann", "sat"], ["Rome"]]
    assert data.labels == ("O", "B-L", "B-P")
    count = 2 * len(comment.splitlines())
    assert f"{count} lines of train.conll that begin with # before a sentence are passed over as comments" in data.notes


def test_a_file_may_begin_with_comments_of_their_own(load):
    data = load("# made by hand\n\n# in two parts\n\nAnn B-P\nsat O\n", task=NER, name="train.txt")
    assert data.train.words == [["Ann", "sat"]]


@pytest.mark.parametrize(
    "content",
    ["# O\n1 O\nAnn B-P\n", "#one B-T\nsat O\n", "sat O\n# O\nAnn B-P\n", "# O\n#x B-P\n\nAnn O\n", "#a O\n#b B-X\n"],
)
def test_a_word_that_begins_with_a_hash(content: str, load):
    data = load(content, task=NER, name="train.txt")
    assert [word for words in data.train.words for word in words] == [
        line.split()[0] for line in content.splitlines() if line
    ]
    assert not any("comments" in note for note in data.notes)


def test_a_line_that_may_be_a_comment_or_a_word(refused):
    error = refused("Ann B-P\nsat O\n\n#strange thing\nin O\n", task=NER, name="train.txt")
    assert error.line == 4
    assert "must be a comment, which begins with '# ', or a word with a known tag, got 'thing'" in str(error)


@pytest.mark.parametrize(
    ("content", "line", "got"),
    [
        ("Ann N X B-P\nsat V X\n", 2, 3),
        ("Ann\tB-P\nsat O\n\nRome is far\tB-L\textra\n", 4, 3),
        ("Ann B-P\n# a comment inside\nsat O\n", 2, 4),
        ("-DOCSTART- -X- -X- O\n\nAnn B-P\nsat\n", 4, 1),
    ],
)
def test_rows_of_another_width(content: str, line: int, got: int, refused):
    error = refused(content, task=NER, name="train.txt")
    assert error.line == line
    assert f"columns, as the first row has, got {got}" in str(error)


def test_a_file_of_words_only(refused):
    error = refused("Ann\nsat\n", task=NER, name="train.txt")
    assert error.line == 1
    assert "a column with a word and one with its tag, got one column" in str(error)


@pytest.mark.parametrize("content", [INDEXED, "#\tsource [2009]\n" + INDEXED, CONLL_U])
def test_an_index_is_no_word(content: str, refused):
    error = refused(content, task=NER, name="train.tsv")
    assert "the first column must have the words, got an index (1, 2, 3, …); name the columns" in str(error)
    assert "(--text-column 2 --label-column 3)" in str(error)
    assert ("such as FORM and MISC" in str(error)) == (content is CONLL_U)


def test_columns_by_number(load):
    data = load(INDEXED, task=NER, name="train.tsv", columns=Columns(text="2", label="3"))
    assert data.train.words == [["Ann", "sat"], ["Rome"]]
    assert data.labels == ("O", "B-L", "B-P")
    assert data.columns == ("columns: text column 2, label column 3 of 4",)
    numbers = load(INDEXED, task=NER, name="train.tsv", columns=Columns(text="1", label="3"))
    assert numbers.train.words == [["1", "2"], ["1"]], "said by the user"


def test_columns_by_the_names_of_conll_u(load, refused):
    data = load(CONLL_U, task=NER, name="train.conllu", columns=Columns(text="form", label="MISC"))
    assert data.train.words == [["de", "le", "vin"]], "neither a token of two words nor one that is not in the text"
    assert data.train.tags == [[0, 0, 1]]
    error = refused(CONLL_U, task=NER, name="train.conllu", columns=Columns(text="WORD"))
    assert "text_column must be the number of one of the 10 columns, from 1, or one of ID, FORM," in str(error)
    assert "got 'WORD'" in str(error)


@pytest.mark.parametrize("columns", [Columns(text="0"), Columns(text="5"), Columns(label="-1"), Columns(text="form")])
def test_columns_that_are_not_there(columns: Columns, refused):
    error = refused(INDEXED, task=NER, name="train.tsv", columns=columns)
    assert "must be the number of one of the 4 columns, from 1, got " in str(error)


def test_one_column_for_both(refused):
    error = refused(INDEXED, task=NER, name="train.tsv", columns=Columns(text="4"))
    assert "text_column and label_column must be different columns, got column 4 for both" in str(error)


def test_numbers_are_words_where_they_do_not_count(load):
    content = "1 CD O\nmay NN B-D\n\n2-1 CD O\nwon V O\n"
    assert load(content, task=NER, name="train.txt").train.words == [["1", "may"], ["2-1", "won"]]
    assert load("1 O\n2 B-X\n", task=NER, name="train.txt").train.words == [["1", "2"]], "there is no other column"
