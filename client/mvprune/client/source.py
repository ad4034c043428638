"""Where the bytes of an artifact come from: from the store by HTTP where the server can give URLs, else through the
server itself."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

from mvprune.client.http import read_url
from mvprune.client.models import Artifact, ArtifactFile
from mvprune.client.transport import Patience, Transport
from mvprune.client.wire import iterate, run
from mvprune.common.exceptions import DownloadError, IntegrityError
from mvprune.v1 import artifact_pb2

STALL_SECONDS = 60.0


class Source:
    """The files of one artifact; may be shared by threads.

    Args:
        transport: over a blocking wire.

    Raises:
        DownloadError, ServerUnreachable, RequestRefused.
    """

    def __init__(self, transport: Transport, artifact: Artifact) -> None:
        self._transport = transport
        self._artifact = artifact.name
        self._answered = False
        self._renewing = threading.Lock()
        self._urls = self._ask_for_urls([file.path for file in artifact.files])

    @property
    def has_ranges(self) -> bool:
        """Whether several parts of a file can be fetched at once."""
        return bool(self._urls)

    def blocks(self, file: ArtifactFile, start: int, end: int) -> Generator[bytes, None, None]:
        """The bytes of a file from `start` up to `end`, over as many connections as it takes; fewer only if there are
        no more.

        Raises:
            DownloadError, ServerUnreachable, RequestRefused.
        """
        blocks = self._from_store(file, start, end) if self._urls else self._from_server(file.path, start)
        with closing(blocks):
            for block in blocks:
                yield block[: end - start]
                start += len(block)
                if start >= end:
                    return

    def _from_store(self, file: ArtifactFile, start: int, end: int) -> Generator[bytes, None, None]:
        url = self._urls[file.path]
        patience = Patience(known=self._answered)
        while start < end:
            failure = "the connection ended early"
            try:
                for block in read_url(url, start, None if end == file.size_bytes else end, STALL_SECONDS):
                    patience.renew()
                    self._answered = True
                    start += len(block)
                    yield block
            except (OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
            if start < end:
                refused = DownloadError(f"{file.path}: the store does not answer: {failure}")
                time.sleep(patience.delay_or_raise(refused))
                url = self._renewed(file.path, url)  # it may have expired

    def _from_server(self, path: str, start: int) -> Generator[bytes, None, None]:
        at = start

        def open_stream(timeout: float | None) -> Any:
            request = artifact_pb2.ReadFileRequest(name=self._artifact, path=path, offset=at)
            return self._transport.artifacts.ReadFile(request, timeout=timeout)

        stream = self._transport.stream(open_stream, lambda message: message.end, stall_seconds=STALL_SECONDS)
        for message in iterate(stream):
            data = message.data[max(0, at - message.offset) :]
            if message.offset > at:
                raise IntegrityError(f"{path}: bytes from {message.offset} on instead of {at}")
            at += len(data)
            if data:
                yield data

    def _renewed(self, path: str, stale: str) -> str:
        """A URL in place of a stale one, which another thread may have renewed already."""
        with self._renewing:
            if self._urls[path] == stale:
                self._urls |= self._ask_for_urls([path])
            return self._urls[path]

    def _ask_for_urls(self, paths: list[str]) -> dict[str, str]:
        request = artifact_pb2.GenerateDownloadUrlsRequest(name=self._artifact, paths=paths)
        answer = run(self._transport.call(self._transport.artifacts.GenerateDownloadUrls, request))
        urls = {found.path: found.url for found in answer.urls}
        if urls and (missing := set(paths) - urls.keys()):
            raise DownloadError(f"the server gives no URL for {', '.join(sorted(missing))}")
        return urls
