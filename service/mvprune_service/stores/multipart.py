"""Large files to S3 in parts. An upload that was cut off is gone on with: what arrived is not sent again.

boto3's own transfer manager begins anew and forgets what a process that was killed had sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_PART = 16 << 20
_MOST_PARTS = 10_000  # S3's limit
_AT_A_TIME = 4


def upload(client: S3Client, bucket: str, key: str, path: Path) -> None:
    """Uploads a file; the object appears, whole, when its last part has arrived.

    Each part is retried by the client. Several processes may send the same file: they share the parts, and whoever
    comes late finds the object there.
    """
    size = path.stat().st_size
    part_size = max(_PART, -(-size // _MOST_PARTS))
    upload_id = _unfinished(client, bucket, key)
    if upload_id is None:
        upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    arrived = dict(_arrived(client, bucket, key, upload_id))

    def send(number: int) -> CompletedPartTypeDef:
        with path.open("rb") as file:
            file.seek((number - 1) * part_size)
            content = file.read(part_size)
        tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
        if arrived.get(number) != tag:
            sent = client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=content)
            tag = sent["ETag"]
        return {"PartNumber": number, "ETag": tag}

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="upload") as pool:
        parts = list(pool.map(send, range(1, -(-size // part_size) + 1)))
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts})


def _unfinished(client: S3Client, bucket: str, key: str) -> str | None:
    """The newest upload to this key that has not ended."""
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
    uploads = [upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == key]
    newest = max(uploads, key=lambda upload: upload["Initiated"], default=None)
    return newest["UploadId"] if newest else None


def _arrived(client: S3Client, bucket: str, key: str, upload_id: str) -> Iterator[tuple[int, str]]:
    """Number and tag, the MD5 of its content, of each part that is there."""
    for page in client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload_id):
        for part in page.get("Parts", []):
            yield part["PartNumber"], part["ETag"]
