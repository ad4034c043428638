"""The text of tokens that come one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serving.writers import byte_tokenizer

from mvprune_core.models.pieces import Pieces

TOKENIZER = byte_tokenizer()


def decode(tokens: Sequence[int]) -> str:
    text: str = TOKENIZER.decode(tokens)
    return text


def pieces_of(tokens: Sequence[int], *stop: str) -> tuple[list[str], str]:
    """The pieces of a text that ends at a stop text or after the last token, and the whole."""
    pieces = Pieces(decode, stop, removes_spaces=False)
    found = []
    for end in range(1, len(tokens) + 1):
        piece, is_stopped = pieces.add(tokens[:end])
        found.append(piece)
        if is_stopped:
            break
    last, whole = pieces.end(tokens[:end])
    return [*found, last], whole


@given(st.text(min_size=1))
def test_pieces_are_whole_characters_and_together_the_text(text: str) -> None:
    found, whole = pieces_of(TOKENIZER(text)["input_ids"])
    assert "".join(found) == whole == text
    if "\ufffd" not in text:
        assert [piece for piece in found if piece] == list(text), "each as soon as its last byte is there"


def test_long_texts_are_decoded_in_windows() -> None:
    text = "Ein Wort, 日本語の文章 🎉🎊, и ещё. " * 40
    tokens, longest = TOKENIZER(text)["input_ids"], 0

    def counting(some: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(some))
        return decode(some)

    pieces = Pieces(counting, (), removes_spaces=False)
    found = [pieces.add(tokens[:end])[0] for end in range(1, len(tokens) + 1)]
    assert "".join(found) == text
    assert longest < 80
    assert pieces.end(tokens) == ("", text)


@given(st.binary(min_size=1))
def test_bytes_that_are_no_text_lose_nothing(content: bytes) -> None:
    found, whole = pieces_of([byte + 1 for byte in content])
    assert "".join(found) == whole == decode([byte + 1 for byte in content])


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_nothing_of_a_stop_text_is_given_out(text: str, stop: list[str]) -> None:
    found, whole = pieces_of(TOKENIZER(f"{text}.")["input_ids"], *stop)
    places = [place for one in stop if (place := text.find(one)) >= 0]
    # A stop text ends the whole as soon as it is there: a longer one that begins before it is not there yet.
    first = min((text.find(one) + len(one) for one in stop if one in text), default=None)
    expected = f"{text}." if first is None else text[: min(text.find(one) for one in stop if one in text[:first])]
    assert whole == expected
    assert "".join(found) == whole
    assert bool(places) == (len(whole) <= len(text))


@pytest.mark.parametrize("words", [["do", "n't", "a", "'", "b", "."], ["."], ["a", ",", "b", "!"]])
def test_spaces_that_a_later_word_removes_are_held_back(words: list[str]) -> None:
    def cleaned(tokens: Sequence[int]) -> str:
        return TOKENIZER.clean_up_tokenization(" ".join(words[: len(tokens)]))

    pieces = Pieces(cleaned, (), removes_spaces=True)
    found = [pieces.add(range(end))[0] for end in range(1, len(words) + 1)]
    last, whole = pieces.end(range(len(words)))
    assert "".join([*found, last]) == whole == cleaned(range(len(words)))
