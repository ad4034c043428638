"""The native tokenizer gives the ids, types and offsets of Hugging Face's."""

from __future__ import annotations

import base64
import contextlib
import copy
import ctypes
import json
import unicodedata
import weakref
from functools import cache
from typing import Any, NamedTuple

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.native.native_parts import parts
from tests.unit.native.tokenizers_made import MADE, bert, charsmap, made
from tokenizers import Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers

Row = tuple[int, int, int, int, int]


class Options(NamedTuple):
    max_length: int = 0
    second_only: bool = False
    windows: bool = False
    stride: int = 0
    special: bool = True


class Native:
    """A tokenizer of the native library.

    Raises:
        ValueError: what the library says.
    """

    def __init__(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        wrong = ctypes.c_char_p()
        self._address = parts().test_tokenizer_open(raw, len(raw), ctypes.byref(wrong))
        if not self._address:
            raise ValueError((wrong.value or b"").decode())
        weakref.finalize(self, parts().test_tokenizer_close, self._address)

    def id(self, token: str) -> int:
        found: int = parts().test_tokenizer_id(self._address, token.encode())
        return found

    def decode(self, ids: list[int], removes_blanks: bool = False) -> str:
        text: bytes = parts().test_decode(self._address, (ctypes.c_int32 * len(ids))(*ids), len(ids), removes_blanks)
        return text.decode()

    def encode(self, first: str | bytes, second: str | None = None, options: Options | None = None) -> list[list[Row]]:
        raw = first.encode() if isinstance(first, str) else first
        more = None if second is None else second.encode()
        numbers = (ctypes.c_int64 * 5)(*map(int, options or Options()))
        shown = parts().test_encode(self._address, raw, len(raw), more, len(more or b""), numbers).decode()
        if shown.startswith("!"):
            raise ValueError(shown[1:])
        return [[*map(tuple, encoding)] for encoding in json.loads(shown)]


@cache
def native(name: str) -> Native:
    return Native(made(name).to_str())


def wanted(name: str, first: str, second: str | None = None, options: Options | None = None) -> list[list[Row]]:
    tokenizer, asked = made(name), options or Options()
    tokenizer.no_truncation()
    if asked.max_length:
        strategy = "only_second" if asked.second_only else "longest_first"
        tokenizer.enable_truncation(asked.max_length, stride=asked.stride, strategy=strategy)
    encoding = tokenizer.encode(first, second, add_special_tokens=asked.special)
    return [_rows(one) for one in [encoding, *(encoding.overflowing if asked.windows else [])]]


def _rows(encoding: Encoding) -> list[Row]:
    parts_of = [-1 if part is None else part for part in encoding.sequence_ids]
    begins, ends = zip(*encoding.offsets, strict=True) if encoding.offsets else ((), ())
    return [*zip(encoding.ids, encoding.type_ids, begins, ends, parts_of, strict=True)]


TEXTS = [
    "",
    " ",
    "The pruned model answers, the unpruned model doesn't.",
    "  Two  blanks,\ttabs\n\nlines \u3000\u00a0 ",
    "Straße DÉJÀ vu \u0130stanbul e\u0301\u0323 \u0344 \u1e9b\u0323 \uac01 \u1100\u1161\u11a8",
    "\u65e5\u672c\u8a9e text \ufb01ne \U00020000 \U0001f469\u200d\U0001f52c\U0001f44d\U0001f3fd",
    "a\0b\ufffdc\u00add\u200be\x07f\u2028g\x85h",
    "<s> a <mask>  b </s>[MASK][CLS] prune pruned de l'été   |||IP_ADDRESS|||<mask>",
    "we're they've I'll he'd it's 'S 'x ''s 12ab \u00bd\u2460 -- ?!",
    "weightless" * 20,
    "_\u2581\u2581 a\u2581b  \u2581",
    "\u0301start \u0653\u0655 \u1ab0\u0345\u0316",
    "\r\na\r\n \u00ab\ufb01\u0301\u00bb \u00a9\u200d\u00a9\u0344 \u0600\u2460",
    "\u1100\u1161\u0344 \u0915\u094d\u0958\u0344\u0344",
    "   ",
    "It'S we'LL 'Re'ſ 1234567 $$$\n\n  \r\n\t x\n  y !!\n\u3000\u3000z",
]


@pytest.mark.parametrize("name", MADE)
def test_texts_have_the_ids_types_and_offsets_of_tokenizers(name: str) -> None:
    for text in TEXTS:
        for special in (True, False):
            options = Options(special=special)
            assert native(name).encode(text, None, options) == wanted(name, text, None, options), text
        for second in TEXTS[2:5]:
            assert native(name).encode(text, second) == wanted(name, text, second), (text, second)


_any = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_usual = st.lists(
    st.sampled_from(
        [
            *"aeéüßAÉsTl .,'’\t\r\n-–12½\x01\u0344\u200d\u0600\u0915\u094d\u0958\u00a9\u1100\u1161\ufb01",
            *("the", "\u0301", "\u0323", "中", "👍", "한", " prune", "<mask>"),
        ]
    )
)
_texts = st.one_of(_any, _usual.map("".join), st.tuples(_usual.map("".join), _any).map("".join))


@pytest.mark.parametrize("name", MADE)
@given(_texts, st.none() | _texts)
def test_any_texts_have_the_ids_types_and_offsets_of_tokenizers(name: str, first: str, second: str | None) -> None:
    assert native(name).encode(first, second) == wanted(name, first, second)


@pytest.mark.parametrize("name", ["bert uncased", "roberta", "deberta", "gpt2"])
@given(_usual.map("".join), st.none() | _usual.map("".join), st.integers(6, 20))
def test_long_texts_are_cut_alike(name: str, first: str, second: str | None, most: int) -> None:
    options = Options(max_length=most)
    assert native(name).encode(first, second, options) == wanted(name, first, second, options)


# Without xlm-r: from the second window on, `tokenizers` leaves the second text the type 1 whatever the template says.
@pytest.mark.parametrize("name", ["bert uncased", "mpnet", "roberta", "modernbert", "gpt2"])
@given(_usual.map("".join), st.integers(0, 4), st.integers(9, 14))
def test_windows_are_those_of_tokenizers(name: str, text: str, stride: int, most: int) -> None:
    options = Options(max_length=most, windows=True, stride=stride)
    assert native(name).encode(text, None, options) == wanted(name, text, None, options)
    options = Options(max_length=most + 4, second_only=True, windows=True, stride=stride)
    assert native(name).encode("a", text, options) == wanted(name, "a", text, options)


BY_CHARACTER = ["bert uncased", "modernbert", "xlm-r", "plain", "xlm-r of sentencepiece", "qwen2"]


def _around(character: str) -> str:
    """A text in which characters around it may change it. Half of all are ideographs, which nothing changes."""
    is_ideograph = unicodedata.name(character, "").startswith("CJK UNIFIED")
    return f"a{character} " if is_ideograph else f"a{character}\u0301{character} "


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_CHARACTER)
def test_every_character_is_read_alike(name: str) -> None:
    codes = [code for code in (*range(0x32400), *range(0xE0000, 0xE0200)) if not 0xD800 <= code < 0xE000]
    for begin in range(0, len(codes), 100):
        text = "".join(map(_around, map(chr, codes[begin : begin + 100])))
        assert native(name).encode(text) == wanted(name, text), hex(codes[begin])


