"""The one place for identifiers and resource names."""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from typing import NamedTuple

from mvprune.common.identifiers import ID

_PROJECT = re.compile(rf"projects/({ID})")
_JOB = re.compile(rf"projects/({ID})/jobs/({ID})")
_SWEEP = re.compile(rf"projects/({ID})/sweeps/({ID})")
_ATTEMPT = re.compile(rf"projects/({ID})/jobs/({ID})/attempts/([1-9][0-9]{{0,8}}|-)")
_ARTIFACT = re.compile(rf"projects/({ID})/artifacts/([0-9a-f]{{64}})")
_UPLOAD = re.compile(rf"projects/({ID})/uploads/([0-9a-f]{{64}})")
_TOKEN = re.compile(rf"projects/({ID}|-)/tokens/({ID})")
_WEBHOOK = re.compile(rf"projects/({ID})/webhooks/({ID})")
_DELIVERY = re.compile(rf"projects/({ID})/webhooks/({ID})/deliveries/({ID})")
_ISSUER = re.compile(rf"issuers/({ID})")
_ALPHABET = b"abcdefghjkmnpqrstvwxyz23456789"
_CHARACTERS = (_ALPHABET * 9)[:256]  # of each byte: some are a little likelier, which makes no odds


class JobName(NamedTuple):
    """projects/{project}/jobs/{job}."""

    project: str
    job: str

    def __str__(self) -> str:
        return f"projects/{self.project}/jobs/{self.job}"


class SweepName(NamedTuple):
    """projects/{project}/sweeps/{sweep}."""

    project: str
    sweep: str

    def __str__(self) -> str:
        return f"projects/{self.project}/sweeps/{self.sweep}"


class AttemptName(NamedTuple):
    """projects/{project}/jobs/{job}/attempts/{number}; number None stands for '-', the current one."""

    project: str
    job: str
    number: int | None

    def __str__(self) -> str:
        return f"projects/{self.project}/jobs/{self.job}/attempts/{self.number or '-'}"


class ArtifactName(NamedTuple):
    """projects/{project}/artifacts/{sha256 of the manifest}."""

    project: str
    sha256: str

    def __str__(self) -> str:
        return f"projects/{self.project}/artifacts/{self.sha256}"


class UploadName(NamedTuple):
    """projects/{project}/uploads/{digest of the content}."""

    project: str
    digest: str

    def __str__(self) -> str:
        return f"projects/{self.project}/uploads/{self.digest}"


class TokenName(NamedTuple):
    """projects/{project}/tokens/{token}; project "-" stands for all."""

    project: str
    token: str

    def __str__(self) -> str:
        return f"projects/{self.project}/tokens/{self.token}"


class WebhookName(NamedTuple):
    """projects/{project}/webhooks/{webhook}."""

    project: str
    webhook: str

    def __str__(self) -> str:
        return f"projects/{self.project}/webhooks/{self.webhook}"


class IssuerName(NamedTuple):
    """issuers/{issuer}."""

    issuer: str

    def __str__(self) -> str:
        return f"issuers/{self.issuer}"


Name = JobName | SweepName | UploadName | TokenName | WebhookName | IssuerName
"""Of what calls create."""


class DeliveryName(NamedTuple):
    """projects/{project}/webhooks/{webhook}/deliveries/{event}."""

    project: str
    webhook: str
    event: str

    def __str__(self) -> str:
        return f"projects/{self.project}/webhooks/{self.webhook}/deliveries/{self.event}"


def parse_project(name: str) -> str | None:
    """The project of projects/{project}, None for anything else."""
    match = _PROJECT.fullmatch(name)
    return match[1] if match else None


def parse_job(name: str) -> JobName | None:
    """The parts of a job's name, None for anything else."""
    match = _JOB.fullmatch(name)
    return JobName(match[1], match[2]) if match else None


def parse_sweep(name: str) -> SweepName | None:
    """The parts of a sweep's name, None for anything else."""
    match = _SWEEP.fullmatch(name)
    return SweepName(match[1], match[2]) if match else None


def parse_attempt(name: str) -> AttemptName | None:
    """The parts of an attempt's name, None for anything else."""
    match = _ATTEMPT.fullmatch(name)
    return AttemptName(match[1], match[2], None if match[3] == "-" else int(match[3])) if match else None


def parse_artifact(name: str) -> ArtifactName | None:
    """The parts of an artifact's name, None for anything else."""
    match = _ARTIFACT.fullmatch(name)
    return ArtifactName(match[1], match[2]) if match else None


def parse_upload(name: str) -> UploadName | None:
    """The parts of an upload's name, None for anything else."""
    match = _UPLOAD.fullmatch(name)
    return UploadName(match[1], match[2]) if match else None


def parse_token(name: str) -> TokenName | None:
    """The parts of a token's name, None for anything else."""
    match = _TOKEN.fullmatch(name)
    return TokenName(match[1], match[2]) if match else None


def parse_webhook(name: str) -> WebhookName | None:
    """The parts of a webhook's name, None for anything else."""
    match = _WEBHOOK.fullmatch(name)
    return WebhookName(match[1], match[2]) if match else None


def parse_delivery(name: str) -> DeliveryName | None:
    """The parts of a delivery's name, None for anything else."""
    match = _DELIVERY.fullmatch(name)
    return DeliveryName(match[1], match[2], match[3]) if match else None


def parse_issuer(name: str) -> IssuerName | None:
    """The parts of an issuer's name, None for anything else."""
    match = _ISSUER.fullmatch(name)
    return IssuerName(match[1]) if match else None


def new_uid(now_us: int) -> str:
    """A UUIDv7 (RFC 9562): sorts by time."""
    value = (now_us // 1000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return _uuid(value)


def first_uid(time_us: int) -> str:
    """A bound: uids of that time or later sort after it."""
    return _uuid((max(time_us, 0) // 1000 & (1 << 48) - 1) << 80)


def _uuid(value: int) -> str:
    text = f"{value:032x}"  # uuid.UUID takes three times as long
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_job_id(task: str) -> str:
    """A short id that people can tell apart: sst2-k3h9x2."""
    return f"{_prefix(task)}-{_random(6)}"


@lru_cache
def _prefix(task: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")[:40] or "job"


def new_token_id() -> str:
    """A short id that says what it is: token-k3h9x2m4qz."""
    return f"token-{_random(10)}"


def new_webhook_id() -> str:
    """A short id that says what it is: webhook-k3h9x2."""
    return f"webhook-{_random(6)}"


def new_issuer_id() -> str:
    """A short id that says what it is: issuer-k3h9x2."""
    return f"issuer-{_random(6)}"


def _random(length: int) -> str:
    return secrets.token_bytes(length).translate(_CHARACTERS).decode()
