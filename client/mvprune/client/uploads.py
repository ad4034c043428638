"""The calls about uploads, written once for both: see `mvprune.client.wire`.

A local folder or file in the options of a job is read, then the server is asked about the job that refers to its
digest, then what the server lacks is sent, then the job is created.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mvprune.client.convert import time_of
from mvprune.client.inputs import DataOptions, Local, Options, Visit, data_of, local
from mvprune.client.pages import listed
from mvprune.client.transport import Transport
from mvprune.client.upload_models import Upload, UploadFile, UploadProgress, UploadState
from mvprune.client.wire import BlockingWire, run
from mvprune.common.exceptions import FieldViolation, InvalidArgument, NotFound, UploadError, bad_field
from mvprune.common.files import expanded
from mvprune.common.suggestions import must_be_one_of
from mvprune.sources import uploads as sources
from mvprune.sources.references import InvalidReference
from mvprune.v1 import upload_pb2

if TYPE_CHECKING:
    from mvprune.client.content import Content
    from mvprune.client.local_data import LocalData

Report = Callable[[UploadProgress], object]
_Notes = dict[DataOptions, tuple[str, ...]]
_Places = list[tuple[str, str]]  # parameters with their fields
_ROUNDS = 3  # in which a chunk may vanish from the store between its commit and the end
_LEAST_DIGITS = 8  # of a digest that is cut short
_EXCLUDED = "sweep.spec.exclude["  # what is named only here is not used
_NAME = re.compile(r"projects/[^/]+/uploads/[0-9a-f]{64}")


class UploadCalls:
    """The calls about uploads.

    Args:
        transport: the way to the server.
        project: of the uploads.
    """

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._project = project

    async def call(
        self,
        options: Mapping[str, Any],
        visit_all: Callable[[Mapping[str, Any], Visit], Options],
        build: Callable[[Options], Any],
        method: Any,
        on_upload: Callable[[UploadProgress], None] | None,
        *,
        is_whole: bool = True,
        repeatable: bool = True,
    ) -> Any:
        """The answer to a request that is made of options, once the server has the local folders and files in them.

        Args:
            visit_all: replaces values in the options.
            build: makes the request; with `validate_only`, nothing is sent.
            is_whole: whether the options have all that is said about the data of a job: it is checked then.

        Raises:
            InvalidArgument: a local folder or file must not be sent; what `build` raises.
            UploadError, ServerUnreachable, RequestRefused.
        """
        found: dict[Local, _Places] = {}

        def note(parameter: str, value: Any, field: str) -> Any:
            if one := local(parameter, value):
                found.setdefault(one, []).append((parameter, field))
            return value

        def refer(parameter: str, value: Any, field: str) -> Any:
            one = local(parameter, value)
            return contents[one].reference if one else value

        options = visit_all(options, note)
        request = build(options)  # mistakes that are in the options themselves are found before files are read
        if not found:
            return await self._transport.call(method, request, repeatable=repeatable)
        report = self._transport.wire.callback(on_upload or (lambda progress: None))
        data = [one for one in data_of(options) if one.local] if is_whole else []
        contents, notes = await self._read(found, data, report)
        request = build(visit_all(options, refer))
        used = {one: places for one, places in found.items() if not all(at.startswith(_EXCLUDED) for _, at in places)}
        sending = [_Sending(contents[one], _parameters(places), report) for one, places in used.items()]
        only_checks = getattr(request, "validate_only", False)
        answer = None
        if hasattr(request, "validate_only"):
            trial = type(request)()
            trial.CopyFrom(request)
            trial.validate_only = True
            answer = await self._transport.call(method, trial)
        for one in sending:
            one.checked(await self._create(one.content, validate_only=True))
        if only_checks:
            if notes and answer is not None:
                from mvprune.client.local_data import merge_notes

                merge_notes(answer.notes, notes, [content.display_name for content in contents.values()])
            return answer
        for one in sending:
            await self._send(one)
        return await self._transport.call(method, request, repeatable=repeatable)

    async def create(
        self,
        path: str | os.PathLike[str],
        kind: str | None,
        on_progress: Callable[[UploadProgress], None] | None,
        *,
        validate_only: bool,
    ) -> Upload:
        """See `Client.upload`."""
        there = expanded(path).absolute()
        if kind is not None and kind not in list(sources.Kind):
            raise bad_field("kind", must_be_one_of(list(sources.Kind), str(kind)[:200]))
        found = sources.Kind(kind) if kind else sources.Kind.MODEL if there.is_dir() else sources.Kind.DATA
        one = Local(found, there)
        report = self._transport.wire.callback(on_progress or (lambda progress: None))
        content = (await self._read({one: [("", "path")]}, [], report))[0][one]
        sending = _Sending(content, (), report)
        message = await self._create(content, validate_only=True)
        sending.checked(message)
        if not validate_only:
            message = await self._send(sending)
        return upload(message)

    async def list(self, filter: str, order_by: str, limit: int | None) -> AsyncGenerator[Upload, None]:
        """See `Client.uploads`."""
        request = upload_pb2.ListUploadsRequest(parent=f"projects/{self._project}", filter=filter, order_by=order_by)
        async for message in listed(self._transport, self._transport.uploads.ListUploads, request, "uploads", limit):
            yield upload(message)

    async def delete(self, given: str | Upload, *, allow_missing: bool) -> None:
        """See `Client.delete_upload`."""
        try:
            name = given.name if isinstance(given, Upload) else await self._name(given)
        except NotFound:
            if allow_missing:
                return
            raise
        request = upload_pb2.DeleteUploadRequest(name=name, allow_missing=allow_missing)
        await self._transport.call(self._transport.uploads.DeleteUpload, request, repeatable=allow_missing)

    async def _name(self, given: str) -> str:
        """The name of an upload that is given by its name, its reference, its digest, or how its digest begins."""
        if _NAME.fullmatch(given):
            return given
        digest = given.removeprefix(sources.SCHEME).partition("/")[0]
        if not re.fullmatch(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}", digest):
            rule = f"must be an upload's reference, its name, or at least {_LEAST_DIGITS} digits of its digest"
            raise bad_field("upload", f"{rule}, got {given[:200]!r}")
        if len(digest) == 64:
            return f"projects/{self._project}/uploads/{digest}"
        async with aclosing(self.list("", "", None)) as uploads:
            found = [one.name async for one in uploads if one.digest.startswith(digest)]
        if len(found) > 1:
            raise bad_field("upload", f"must be one upload, got {digest!r}, which {len(found)} digests begin with")
        if not found:
            raise NotFound(f"no upload of project {self._project} begins with {digest!r}", code="NOT_FOUND")
        return found[0]

    async def _read(
        self, found: Mapping[Local, _Places], data: Sequence[DataOptions], report: Report
    ) -> tuple[dict[Local, Content], _Notes]:
        """Reads what was found, each with its parameters and fields, and checks data files as those of a task.

        Returns:
            The contents, and what is known of the data.

        Raises:
            InvalidArgument: all that is wrong.
        """

        def work(cancelled: threading.Event) -> tuple[dict[Local, Content], _Notes]:
            from mvprune.client.local_data import BadFile  # few need the readers of data

            contents: dict[Local, Content] = {}
            notes: _Notes = {}
            violations: list[FieldViolation] = []
            for one, places in found.items():
                progress = functools.partial(
                    UploadProgress, _parameters(places), one.path, str(one.kind), "reading", stored_bytes=0
                )

                def read(done: int, total: int, progress: Any = progress) -> None:
                    if cancelled.is_set():
                        raise UploadError("cancelled")
                    report(progress(total_bytes=total, read_bytes=done))

                try:
                    contents[one] = self._contents.read(one, read)
                except InvalidReference as error:
                    violations += [FieldViolation(field, str(error)) for _, field in places]
            for files in () if violations else data:
                try:
                    notes[files] = self._local_data.notes_on(files)
                except BadFile as error:
                    named = found[Local(sources.Kind.DATA, error.path)]
                    fields = [field for parameter, field in named if parameter == error.parameter]
                    violations += [FieldViolation(field, str(error)) for field in fields]
            if violations:
                raise InvalidArgument(violations=list(dict.fromkeys(violations)))
            return contents, notes

        return await self._transport.wire.work(work)

    async def _create(self, content: Content, *, validate_only: bool) -> upload_pb2.Upload:
        request = _request(self._project, content, validate_only=validate_only)
        message: upload_pb2.Upload = await self._transport.call(self._transport.uploads.CreateUpload, request)
        return message

    async def _send(self, sending: _Sending) -> upload_pb2.Upload:
        return await self._transport.wire.work(functools.partial(_send, self._transport, self._project, sending))

    @functools.cached_property
    def _contents(self) -> Any:
        from mvprune.client.content import Contents  # few need it

        return Contents()

    @functools.cached_property
    def _local_data(self) -> LocalData:
        from mvprune.client.local_data import LocalData  # few need it

        return LocalData()


class _Sending:
    """A content that is being sent; reports the progress."""

    def __init__(self, content: Content, parameters: tuple[str, ...], report: Report) -> None:
        self.content = content
        progress = UploadProgress(
            parameters,
            content.local.path,
            str(content.local.kind),
            "checked",
            total_bytes=content.total_bytes,
            read_bytes=content.total_bytes,
            reference=content.reference,
            files=tuple(UploadFile(file.path, file.size_bytes) for file in content.files),
            not_sent=content.not_sent,
        )
        self._tell: Callable[..., object] = lambda **how: report(replace(progress, **how))
        self._stored = self._sent = 0

    def checked(self, message: upload_pb2.Upload) -> None:
        """The server would take it."""
        self._stored = self._bytes_in(message)
        self._tell(stage="checked", stored_bytes=self._stored)

    def begins(self, message: upload_pb2.Upload) -> None:
        """Sends the chunks that the server lacks."""
        self._stored, self._sent = self._bytes_in(message), 0
        self.add(0)

    def add(self, count: int) -> None:
        """Bytes were sent, or have to be sent again."""
        self._sent += count
        self._tell(stage="sending", stored_bytes=self._stored, sent_bytes=self._sent)

    def _bytes_in(self, message: upload_pb2.Upload) -> int:
        """Bytes that the server has."""
        return self.content.total_bytes - sum(chunk.size for chunk in self.content.chunks(message.missing))


def _send(transport: Transport, project: str, sending: _Sending, cancelled: threading.Event) -> upload_pb2.Upload:
    """Sends what the server lacks, over a connection of its own."""
    from mvprune.client.send import send  # http.client is slow to import
    from mvprune.client.sink import Sink

    own = Transport(BlockingWire(transport.endpoint), transport.endpoint, transport.timeout)
    request = _request(project, sending.content, validate_only=False)
    try:
        for tried in range(_ROUNDS + 1):
            message: upload_pb2.Upload = run(own.call(own.uploads.CreateUpload, request))
            is_ready = message.state == upload_pb2.Upload.READY
            if not (is_ready and tried):  # else all was reported
                sending.begins(message)
            if is_ready:
                return message
            chunks = sending.content.chunks(message.missing)
            sink = Sink(own, message.name, [chunk.sha256 for chunk in chunks])
            send(sink, chunks, sending.add, cancelled)
    finally:
        run(own.wire.close())
    raise UploadError(f"{sending.content.local.path}: the store loses what is sent to it")


def upload(message: upload_pb2.Upload) -> Upload:
    """The model of a message."""
    state = upload_pb2.Upload.State.Name(message.state) if message.state in upload_pb2.Upload.State.values() else ""
    kinds = {upload_pb2.Upload.MODEL: sources.Kind.MODEL, upload_pb2.Upload.DATA: sources.Kind.DATA}
    return Upload(
        name=message.name,
        kind=str(kinds.get(message.kind, "")),
        display_name=message.display_name,
        files=tuple(UploadFile(file.path, file.size_bytes) for file in message.files),
        state=UploadState(state) if state in list(UploadState) else UploadState.UNSPECIFIED,
        total_bytes=message.total_bytes,
        jobs=message.jobs,
        creator=message.creator,
        create_time=time_of(message, "create_time"),
        expire_time=time_of(message, "expire_time"),
    )


def announced(
    project: str, kind: sources.Kind, display_name: str, files: Sequence[sources.File], *, validate_only: bool = False
) -> upload_pb2.CreateUploadRequest:
    """The request that announces an upload."""
    kinds = {sources.Kind.MODEL: upload_pb2.Upload.MODEL, sources.Kind.DATA: upload_pb2.Upload.DATA}
    message = upload_pb2.Upload(kind=kinds[kind], display_name=display_name)
    for file in files:
        message.files.add(path=file.path, size_bytes=file.size_bytes, chunks=file.chunks)
    return upload_pb2.CreateUploadRequest(parent=f"projects/{project}", upload=message, validate_only=validate_only)


def _request(project: str, content: Content, *, validate_only: bool) -> upload_pb2.CreateUploadRequest:
    kind, name, files = content.local.kind, content.display_name, content.files
    return announced(project, kind, name, files, validate_only=validate_only)


def _parameters(places: _Places) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parameter for parameter, _ in places if parameter))
