"""A stand-in of the Hugging Face Hub: repositories in memory, behind the few endpoints that huggingface_hub calls."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_write"
_DATE = "2026-01-31T12:00:00.000Z"


@dataclass
class Commit:
    """The files of a repository at a commit."""

    id: str
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    """Branches with their commits, the newest last, and pull requests by number."""

    branches: dict[str, list[Commit]]
    private: bool = False
    license: str = ""
    requests: list[Commit] = field(default_factory=list)

    def at(self, revision: str) -> Commit | None:
        """The commit that a branch, or its own digest, names."""
        if revision in self.branches:
            return self.branches[revision][-1]
        found = (one for commits in self.branches.values() for one in commits if one.id == revision)
        return next(found, None)


@dataclass
class Hub:
    """A running stand-in. `calls` are methods and paths."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are to use it."""
        return {"HF_ENDPOINT": self.address, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}

    def add(self, name: str, folder: Path | None = None, *, license: str = "") -> Repository:
        """A new repository, with the files of a folder."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()} if folder else {}
        made = Repository({"main": [_commit("initial commit", files, "")]}, license=license)
        return self.repositories.setdefault(name, made)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serves one."""
    hub = Hub()

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _commit(title: str, files: dict[str, bytes], parent: str) -> Commit:
    digest = hashlib.sha1((title + parent + os.urandom(4).hex()).encode(), usedforsecurity=False).hexdigest()
    return Commit(digest, title, files)


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self) -> None:
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.served.calls.append(f"{self.command} {path}")
        if path.startswith("/large/"):
            self.served.large[path.removeprefix("/large/")] = body
            return self._send(200, {})
        if self.command == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._send(200, {"errors": [], "warnings": []})
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self._api("/".join(parts[2:4]), parts[4:], query, body)
        name = "/".join(parts[:2]).removesuffix(".git")
        if parts[2:] == ["info", "lfs", "objects", "batch"]:
            return self._batch(json.loads(body))
        return self._file(name, parts[3], "/".join(parts[4:]))

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        if name in self.served.repositories:
            return self._send(409, {"error": "You already created this model repo", "url": f"/{name}"})
        self.served.add(name).private = asked.get("visibility") == "private" or bool(asked.get("private"))
        return self._send(200, {"url": f"{self.served.address}/{name}"})

    def _api(self, name: str, rest: list[str], query: dict[str, list[str]], body: bytes) -> None:
        repository = self.served.repositories.get(name)
        if repository is None:
            return self._send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        what, revision = (rest[0] if rest else "revision"), "/".join(rest[1:2]) or "main"
        if what == "discussions":
            found = [_discussion(name, number, one) for number, one in enumerate(repository.requests, 1)]
            return self._send(200, {"discussions": found, "count": len(found), "start": 0})
        if what == "branch":
            if revision in repository.branches:
                return self._send(409, {"error": "Reference already exists"})
            repository.branches[revision] = [repository.branches["main"][-1]]
            return self._send(200, {})
        commit = repository.at(revision)
        if commit is None:
            return self._send(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        if what == "commits":
            listed = reversed(repository.branches.get(revision, [commit]))
            return self._send(200, [_listed(one) for one in listed])
        if what == "tree":
            found = [
                {"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in commit.files.items()
            ]
            return self._send(200, found)
        if what == "preupload":
            files = [_mode(one["path"]) for one in json.loads(body)["files"]]
            return self._send(200, {"files": files})
        if what == "commit":
            return self._commit(name, repository, revision, query, body)
        card = {"license": repository.license} if repository.license else {}
        siblings = [{"rfilename": path} for path in commit.files]
        return self._send(200, {"id": name, "sha": commit.id, "cardData": card, "siblings": siblings, "tags": []})

    def _commit(
        self, name: str, repository: Repository, revision: str, query: dict[str, list[str]], body: bytes
    ) -> None:
        entries = [json.loads(line) for line in body.splitlines()]
        header = next(one["value"] for one in entries if one["key"] == "header")
        head = repository.branches[revision][-1]
        if header.get("parentCommit") not in (None, head.id):
            return self._send(412, {"error": "A commit has happened since. Please refresh and try again."})
        files = dict(head.files)
        for one in entries:
            value = one["value"]
            if one["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                files[value["path"]] = self.served.large[value["oid"]]
            elif one["key"] == "deletedFile":
                del files[value["path"]]
        made = _commit(header["summary"], files, head.id)
        answer = {"commitUrl": f"{self.served.address}/{name}/commit/{made.id}", "commitOid": made.id}
        if query.get("create_pr") == ["1"]:
            repository.requests.append(made)
            answer["pullRequestUrl"] = f"{self.served.address}/{name}/discussions/{len(repository.requests)}"
        else:
            repository.branches[revision].append(made)
        return self._send(200, answer)

    def _batch(self, asked: dict[str, Any]) -> None:
        upload = {"header": {}}
        objects = [
            {**one, "actions": {"upload": {**upload, "href": f"{self.served.address}/large/{one['oid']}"}}}
            for one in asked["objects"]
            if one["oid"] not in self.served.large
        ]
        return self._send(200, {"transfer": "basic", "objects": objects})

    def _file(self, name: str, revision: str, path: str) -> None:
        repository = self.served.repositories.get(name)
        commit = repository.at(revision) if repository else None
        if commit is None:
            return self._send(404, {}, {"X-Error-Code": "RevisionNotFound" if repository else "RepoNotFound"})
        data = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.id}
        if data is None:
            return self._send(404, {}, {**headers, "X-Error-Code": "EntryNotFound"})
        headers |= {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        return self._send(200, data, headers)

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _mode(path: str) -> dict[str, Any]:
    mode = "lfs" if path.endswith(".safetensors") else "regular"
    return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}


def _listed(commit: Commit) -> dict[str, Any]:
    return {"id": commit.id, "title": commit.title, "message": "", "date": _DATE, "authors": [{"user": "me"}]}


def _discussion(name: str, number: int, commit: Commit) -> dict[str, Any]:
    return {
        **{"num": number, "title": commit.title, "status": "open", "createdAt": _DATE, "isPullRequest": True},
        **{"author": {"name": "me"}, "repo": {"name": name, "type": "model"}},
    }
