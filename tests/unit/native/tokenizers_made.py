"""Tokenizers like those of the models that are pruned, trained on a few lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_LINES = [
    "The model answers a question, and the answer's score is 0.75: it isn't certain.",
    "Ein schönes Mädchen überquert die Straße; dès l'été, où ça? El niño mañana.",
    "它们是中文。日本語のテキスト、カタカナ。한국어 문장 하나. Привет, мир!  Ελληνικά",
    "emails: a.b@c.org, 1,234.56 $ and 50%; we're, they've, I'll, he'd -- \u201cquoted\u201d \u2026",
    "tabs\tand  blanks   and\nnew lines \U0001f600 \U0001f44d\U0001f3fd \u00ad soft e\u0301 \ufb01ne \u2460 \uff21",
    "prune pruned pruning prunes unpruned weights weighted weightless tokens tokenizer tokenization",
]
_CORPUS = _LINES * 4


def bert(lowercase: bool, strip_accents: bool | None = None) -> Tokenizer:
    """As BERT's."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(_CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def _bert_of_old() -> Tokenizer:
    made = bert(lowercase=True)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_tokens([AddedToken("prune", single_word=True), AddedToken("Straße", normalized=True), "de l'été"])
    return made


def _mpnet() -> Tokenizer:
    made = bert(lowercase=True)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), "<s>", "</s>"])
    ends = [(token, made.token_to_id(token)) for token in ("</s>", "<s>")]
    made.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    return made


def _bytes(prefix: bool, trim: bool) -> Tokenizer:
    made = Tokenizer(models.BPE(fuse_unk=False))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet)
    )
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trim, add_prefix_space=prefix
    )
    return made


def _modernbert() -> Tokenizer:
    made = _bytes(prefix=False, trim=True)
    made.normalizer = normalizers.NFC()
    made.add_tokens([AddedToken("   ", normalized=True), AddedToken("|||IP_ADDRESS|||", normalized=True)])
    made.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def _gpt2() -> Tokenizer:
    made = _bytes(prefix=False, trim=True)
    made.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    return made


def _sequence() -> Tokenizer:
    made = _bytes(prefix=True, trim=True)
    template = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return made


@cache
def charsmap(rule: str) -> bytes:
    """A map of characters that SentencePiece has: "nmt_nfkc", "nfkc_cf", and others."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto())
    made: bytes = model.normalizer_spec.precompiled_charsmap
    return made


def _gpt4(pattern: str) -> Tokenizer:
    made = _bytes(prefix=False, trim=True)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def _unigram(scheme: str, *, cut: bool, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizer or normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]) if cut else metaspace
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, rstrip=True, special=True)]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    made.train_from_iterator(_CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def _plain() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Prepend("_")]
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], limit_alphabet=30)
    made.train_from_iterator(_CORPUS, trainer)
    return made


def _words() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(_CORPUS, trainers.WordLevelTrainer(special_tokens=["<unk>"]))
    return made


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)

MADE: dict[str, Callable[[], Tokenizer]] = {
    "bert uncased": lambda: bert(lowercase=True),
    "bert cased": lambda: bert(lowercase=False, strip_accents=False),
    "bert of old": _bert_of_old,
    "mpnet": _mpnet,
    "roberta": lambda: _bytes(prefix=False, trim=True),
    "roberta with a blank in front": lambda: _bytes(prefix=True, trim=True),
    "blanks in offsets": lambda: _bytes(prefix=True, trim=False),
    "gpt2": _gpt2,
    "modernbert": _modernbert,
    "sequence": _sequence,
    "xlm-r": lambda: _unigram("always", cut=True),
    "deberta": lambda: _unigram("first", cut=False),
    "xlm-r of sentencepiece": lambda: _unigram(
        "always", cut=True, normalizer=normalizers.Precompiled(charsmap("nmt_nfkc"))
    ),
    "deberta of sentencepiece": lambda: _unigram(
        "first",
        cut=False,
        normalizer=normalizers.Sequence(
            [normalizers.Strip(), normalizers.Precompiled(charsmap("nmt_nfkc_cf"))],
        ),
    ),
    "gpt2 by a pattern": lambda: _gpt4(_GPT2),
    "qwen2": lambda: _gpt4(_QWEN2),
    "llama3": lambda: _gpt4(_LLAMA3),
    "cl100k": lambda: _gpt4(_CL100K),
    "plain": _plain,
    "words": _words,
}


@cache
def made(name: str) -> Tokenizer:
    """One of `MADE`, trained once."""
    return MADE[name]()