def test_tokens_have_their_ids() -> None:
    for name in ("bert of old", "mpnet", "xlm-r"):
        vocabulary = made(name).get_vocab()
        assert {token: native(name).id(token) for token in vocabulary} == vocabulary
    assert native("mpnet").id("no such token") == -1


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    broken = native("roberta").encode(b"a \xff\xe2\x82 b")
    assert broken == native("roberta").encode("a \ufffd\ufffd\ufffd b")


def test_no_room_is_an_error() -> None:
    tokenizer = native("bert uncased")
    with pytest.raises(ValueError, match="no room for a token"):
        tokenizer.encode("a b c", None, Options(max_length=2))
    with pytest.raises(ValueError, match="no room for the second"):
        tokenizer.encode("a b c d", "a b c", Options(max_length=7, second_only=True))
    with pytest.raises(ValueError, match="more than the stride"):
        tokenizer.encode("a b c d", None, Options(max_length=5, windows=True, stride=3))


def _split(pattern: str, **settings: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} | settings


def _changes() -> list[tuple[str, Any, str]]:
    return [
        ("normalizer", {"type": "Nmt"}, "a normalizer that is not known here: Nmt"),
        ("normalizer", {"type": "BertNormalizer", "lowercase": "yes"}, "BertNormalizer with lowercase"),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}, "the regular expression a+"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Precompiled"}]}, "Precompiled"),
        ("pre_tokenizer", _split("x"), "Split with the regular expression x"),
        ("pre_tokenizer", _split("x", behavior="Removed"), "Split with Removed"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"String": " "}}, "a pattern that is no regular expression"),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "ab"}, "Metaspace with its replacement"),
        ("post_processor", {"type": "Other"}, "a post-processor that is not known here: Other"),
        ("post_processor", {"type": "BertProcessing", "sep": 1}, "BertProcessing with its tokens"),
        ("model", {"type": "Other", "vocab": {"a": 0}}, "a model that is not known here: Other"),
        ("model", {"type": "WordPiece", "vocab": {"a": 0}}, "an unk_token that is not in its vocabulary"),
        ("model", {"type": "WordPiece", "vocab": {"a": -1}}, "WordPiece with its vocabulary"),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}, "merges that its vocabulary does not fit"),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": True}, "BPE with byte_fallback"),
        ("model", {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}, "Unigram with its unk_id"),
        ("added_tokens", [{"id": 1}], "an added token must have"),
    ]


