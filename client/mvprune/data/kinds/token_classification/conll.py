"""CoNLL files: one word a line, its tag in another column of it, and a blank line after each sentence.

The layout is that of Tjong Kim Sang and De Meulder 2003, https://arxiv.org/abs/cs/0306050. Columns are separated by
tabs where a line has one, else by spaces. The word is in the first column and the tag in the last one, unless the user
names others, by number or, in files of ten columns, by the names of CoNLL-U
(https://universaldependencies.org/format.html). Lines of -DOCSTART- and comments, which begin with # before the first
word of a sentence, are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns
from mvprune.data.kinds.token_classification.sentences import Sentences
from mvprune.data.kinds.token_classification.tagschemes import looks_like_a_tag
from mvprune.data.reading import name_of, notes_on_spelling, spelled
from mvprune.data.textfiles import DataError, read_lines

_DOCUMENT = "-DOCSTART-"
_CONLL_U = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
# CoNLL-U: a token of several words, which follow it, and a word that is not in the text.
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+", re.ASCII)


@dataclass(frozen=True)
class _Row:
    """One line of a sentence: the first cell, the word, the tag."""

    line: int
    first: str
    word: str
    tag: str


@dataclass(frozen=True)
class _Sentence:
    """The rows of a sentence; the first `doubtful` of them begin with # and may be comments."""

    rows: list[_Row]
    doubtful: int

    @property
    def is_indexed(self) -> bool:
        """Whether the first column counts the words: 1, 2, 3, …"""
        counted = [row.first for row in self.rows[self.doubtful :] if not _NO_WORD.fullmatch(row.first)]
        return counted == [str(number) for number in range(1, len(counted) + 1)]


def sentences_in_file(path: Path, columns: Columns) -> Sentences:
    """The sentences of a CoNLL file. Raises DataError."""
    return _Reader(path, columns).read()


