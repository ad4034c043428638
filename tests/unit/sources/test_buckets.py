"""References to buckets."""

from __future__ import annotations

import pytest

from mvprune.sources.buckets import BucketPath, bucket_path, parse_bucket
from mvprune.sources.references import InvalidReference, Roots

ROOTS = Roots(buckets=("s3://models/bert", "s3://data"))


@pytest.mark.parametrize(
    ("ref", "key"),
    [
        ("s3://models/bert", "bert"),
        ("s3://models/bert/", "bert"),
        ("s3://models/bert/tiny-1.0", "bert/tiny-1.0"),
    ],
)
def test_what_lies_under_an_allowed_bucket(ref: str, key: str) -> None:
    assert bucket_path(ref, ROOTS) == BucketPath("models", key)
    assert bucket_path("s3://data/train.csv", ROOTS) == BucketPath("data", "train.csv")
    assert bucket_path("s3://data", ROOTS) == BucketPath("data", "")


@pytest.mark.parametrize(
    "ref", ["s3://models", "s3://models/bertha", "s3://models/other", "s3://secrets/x", "s3://dat"]
)
def test_nothing_else_does(ref: str) -> None:
    with pytest.raises(InvalidReference, match=r"\(s3://models/bert, s3://data\), got .*MVPRUNE_BUCKETS"):
        bucket_path(ref, ROOTS)
    with pytest.raises(InvalidReference, match="there are none"):
        bucket_path(ref, Roots())


@pytest.mark.parametrize(
    "ref",
    [
        "s3://data/../models/x",
        "s3://data//x",
        "s3://data/./x",
        "s3://data/.hidden",
        "s3://data/a b",
        "s3://data/ä",
        "s3://data/x?versionId=1",
        "s3://user:secret@data/x",
        "s3://Data/x",
        "s3://",
        "s3:///x",
        "s3://data/" + "x/" * 300,
    ],
)
def test_malformed_references_are_refused(ref: str) -> None:
    with pytest.raises(InvalidReference, match="must be s3://BUCKET/PATH"):
        bucket_path(ref, ROOTS)


@pytest.mark.parametrize("ref", ["bert-base-uncased", "/models/bert", "S3://data/x", "https://data/x", ""])
def test_other_references_are_none_of_its_business(ref: str) -> None:
    assert bucket_path(ref, ROOTS) is None


def test_a_path_is_written_as_it_is_read() -> None:
    for url in ("s3://data", "s3://data/a/b.csv"):
        assert str(parse_bucket(url)) == url


def test_buckets_survive_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ROOTS.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Roots.from_environment() == ROOTS
