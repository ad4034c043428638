"""Artifacts in an S3-compatible bucket."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.loaders import Loader, create_loader
from botocore.session import get_session

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import multipart
from mvprune_service.stores.base import (
    FRESH_US,
    Entry,
    ObjectNotFound,
    SignedPut,
    StoreDenied,
    StoreFull,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ABSENT = {"NoSuchKey", "404"}
_DENIED = {"AccessDenied", "403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
# Not AWS's, which has no end: of servers that keep buckets on disks of their own.
_FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
_KINDS: Mapping[str, type[StoreUnavailable]] = {
    **dict.fromkeys(_DENIED, StoreDenied),
    **dict.fromkeys(_FULL, StoreFull),
}
_CHECKSUM = "x-amz-checksum-sha256"
_CONFLICT_ATTEMPTS = 6
_MULTIPART = 64 << 20  # bytes from which a file goes up in parts


class S3Store:
    """A BlobStore in a bucket that exists, under `prefix` ("" for the whole bucket).

    Credentials, region and endpoint come from where every AWS tool takes them (AWS_ACCESS_KEY_ID, AWS_PROFILE,
    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, an instance's role, ...). An endpoint from the environment is addressed by
    path (http://host/bucket/key), since few self-hosted stores have a host name for each bucket.
    """

    def __init__(self, bucket: str, prefix: str = "") -> None:
        if not _BUCKET.fullmatch(bucket):
            raise ValueError(f"bucket must be 3 to 63 lower-case letters, digits, '.' and '-', got {bucket!r}")
        self._bucket = bucket
        self._prefix = f"{check_key(prefix)}/" if prefix else ""
        with self._errors():
            self._client = _client()

    @property
    def url(self) -> str:
        """s3://bucket/prefix."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See BlobStore.put."""
        name = self._name(key)
        if not if_absent:
            with self._errors():
                self._put(name, data)
            return True
        for attempt in range(_CONFLICT_ATTEMPTS):
            with self._errors():
                try:
                    self._put(name, data, IfNoneMatch="*")
                except ClientError as error:
                    if _code(error) in {"PreconditionFailed", "412"}:
                        return False
                    if _code(error) != "ConditionalRequestConflict":
                        raise
                else:
                    return True
            time.sleep(0.05 * 2**attempt)
        raise StoreUnavailable(f"{self.url}: {key} is being written by others")

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        """See BlobStore.put_file. What is there is known by its ETag, which S3 made of the content that it received.
        Large files go up in parts, and appear when the last one has."""
        name = self._name(key)
        parts = multipart.parts_of(path, sha256, single=_MULTIPART)
        if self._has(key, parts):
            return
        with self._errors():
            if len(parts.md5s) == 1:
                content = multipart.read_part(path, parts, 1)
                self._put(name, content)
                return
            try:
                multipart.upload(self._client, self._bucket, name, path, parts)
            except ClientError as error:
                if _code(error) != "NoSuchUpload" or not self._has(key, parts):  # else another process completed it
                    raise

    def _has(self, key: str, parts: multipart.Parts) -> bool:
        found = self._head(key)
        if found is None or (found["ContentLength"], found["ETag"]) != (parts.size, parts.tag):
            return False
        return _us(found["LastModified"]) > system_clock() - FRESH_US

    def get(self, key: str) -> bytes:
        """See BlobStore.get."""
        with self._errors(key):
            return self._client.get_object(Bucket=self._bucket, Key=self._name(key))["Body"].read()

    def read(self, key: str, offset: int, limit: int) -> bytes:
        """See BlobStore.read."""
        check_range(offset, limit)
        wanted = f"bytes={offset}-{offset + limit - 1}"
        with self._errors(key):
            try:
                response = self._client.get_object(Bucket=self._bucket, Key=self._name(key), Range=wanted)
            except ClientError as error:
                if _code(error) in {"InvalidRange", "416"}:
                    return b""
                raise
            return response["Body"].read()

    def size(self, key: str) -> int | None:
        """See BlobStore.size. A missing bucket looks like a missing object here: HEAD answers carry no reason."""
        found = self._head(key)
        return found["ContentLength"] if found else None

    def delete(self, key: str) -> None:
        """See BlobStore.delete."""
        with contextlib.suppress(ObjectNotFound), self._errors(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def list(self, prefix: str) -> Iterator[Entry]:
        """See BlobStore.list. Asks for a page of 1,000 at a time."""
        return self._list(self._prefix + check_prefix(prefix))

    def _list(self, start: str) -> Iterator[Entry]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start)
        with self._errors():
            for page in pages:
                for item in page.get("Contents", []):
                    yield Entry(item["Key"].removeprefix(self._prefix), item["Size"], _us(item["LastModified"]))

    def remove_torn(self, before_us: int) -> None:
        """See BlobStore.remove_torn: uploads in parts that were never completed."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=self._prefix)
        with self._errors():
            for page in pages:
                for upload in page.get("Uploads", []):
                    if _us(upload["Initiated"]) < before_us:
                        self._abort(upload["Key"], upload["UploadId"])

    def _abort(self, name: str, upload_id: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload_id)
        except ClientError as error:
            if _code(error) != "NoSuchUpload":  # it has ended meanwhile
                raise

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """See BlobStore.presign."""
        with self._errors():
            return self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": self._name(key)}, ExpiresIn=ttl_seconds
            )

    def presign_put(self, key: str, size: int, sha256: str, ttl_seconds: int) -> SignedPut | None:
        """See BlobStore.presign_put. Size and checksum are signed: the store refuses a body of another length, a PUT
        without the checksum, and, where it knows the header, a body of other content."""
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        place = {"Bucket": self._bucket, "Key": self._name(key)}
        params: dict[str, Any] = {**place, "ContentLength": size, "ChecksumSHA256": checksum}
        with self._errors():
            url = self._client.generate_presigned_url("put_object", Params=params, ExpiresIn=ttl_seconds)
        return SignedPut(url, {_CHECKSUM: checksum})

    def _head(self, key: str) -> HeadObjectOutputTypeDef | None:
        with contextlib.suppress(ObjectNotFound), self._errors(key):
            return self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        return None

    def _put(self, name: str, data: bytes, **more: Any) -> None:
        """With a checksum, so that S3 keeps nothing else than what was sent."""
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        self._client.put_object(Bucket=self._bucket, Key=name, Body=data, ContentMD5=md5, **more)

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    @contextlib.contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StoreDenied(f"{self.url}: {error}") from error
        except ClientError as error:
            if key is not None and _code(error) in _ABSENT:
                raise ObjectNotFound(f"{key} is not in {self.url}") from None
            kind = _KINDS.get(_code(error), StoreUnavailable)
            raise kind(f"{self.url}: {error}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"{self.url}: {error}") from error


@functools.cache
def _loader(folders: str | None) -> Loader:
    """Reads how S3 is called, which takes 0.2 s, once for all stores."""
    return create_loader(folders)


def _client() -> S3Client:
    own_endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    core = get_session()
    session = boto3.session.Session(botocore_session=core)
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    return session.client(
        "s3",
        region_name=session.region_name or "us-east-1",
        config=Config(
            signature_version="s3v4",
            # Checksums in trailers, the default since boto3 1.36, are refused by most stores that are not AWS's.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": 4},
            connect_timeout=5,
            read_timeout=30,
            s3={"addressing_style": "path" if own_endpoint else "auto"},
        ),
    )


def _us(time: datetime) -> int:
    return int(time.timestamp() * SECOND)


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")
