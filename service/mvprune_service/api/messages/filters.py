"""Filters of lists, and the order of lists of jobs: the parts of AIP-160 and AIP-132 (https://google.aip.dev) that
lists need.

expression  = factor {"AND" factor}
factor      = term {"OR" term}              OR binds tighter than AND, as AIP-160 has it
term        = ["NOT"] (comparison | "(" expression ")")
comparison  = field operator value | "labels:" key
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, not_, or_, select

from mvprune.common.identifiers import LABEL_KEY, LABEL_KEY_RULE
from mvprune.common.suggestions import did_you_mean
from mvprune_service.api.access.errors import Violation, bad, invalid
from mvprune_service.clock import SECOND
from mvprune_service.db.job_order import ORDERS, LabelOrder, Order
from mvprune_service.db.tables.jobs import JOBS, LABELS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState

_LENGTH = 1000
_DEPTH = 20
_TOKEN = re.compile(r'\s*(?:(?P<op><=|>=|!=|[=<>:()])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>[^\s"=<>!:()]+))')
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LABEL = "labels."  # and the key

Clause = ColumnElement[bool]


def _whole(text: str) -> int:
    return _bounded(int(text))


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("no number")
    return number


def _seconds(text: str) -> int:
    """Microseconds."""
    return _bounded(round(_fraction(text) * SECOND))


def _micros(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time with its zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("no zone")
    return round(time.timestamp() * SECOND)


def _bounded(number: int) -> int:
    if abs(number) >= 1 << 62:
        raise OverflowError
    return number


class Number(NamedTuple):
    """A field that has an order.

    Attributes:
        read: the value of the column that a text stands for. Raises ValueError, OverflowError.
        wanted: which texts do.
    """

    column: Any
    read: Callable[[str], float]
    wanted: str


A_TIME = 'a time such as "2026-01-31T12:00:00Z"'


class Fields(NamedTuple):
    """What the filters of a list compare.

    Attributes:
        texts: have no order.
        words: texts of a vocabulary.
        numbers: have an order; a row without the number satisfies no comparison.
        label: the condition that a row has a label with a key, and with a value unless that is None; None: the rows
            have no labels.
    """

    texts: Mapping[str, Any]
    words: Mapping[str, tuple[Any, type[StrEnum]]]
    numbers: Mapping[str, Number]
    label: Callable[[str, str | None], Clause] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.words, *self.texts, *self.numbers, *((f"{_LABEL}KEY",) if self.label else ()))


def whole_number(column: Any) -> Number:
    """A field that is a whole number."""
    return Number(column, _whole, "a whole number")


def moment(column: Any) -> Number:
    """A field that is a time, in microseconds since the epoch."""
    return Number(column, _micros, A_TIME)


def _has_label(key: str, value: str | None) -> Clause:
    found = LABELS.c.key == key if value is None else and_(LABELS.c.key == key, LABELS.c.value == value)
    return JOBS.c.uid.in_(select(LABELS.c.job_uid).where(LABELS.c.project == JOBS.c.project, found))


OF_JOBS = Fields(
    texts={
        "task": JOBS.c.task,
        "model": JOBS.c.model,
        "method": JOBS.c.method,
        "display_name": JOBS.c.display_name,
        "creator": JOBS.c.creator,
        "sweep": JOBS.c.sweep_id,
    },
    words={"state": (JOBS.c.state, JobState), "failure": (JOBS.c.failure_reason, FailureReason)},
    numbers={
        "priority": whole_number(JOBS.c.priority),
        "metric": Number(JOBS.c.metric, _fraction, "a number; metrics are fractions: 0.9 is 90 %"),
        "difference": Number(
            JOBS.c.difference, _fraction, "a number; differences are fractions: -0.01 is one point less"
        ),
        "duration": Number(JOBS.c.duration_us, _seconds, "a number of seconds"),
        "create_time": moment(JOBS.c.create_us),
        "end_time": moment(JOBS.c.end_us),
    },
    label=_has_label,
)


class _Token(NamedTuple):
    kind: str  # op, quoted, word, end
    text: str
    at: int


def parse_filter(given: str, fields: Fields = OF_JOBS) -> Clause | None:
    """The condition of a filter; None for all rows. Raises ApiError that says where and why."""
    if len(given) > _LENGTH:
        raise invalid(Violation("filter", f"must be at most {_LENGTH} characters, got {len(given)}"))
    return _Parser(given, fields).parse() if given.strip() else None


def parse_order(given: str) -> Order | LabelOrder:
    """The order asked for. Raises ApiError."""
    words = given.split()
    if not words:
        return Order("create_time", descending=True)
    name, directions = words[0], words[1:]
    is_label = name.startswith(_LABEL)
    if not (is_label or name in ORDERS) or directions not in ([], ["asc"], ["desc"]):
        known = (*ORDERS, f"{_LABEL}KEY")
        hint = did_you_mean(name[:100], known)
        raise invalid(bad("order_by", given, f'one of {", ".join(known)}, with " desc" for descending{hint}'))
    descending = directions == ["desc"]
    if not is_label:
        return Order(name, descending)
    key = name.removeprefix(_LABEL)
    if not LABEL_KEY.fullmatch(key):
        raise invalid(bad("order_by", given, f"{_LABEL}KEY with a key of {LABEL_KEY_RULE}"))
    return LabelOrder(key, descending)


class _Parser:
    """Recursive descent over the tokens of one filter."""

    def __init__(self, given: str, fields: Fields) -> None:
        self._given = given
        self._fields = fields
        self._tokens = self._split()
        self._next = 0

    def parse(self) -> Clause:
        clause = self._expression(0)
        if self._peek().kind != "end":
            raise self._wrong(self._peek(), "AND, OR or the end")
        return clause

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._given.rstrip())
        while at < end:
            match = _TOKEN.match(self._given, at)
            if match is None:
                raise self._wrong(_Token("", "", at), "a field, a value, an operator or a parenthesis")
            kind = str(match.lastgroup)
            text = re.sub(r"\\(.)", r"\1", match[kind]) if kind == "quoted" else match[kind]
            tokens.append(_Token(kind, text, match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _expression(self, depth: int) -> Clause:
        factors = [self._factor(depth)]
        while self._take_if("word", "AND"):
            factors.append(self._factor(depth))
        return and_(*factors)

    def _factor(self, depth: int) -> Clause:
        terms = [self._term(depth)]
        while self._take_if("word", "OR"):
            terms.append(self._term(depth))
        return or_(*terms)

    def _term(self, depth: int) -> Clause:
        negated = self._take_if("word", "NOT")
        if self._peek()[:2] == ("op", "("):
            opening = self._take()
            if depth == _DEPTH:
                raise self._wrong(opening, f"no more than {_DEPTH} parentheses in each other")
            clause = self._expression(depth + 1)
            if not self._take_if("op", ")"):
                raise self._wrong(self._peek(), "AND, OR or )")
        else:
            clause = self._comparison()
        return not_(clause) if negated else clause

    def _comparison(self) -> Clause:
        name, sign, value = self._take(), self._take(), self._take()
        if name.kind != "word":
            raise self._no_field(name)
        label = self._fields.label
        known = {*_COMPARE, ":"} if name.text == "labels" and label else {*_COMPARE}
        if sign.kind != "op" or sign.text not in known:
            raise self._wrong(sign, "one of = != < <= > >=")
        if value.kind not in ("word", "quoted"):
            raise self._wrong(value, "a value; quote it where it has spaces or signs")
        if sign.text == ":" and label:
            return label(value.text, None)
        if name.text in self._fields.numbers:
            column, number = self._number(name, value)
            return and_(column.is_not(None), _COMPARE[sign.text](column, number))
        clause = self._equal(name, value)
        if sign.text not in ("=", "!="):
            raise self._wrong(sign, f"= or !=: {name.text} has no order")
        return clause if sign.text == "=" else not_(clause)

    def _equal(self, name: _Token, value: _Token) -> Clause:
        """Never null, so that != is its opposite."""
        if name.text in self._fields.texts:
            column = self._fields.texts[name.text]
            return and_(column.is_not(None), column == value.text)
        if name.text.startswith(_LABEL) and self._fields.label:
            return self._fields.label(name.text.removeprefix(_LABEL), value.text)
        if name.text not in self._fields.words:
            raise self._no_field(name)
        column, words = self._fields.words[name.text]
        known = words.__members__
        if value.text not in known:
            raise self._wrong(value, f"one of {', '.join(known)}{did_you_mean(value.text, known)}")
        return and_(column.is_not(None), column == known[value.text])

    def _no_field(self, name: _Token) -> Exception:
        names = self._fields.names
        return self._wrong(name, f"a field: {', '.join(names)}{did_you_mean(name.text, names)}")

    def _number(self, name: _Token, value: _Token) -> tuple[Any, float]:
        column, read, wanted = self._fields.numbers[name.text]
        try:
            return column, read(value.text)
        except (ValueError, OverflowError):
            raise self._wrong(value, wanted) from None

    def _take_if(self, kind: str, text: str) -> bool:
        found = self._peek()[:2] == (kind, text)
        self._next += found
        return found

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += token.kind != "end"
        return token

    def _wrong(self, token: _Token, rule: str) -> Exception:
        """The error about a token: what must be in its place. `rule` may end in a remedy after a semicolon."""
        rule, _, remedy = rule.partition("; ")
        rest = self._given[token.at : token.at + 40]
        text = f"must be {rule} at character {token.at + 1}, got {repr(rest) if rest else 'its end'}"
        return invalid(Violation("filter", f"{text}; {remedy}" if remedy else text))
