"""Logs as text or as JSON lines. Lines about a job carry its names; no line carries a credential."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from google.protobuf.message import Message

from mvprune_service import ids
from mvprune_service.db.tables.jobs import JobRow

# The subject of the current task: a request, or an object with the rows `job` and `attempt`. Read only when a line is
# written.
SUBJECT: ContextVar[Any] = ContextVar("subject", default=None)

_REDACTED = "[redacted]"
_SECRETS = re.compile(
    r"""(?ix)
      (?<=bearer\s) [\w.~+/=-]+
    | \b mvp_ (?!(?-i:ID_SECRET)(?![\w-])) [\w-]+  # the form of a token is no token
    | (?<=x-amz-signature=) [^&\s"'\\]+
    | (?<=x-amz-credential=) [^&\s"'\\]+
    | (?<=x-amz-security-token=) [^&\s"'\\]+
    | (?<=x-amz-security-token:) [^\s"'\\]+
    | (?<=x-amz-security-token':\sb') [^']+
    | (?<=\bsignature=) [^&,\s"'\\]+
    | (?<=\bcredential=) [^&,\s"'\\]+
    | (?<=_secret=) [^\s"'\\,;]+
    | (?<=_secret':\s') [^']+
    | (?<=_secret":\s") [^"]+
    """
)
_QUIET = {"alembic": logging.WARNING, "botocore": logging.INFO}  # their debug lines have requests with signatures
_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+@", re.IGNORECASE)


def redact(text: str) -> str:
    """The text without credentials: bearer and API tokens, signatures of URLs and requests, passwords in URLs, the
    attempts' secrets. This is the last defence: no code should log them."""
    return _PASSWORD.sub(rf"\1{_REDACTED}@", _SECRETS.sub(_REDACTED, text))


class About(NamedTuple):
    """The job of a log line, and the number of its attempt, 0 for none."""

    job: JobRow
    attempt: int

    @property
    def fields(self) -> dict[str, str]:
        """job, attempt and uid."""
        job = self.job
        fields = {"job": str(job.name), "uid": job.uid}
        if self.attempt:
            fields["attempt"] = str(ids.AttemptName(job.project, job.job_id, self.attempt))
        return fields


def _fields(subject: Any) -> dict[str, str]:
    """job, attempt and uid of the subject of a line, as far as they are known."""
    if isinstance(subject, About):
        return subject.fields
    if not isinstance(subject, Message):
        return About(subject.job, subject.attempt.number).fields
    given = subject.lease.attempt if hasattr(subject, "lease") else ""
    for field in ("attempt", "name", "parent"):
        given = given or getattr(subject, field, "")
    attempt = ids.parse_attempt(given)
    if attempt is not None:
        return {"job": str(ids.JobName(attempt.project, attempt.job)), "attempt": str(attempt)}
    job = ids.parse_job(given)
    return {"job": str(job)} if job is not None else {}


def configure(level: str, form: Literal["text", "json"]) -> None:
    """Sends all logs from `level` on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, logging.root.level))


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message, and the names that it is about in [ ]."""
        fields = _names(record)
        shown = [fields.get("attempt") or fields.get("job", ""), fields.get("uid", "")]
        suffix = " ".join(filter(None, shown))
        return f"{super().formatMessage(record)}{f' [{suffix}]' if suffix else ''}"

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback if there is one."""
        return redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message; job, attempt, uid; exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
            **_names(record),
        }
        if record.exc_info:
            fields["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


def _names(record: logging.LogRecord) -> dict[str, str]:
    subject = getattr(record, "about", None) or SUBJECT.get()
    return {} if subject is None else _fields(subject)
