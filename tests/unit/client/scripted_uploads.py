"""An UploadService in memory for the scripted server, with an HTTP server in place of a store that has URLs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from tests.unit.client.scripted_server import Fake, refuse

from mvprune.sources.uploads import File, digest
from mvprune.v1 import upload_pb2


class Uploads:
    """What was announced and what was sent.

    Attributes:
        announced: by name.
        chunks: content by SHA-256, of chunks that are ready.
        put: SHA-256 of chunks in the order in which they came, through the server or to a URL.
        order: names of all calls about uploads and jobs.
    """

    def __init__(self, fake: Fake) -> None:
        self.announced: dict[str, upload_pb2.Upload] = {}
        self.chunks: dict[str, bytes] = {}
        self.put: list[str] = []
        self.before_put: Callable[[str], None] = lambda chunk: None
        self.base_url = ""
        self.in_store: dict[str, bytes] = {}
        self._lock = threading.Lock()
        fake.answers |= {
            "CreateUpload": self._create,
            "PutChunk": self._put_chunk,
            "GenerateChunkUrls": self._urls,
            "CommitChunks": self._commit,
            "ListUploads": lambda request, context: upload_pb2.ListUploadsResponse(uploads=self.announced.values()),
            "DeleteUpload": self._delete,
        }

    def shown(self, name: str) -> upload_pb2.Upload:
        """An upload as the server shows it."""
        upload = self.announced[name]
        wanted = dict.fromkeys(chunk for file in upload.files for chunk in file.chunks)
        del upload.missing[:]
        upload.missing.extend(chunk for chunk in wanted if chunk not in self.chunks)
        upload.state = upload_pb2.Upload.INCOMPLETE if upload.missing else upload_pb2.Upload.READY
        return upload

    def _create(self, request: upload_pb2.CreateUploadRequest, context: grpc.ServicerContext) -> upload_pb2.Upload:
        upload = request.upload
        files = [File(file.path, file.size_bytes, tuple(file.chunks)) for file in upload.files]
        upload.name = f"{request.parent}/uploads/{digest(files)}"
        upload.total_bytes = sum(file.size_bytes for file in files)
        was_there = upload.name in self.announced
        self.announced[upload.name] = upload
        try:
            return self.shown(upload.name)
        finally:
            if request.validate_only and not was_there:
                del self.announced[upload.name]

    def _put_chunk(
        self, requests: Iterator[upload_pb2.PutChunkRequest], context: grpc.ServicerContext
    ) -> upload_pb2.PutChunkResponse:
        first = next(requests)
        self.before_put(first.chunk)
        content = first.data + b"".join(request.data for request in requests)
        if hashlib.sha256(content).hexdigest() != first.chunk:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "wrong", violations={"data": "must have the SHA-256"})
        with self._lock:
            self.put.append(first.chunk)
            self.chunks[first.chunk] = content
        return upload_pb2.PutChunkResponse()

    def _urls(self, request: Any, context: grpc.ServicerContext) -> upload_pb2.GenerateChunkUrlsResponse:
        urls = [
            upload_pb2.GenerateChunkUrlsResponse.Url(chunk=chunk, url=f"{self.base_url}/{chunk}?signature=secret")
            for chunk in request.chunks
        ]
        return upload_pb2.GenerateChunkUrlsResponse(urls=urls if self.base_url else [])

    def _commit(self, request: Any, context: grpc.ServicerContext) -> upload_pb2.CommitChunksResponse:
        rejected = []
        for chunk in request.chunks:
            content = self.in_store.get(chunk, b"")
            if hashlib.sha256(content).hexdigest() == chunk:
                self.chunks[chunk] = content
            else:
                rejected.append(chunk)
        return upload_pb2.CommitChunksResponse(rejected=rejected)

    def _delete(self, request: Any, context: grpc.ServicerContext) -> upload_pb2.DeleteUploadResponse:
        if request.name not in self.announced and not request.allow_missing:
            refuse(context, grpc.StatusCode.NOT_FOUND, f"{request.name} not found")
        self.announced.pop(request.name, None)
        return upload_pb2.DeleteUploadResponse()


@contextmanager
def store(uploads: Uploads, answer: Callable[[str, bytes], int] = lambda chunk, content: 200) -> Iterator[list[Any]]:
    """An HTTP server that takes chunks by PUT; gives the list of its connections.

    Args:
        answer: the status for a chunk; one that is not 200 stores nothing.
    """
    connections: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            connections.append(self.client_address)
            super().setup()

        def do_PUT(self) -> None:
            chunk = self.path.strip("/").partition("?")[0]
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = answer(chunk, content)
            if status == 200:
                uploads.put.append(chunk)
                uploads.in_store.setdefault(chunk, content)
            body = b"" if status == 200 else b"<Error><Code>AccessDenied</Code></Error>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    uploads.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield connections
    finally:
        server.shutdown()
        server.server_close()
