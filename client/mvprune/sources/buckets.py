"""References to S3-compatible buckets: a model's folder, a data file. Text is checked here, workers fetch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mvprune.sources import schemes
from mvprune.sources.references import MAX_LENGTH, InvalidReference, Roots

SCHEME = schemes.BUCKET

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_FORM = "s3://BUCKET/PATH, of letters, digits, '-', '_' and '.', no part of the path beginning with a dot"


@dataclass(frozen=True)
class BucketPath:
    """An object, or a folder of objects; `key` is "" for a whole bucket."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}".rstrip("/")

    def holds(self, other: BucketPath) -> bool:
        """Whether `other` is this or lies below it."""
        below = not self.key or other.key == self.key or other.key.startswith(f"{self.key}/")
        return self.bucket == other.bucket and below


def parse_bucket(url: str) -> BucketPath:
    """The bucket and the path of s3://bucket/path. Raises InvalidReference."""
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    key = key.removesuffix("/")
    parts = key.split("/") if key else []
    well_formed = url.startswith(SCHEME) and _BUCKET.fullmatch(bucket) and all(map(_SEGMENT.fullmatch, parts))
    if not well_formed or len(url) > MAX_LENGTH:
        raise InvalidReference(f"the path in a bucket must be {_FORM}, got {url[:200]!r}")
    return BucketPath(bucket, key)


def bucket_path(ref: str, roots: Roots) -> BucketPath | None:
    """The bucket and the path of `ref`; None if it is no such reference.

    Raises:
        InvalidReference: malformed, or not under one of `roots.buckets`.
    """
    if not ref.startswith(SCHEME):
        return None
    path = parse_bucket(ref)
    if not any(parse_bucket(allowed).holds(path) for allowed in roots.buckets):
        if roots.discreet:
            rule = "the path must be in a bucket that this server allows"
            raise InvalidReference(f"{rule}, got {ref!r}; ask its operator for another")
        allowed = ", ".join(roots.buckets) or "there are none"
        how = "`mvpctl server start --buckets s3://BUCKET/PATH` or MVPRUNE_BUCKETS allows another"
        raise InvalidReference(f"the path must be in one of the allowed buckets ({allowed}), got {ref!r}; {how}")
    return path
