"""Client: download of artifacts over gRPC and HTTP, with cuts, tampering and hostile paths."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import Fake, job, refuse
from tests.waiting import PATIENCE, until

import mvprune
from mvprune import Client
from mvprune.client import transport
from mvprune.client.download import check_destination
from mvprune.v1 import artifact_pb2

FILES = {
    "weights.safetensors": bytes(i * i % 251 for i in range(5500)),
    "tokenizer/vocab.txt": b"a\nb\n",
    "empty.txt": b"",
}


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


@pytest.fixture
def name(fake: Fake) -> str:
    """An artifact of FILES, of the job j1."""
    name = fake.serve(FILES)
    fake.answers["GetJob"] = lambda request, context: job("SUCCEEDED", artifact=name)
    return name


def _cut_read(fake: Fake, at: int, wait: Callable[[], object] = lambda: None) -> None:
    """Cuts the first stream of the weights after a few chunks, and after `wait`."""
    read, cuts = fake.answers["ReadFile"], [at]

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for chunk in read(request, context):
            if cuts and request.path == "weights.safetensors" and chunk.offset >= cuts[0]:
                cuts.clear()
                wait()
                context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
            yield chunk

    fake.answers["ReadFile"] = answer


def test_download_through_the_server_with_a_cut(fake: Fake, client: Client, name: str, tmp_path: Path) -> None:
    _cut_read(fake, 3000)
    seen: list[tuple[int, int]] = []
    folder = client.get("j1").download(tmp_path / "out", on_progress=lambda *at: seen.append(at))
    assert folder == tmp_path / "out"
    assert _content(folder) == FILES
    assert hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest() == name.rpartition("/")[2]
    offsets = [request.offset for request in fake.requests["ReadFile"] if request.path == "weights.safetensors"]
    assert offsets == [0, 3000]
    total = sum(map(len, FILES.values())) + (folder / "manifest.json").stat().st_size
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_broken_off_download_goes_on_in_the_next_run(
    fake: Fake, client: Client, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RECONNECT_SECONDS", 0.0)
    sha256 = name.rpartition("/")[2]
    manifest = tmp_path / f"out.{sha256}.partial" / "manifest.json"

    def is_there() -> bool:
        return manifest.exists() and hashlib.sha256(manifest.read_bytes()).hexdigest() == sha256

    _cut_read(fake, 2000, lambda: until(is_there, "the manifest is there"))
    with pytest.raises(mvprune.ServerUnreachable):
        client.download(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    fake.requests.clear()
    client.download(name, tmp_path / "out")
    assert _content(tmp_path / "out") == FILES
    first = {request.path: request.offset for request in fake.requests["ReadFile"]}
    assert first["weights.safetensors"] == 2000
    assert "manifest.json" not in first  # it was there already


def test_what_an_earlier_run_left_is_not_trusted(fake: Fake, client: Client, name: str, tmp_path: Path) -> None:
    partial = tmp_path / f"out.{name.rpartition('/')[2]}.partial"
    partial.mkdir()
    (partial / "weights.safetensors").write_bytes(b"x" * 1000)
    (partial / "empty.txt").write_bytes(b"not empty")
    client.download(name, tmp_path / "out")
    assert _content(tmp_path / "out") == FILES


def test_run_again_it_only_verifies(fake: Fake, client: Client, name: str, tmp_path: Path) -> None:
    client.download("j1", tmp_path / "out")
    fake.requests.clear()
    assert client.download("j1", tmp_path / "out") == tmp_path / "out"
    assert "ReadFile" not in fake.requests
    assert "GenerateDownloadUrls" not in fake.requests


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_have_the_mode_that_the_umask_gives(client: Client, name: str, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = client.download(name, tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {True: 0o777 & ~umask, False: 0o666 & ~umask}


@pytest.mark.parametrize("change", ["other bytes", "file more", "file less", "something else"])
def test_a_folder_with_something_else_is_left_alone(client: Client, name: str, tmp_path: Path, change: str) -> None:
    out = tmp_path / "out"
    if change == "something else":
        out.mkdir()
        (out / "thesis.tex").write_text("precious")
    else:
        client.download("j1", out)
        match change:
            case "other bytes":
                (out / "tokenizer/vocab.txt").write_bytes(b"a\nc\n")
            case "file more":
                (out / "notes.txt").write_text("mine")
            case "file less":
                (out / "empty.txt").unlink()
    before = _content(out)
    with pytest.raises(mvprune.DestinationNotEmpty, match="remove it or choose another folder"):
        client.download("j1", out)
    assert _content(out) == before


def test_an_empty_folder_is_filled_and_a_file_is_not_replaced(client: Client, name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    client.download("j1", tmp_path / "out")
    assert _content(tmp_path / "out") == FILES
    (tmp_path / "file").write_text("mine")
    with pytest.raises(mvprune.DestinationNotEmpty):
        client.download("j1", tmp_path / "file")


@pytest.mark.parametrize("wrong", [b"y" * 5500, b"y" * 6000, b"y" * 100])
def test_tampered_bytes_are_found(fake: Fake, client: Client, name: str, tmp_path: Path, wrong: bytes) -> None:
    read = fake.answers["ReadFile"]

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if request.path != "weights.safetensors":
            yield from read(request, context)
            return
        yield artifact_pb2.ReadFileResponse(offset=request.offset, data=wrong[request.offset :])
        yield artifact_pb2.ReadFileResponse(offset=len(wrong), end=True)

    fake.answers["ReadFile"] = answer
    with pytest.raises(
        mvprune.IntegrityError, match=r"weights\.safetensors: the bytes received do not have the SHA-256"
    ):
        client.download("j1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _replace_files(fake: Fake, *paths: str) -> None:
    artifact = fake.answers["GetArtifact"](None, None)
    for path in paths:
        artifact.files.add(path=path, size_bytes=1, sha256="0" * 64)


@pytest.mark.parametrize(
    "paths",
    [
        ["../evil"],
        ["a/../../evil"],
        ["/etc/passwd"],
        ["a\\..\\evil"],
        ["./x"],
        ["a//b"],
        ["a/"],
        [""],
        ["nul\0"],
        ["line\nfeed"],
        ["Weights.safetensors"],
        ["A/x", "a/y"],
        ["empty.txt/x"],
        ["tokenizer"],
        ["tokenizer/vocab.txt"],
    ],
)
def test_hostile_paths_are_refused(fake: Fake, client: Client, name: str, tmp_path: Path, paths: list[str]) -> None:
    _replace_files(fake, *paths)
    with pytest.raises(mvprune.UnsafeArtifact, match="refused"):
        client.download("j1", tmp_path / "deep" / "out")
    assert list(tmp_path.iterdir()) == []
    assert "ReadFile" not in fake.requests


@pytest.mark.parametrize("change", ["no manifest", "other manifest", "no digest"])
def test_an_artifact_that_cannot_be_verified_is_refused(
    fake: Fake, client: Client, name: str, tmp_path: Path, change: str
) -> None:
    artifact = fake.answers["GetArtifact"](None, None)
    match change:
        case "no manifest":
            del artifact.files[0]
        case "other manifest":
            artifact.files[0].sha256 = "1" * 64
        case "no digest":
            artifact.files[1].sha256 = ""
    with pytest.raises(mvprune.IntegrityError, match="refused"):
        client.download("j1", tmp_path / "out")


def test_a_job_without_an_artifact(fake: Fake, client: Client, tmp_path: Path) -> None:
    fake.answers["GetJob"] = [
        lambda request, context: job("RUNNING"),
        lambda request, context: job("FAILED"),
        lambda request, context: job("CANCELLED"),
    ]
    for error in (mvprune.FailedPrecondition, mvprune.JobFailed, mvprune.JobCancelled):
        with pytest.raises(error):
            client.download("j1", tmp_path / "out")


def test_a_folder_that_cannot_be_made(client: Client, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(mvprune.DownloadError, match="Not a directory"):
        client.download("j1", tmp_path / "file" / "out")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(mvprune.DownloadError, match="loop/out: its symbolic links lead in a circle"):
        client.download("j1", tmp_path / "loop" / "out")
    with pytest.raises(mvprune.DownloadError, match="loop: its symbolic links lead in a circle"):
        check_destination(tmp_path / "loop")
    if Path("/proc/self").exists():  # where root gets "no such file", everybody else no permission
        with pytest.raises(mvprune.DownloadError, match=r"cannot be made|Permission denied"):
            client.download("j1", "/proc/mvprune")


def test_a_second_download_waits_for_the_first_and_verifies(
    fake: Fake, client: Client, name: str, tmp_path: Path
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    read = fake.answers["ReadFile"]

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        reached.set()
        go_on.wait(PATIENCE)
        yield from read(request, context)

    fake.answers["ReadFile"] = answer
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.download, name, tmp_path / "out")
        assert reached.wait(PATIENCE)
        second = pool.submit(client.download, name, tmp_path / "out")
        go_on.set()
        assert first.result() == second.result() == tmp_path / "out"
    paths = [request.path for request in fake.requests["ReadFile"]]
    assert sorted(set(paths)) == sorted(paths)  # nothing was fetched twice
    assert _content(tmp_path / "out") == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@dataclass
class Store:
    """An HTTP store.

    Attributes:
        ranges: the Range header of each request, "" without one.
        cut_at: the first answer to a file ends after so many bytes; 0: it does not.
        honours_range: whether it answers 206.
        refusals: how many requests are answered 403 first.
    """

    url: str = ""
    ranges: list[tuple[str, str]] = field(default_factory=list)
    cut_at: int = 0
    honours_range: bool = True
    refusals: int = 0


@pytest.fixture
def store(fake: Fake, name: str) -> Iterator[Store]:
    """Serves FILES; the server gives its URLs."""
    state = Store()
    content: dict[str, bytes] = {}
    for path in [*FILES, "manifest.json"]:
        request = artifact_pb2.ReadFileRequest(path=path)
        content[path] = b"".join(chunk.data for chunk in fake.answers["ReadFile"](request, None))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, wanted = self.path[1:].partition("?")[0], self.headers.get("Range", "")
            state.ranges.append((path, wanted))
            if state.refusals:
                state.refusals -= 1
                self.send_error(403, "expired")
                return
            data, start = content[path], 0
            if wanted and state.honours_range:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = len(data)
            if state.cut_at and len(data) > state.cut_at:
                end, state.cut_at = state.cut_at, 0
            self.wfile.write(data[start:end])

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"

    def urls(request: Any, context: grpc.ServicerContext) -> Any:
        number = len(fake.requests["GenerateDownloadUrls"])
        return artifact_pb2.GenerateDownloadUrlsResponse(
            urls=[{"path": path, "url": f"{state.url}/{path}?signature={number}"} for path in request.paths]
        )

    fake.answers["GenerateDownloadUrls"] = urls
    fake.answers["ReadFile"] = lambda request, context: refuse(context, grpc.StatusCode.INTERNAL, "not asked for")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("honours_range", [True, False])
def test_download_by_http_with_a_cut(client: Client, store: Store, tmp_path: Path, honours_range: bool) -> None:
    store.cut_at, store.honours_range = 3000, honours_range
    client.download("j1", tmp_path / "out")
    assert _content(tmp_path / "out") == FILES
    assert [wanted for path, wanted in store.ranges if path == "weights.safetensors"] == ["", "bytes=3000-"]


def test_an_expired_url_is_asked_for_again(fake: Fake, client: Client, store: Store, tmp_path: Path) -> None:
    store.refusals = 1
    client.download("j1", tmp_path / "out")
    assert _content(tmp_path / "out") == FILES
    everything, again = [list(request.paths) for request in fake.requests["GenerateDownloadUrls"]]
    assert set(everything) == {*FILES, "manifest.json"}
    assert len(again) == 1


def test_a_store_that_refuses_is_named(client: Client, store: Store, tmp_path: Path) -> None:
    store.refusals = 1000
    with pytest.raises(
        mvprune.DownloadError, match=r"(json|tensors|txt): the store does not answer: HTTP Error 403: expired"
    ):
        client.download("j1", tmp_path / "out")


def test_only_http_urls_are_opened(fake: Fake, client: Client, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    fake.answers["GenerateDownloadUrls"] = lambda request, context: artifact_pb2.GenerateDownloadUrlsResponse(
        urls=[{"path": path, "url": secret.as_uri()} for path in request.paths]
    )
    with pytest.raises(mvprune.DownloadError, match="must be http or https, got 'file'"):
        client.download("j1", tmp_path / "out")


def test_a_server_that_gives_too_few_urls(fake: Fake, client: Client, name: str, tmp_path: Path) -> None:
    fake.answers["GenerateDownloadUrls"] = lambda request, context: artifact_pb2.GenerateDownloadUrlsResponse(
        urls=[{"path": request.paths[0], "url": "http://127.0.0.1:9/x"}]
    )
    with pytest.raises(mvprune.DownloadError, match="gives no URL for"):
        client.download("j1", tmp_path / "out")