@pytest.mark.parametrize(("part", "value", "wrong"), _changes())
def test_what_is_not_known_is_refused_by_its_name(part: str, value: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.json: ") as error:
        Native(json.dumps(json.loads(made("bert uncased").to_str()) | {part: value}))
    assert wrong in str(error.value)


def test_a_broken_file_is_refused() -> None:
    text = made("roberta").to_str().encode()
    for end in range(0, len(text), max(1, len(text) // 50)):
        with pytest.raises(ValueError, match=r"tokenizer\.json: "):
            Native(text[:end])


def test_settings_left_out_have_the_values_of_tokenizers() -> None:
    tokenizer = copy.deepcopy(bert(lowercase=True))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    description = json.loads(tokenizer.to_str())
    description["normalizer"].pop("strip_accents", None)
    found = Native(json.dumps(description)).encode("Déjà-vu: _a_")
    assert found == [_rows(Tokenizer.from_str(json.dumps(description)).encode("Déjà-vu: _a_"))]


def _with_map(bytes_or_text: bytes | str) -> str:
    text = bytes_or_text if isinstance(bytes_or_text, str) else base64.b64encode(bytes_or_text).decode()
    description = json.loads(made("xlm-r").to_str())
    return json.dumps(description | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": text}})


def _broken_maps() -> list[bytes | str]:
    whole = charsmap("nmt_nfkc")
    units = int.from_bytes(whole[:4], "little")
    return [
        "",
        "AAA",
        "AAA*",
        "AAAA",
        whole[:1000],  # the trie is cut off
        whole[: 4 + units - 1],
        (units + 1).to_bytes(4, "little") + whole[4:],
        b"\4\0\0\0" + b"\0" * 4,  # ways lead out of a trie of one unit
        whole[:4] + b"\xff\xff\xff\x7f" * (units // 4) + whole[4 + units :],
        whole[: 4 + units],  # without the texts
        whole[: 4 + units] + b"\xff" * (len(whole) - units - 4),
    ]


@pytest.mark.parametrize("number", range(len(_broken_maps())))
def test_a_broken_map_of_characters_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="Precompiled with a precompiled_charsmap that is broken"):
        Native(_with_map(_broken_maps()[number]))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 200_000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=40))
def test_changed_maps_of_characters_are_refused_or_used(changes: list[tuple[int, bytes]]) -> None:
    changed = bytearray(charsmap("nmt_nfkc"))
    for place, new in changes:
        changed[4 + place : 4 + place + len(new)] = new
    with contextlib.suppress(ValueError):
        used = Native(_with_map(bytes(changed)))
        for text in TEXTS:
            used.encode(text)


_DECODERS = {
    "none": None,
    "bytes": decoders.ByteLevel(),
    "words": decoders.WordPiece(),
    "words as they are": decoders.WordPiece("d", cleanup=False),
    "blanks": decoders.Metaspace(),
    "blanks of sentencepiece": decoders.Metaspace("\u2581", "never"),
    "bytes of sentencepiece": decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
}
_VOCABULARY = [
    "a",
    "##b",
    "\u2581c",
    "d\u2581\u2581e",
    "<0xF0>",
    "<0x9F>",
    "<0x98>",
    "<0x80>",
    "<0x41>",
    "<0xZZ>",
    " .",
    " n't",
]
_VOCABULARY += [
    "\u0120x",
    "\u00f0",
    "\u0141",
    "\u013a",
    "\u0122",
    "\u00e2",
    "\u00ed\u0142",
    "中\u00f0",
    " do not",
    "'",
    " ' ",
    "",
    "<s>",
]


@pytest.mark.parametrize("name", _DECODERS)
@given(st.lists(st.integers(0, len(_VOCABULARY) + 1), max_size=9))
def test_the_text_of_tokens_is_that_of_tokenizers(name: str, ids: list[int]) -> None:
    tokenizer = Tokenizer(models.WordLevel({text: number for number, text in enumerate(_VOCABULARY)}, unk_token="a"))
    tokenizer.add_special_tokens(["<s>"])
    if decoder := _DECODERS[name]:
        tokenizer.decoder = decoder
    known = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    for removes in (False, True):
        wanted = known.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=removes)
        assert Native(tokenizer.to_str()).decode(ids, removes) == wanted


def test_a_decoder_that_is_not_known() -> None:
    content = json.loads(made("gpt2").to_str()) | {"decoder": {"type": "CTC"}}
    assert Native(json.dumps(content)).decode([1]) == "!tokenizer.json: a decoder that is not known here: CTC"