class _Reader:
    """Reads one file. What its columns are is known when the first row is seen that is certainly none of a comment."""

    def __init__(self, path: Path, wanted: Columns) -> None:
        self._path = path
        self._wanted = wanted
        self._width = 0
        self._word = self._tag = -1
        self._comments = 0
        self._written: set[str] = set()  # tags

    def read(self) -> Sentences:
        """All sentences. Raises DataError."""
        waiting: list[list[tuple[int, list[str]]]] = []  # nothing but lines that begin with #
        sentences: list[_Sentence] = []
        for block in self._blocks():
            waiting.append(block)
            certain = next(((line, cells) for line, cells in block if not cells[0].startswith("#")), None)
            if certain and not self._width:
                self._set_columns(*certain)
            if self._width:
                sentences += map(self._sentence, waiting)
                waiting = []
        if waiting:
            self._set_columns(*waiting[0][0])
            sentences += map(self._sentence, waiting)
        return self._checked(sentences)

    def _blocks(self) -> Iterator[list[tuple[int, list[str]]]]:
        """The lines between blank ones, in cells, each with its number."""
        block: list[tuple[int, list[str]]] = []
        for line, text in chain(read_lines(self._path), [(0, "")]):
            # Blanks other than the usual one may be part of a word, as in a number of many digits.
            cells = [cell.strip(" ") for cell in re.split("\t" if "\t" in text else " +", text.strip(" \r\n"))]
            if not text.strip():
                if block:
                    yield block
                block = []
            elif cells[0] != _DOCUMENT:
                block.append((line, cells))

    def _set_columns(self, line: int, cells: Sequence[str]) -> None:
        self._width = len(cells)
        if self._width < 2:
            message = "the row must have a column with a word and one with its tag, got one column"
            raise DataError(self._path, message, line=line)
        self._word = self._place("text_column", self._wanted.text, 0)
        self._tag = self._place("label_column", self._wanted.label, self._width - 1)
        if self._word == self._tag:
            message = f"text_column and label_column must be different columns, got column {self._word + 1} for both"
            raise DataError(self._path, message)

    def _place(self, option: str, name: str | None, usual: int) -> int:
        if name is None:
            return usual
        if name.isdecimal() and 1 <= int(name) <= self._width:
            return int(name) - 1
        names = _CONLL_U if self._width == len(_CONLL_U) else ()
        if name.upper() in names:
            return names.index(name.upper())
        others = f" or one of {', '.join(names)}" if names else ""
        rule = f"the number of one of the {self._width} columns, from 1,{others}"
        raise DataError(self._path, f"{option} must be {rule.rstrip(',')}, got {shown(name)}")

    def _sentence(self, block: Sequence[tuple[int, list[str]]]) -> _Sentence:
        rows: list[_Row] = []
        doubtful = 0
        for line, cells in block:
            is_head = doubtful == len(rows) and cells[0].startswith("#")
            if len(cells) != self._width:
                if is_head:
                    self._comments += 1
                    continue
                message = f"the row must have {self._width} columns, as the first row has, got {len(cells)}"
                raise DataError(self._path, message, line=line)
            self._written.add(written := cells[self._tag])
            rows.append(_Row(line, cells[0], cells[self._word], spelled(written)))
            doubtful += is_head
        return _Sentence(rows, doubtful)

    def _checked(self, sentences: Sequence[_Sentence]) -> Sentences:
        certain = [sentence for sentence in sentences if len(sentence.rows) > sentence.doubtful]
        is_indexed = self._width > 2 and bool(certain) and all(sentence.is_indexed for sentence in certain)
        if is_indexed and self._wanted.text is None:
            names = ", or by their names, such as FORM and MISC," if self._width == len(_CONLL_U) else ""
            remedy = f"name the columns of words and of tags by their numbers{names} with text_column and label_column"
            example = "(--text-column 2 --label-column 3)"
            message = f"the first column must have the words, got an index (1, 2, 3, …); {remedy} {example}"
            raise DataError(self._path, message, line=certain[0].rows[certain[0].doubtful].line)
        tags = {row.tag for sentence in sentences for row in sentence.rows[sentence.doubtful :]}
        found = Sentences(self._path, "line", [], [], [], read=self._columns)
        for sentence in sentences:
            head = [row for row in sentence.rows[: sentence.doubtful] if self._is_word(row, tags)]
            self._comments += sentence.doubtful - len(head)
            rows = [*head, *sentence.rows[sentence.doubtful :]]
            if is_indexed:
                rows = [row for row in rows if not _NO_WORD.fullmatch(row.first)]
            for row in rows:
                if not row.word or not row.tag:
                    where = f"columns {self._word + 1} and {self._tag + 1}"
                    raise DataError(self._path, f"the row must have a word and its tag, in {where}", line=row.line)
            if rows:
                found.lines.append(rows[0].line)
                found.words.append([row.word for row in rows])
                found.tags.append([row.tag for row in rows])
        if not found.words:
            raise DataError(self._path, "the sentences must be at least 1, got 0")
        found.notes.extend(notes_on_spelling(self._written, name_of(self._path), "tags"))
        if self._comments:
            lines = f"{self._comments:,} lines of {name_of(self._path)}"
            found.notes.append(f"{lines} that begin with # before a sentence are passed over as comments")
        return found

    def _is_word(self, row: _Row, tags: set[str]) -> bool:
        """Whether a row that begins with #, before the words of a sentence, is a word. Raises DataError where that is
        not clear."""
        if row.tag in tags or looks_like_a_tag(row.tag):
            return True
        if row.first == "#":
            return False
        message = (
            f"the line must be a comment, which begins with '# ', or a word with a known tag, got {shown(row.tag)}"
        )
        raise DataError(self._path, message, line=row.line)

    @property
    def _columns(self) -> str:
        guessed = " (found by place)" if None in (self._wanted.text, self._wanted.label) else ""
        return f"text column {self._word + 1}, label column {self._tag + 1} of {self._width}{guessed}"
