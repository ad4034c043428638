"""An issuer of tokens: a real HTTP server on loopback with keys of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.loopback import QuietHandler, listening

from mvprune_service.config import Settings

CONFIGURATION = "/.well-known/openid-configuration"


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public(kid: str, key: Any, **fields: Any) -> dict[str, Any]:
    """A key of a JWKS."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig", **fields}


def settings(folder: Path, issuers: str) -> Settings:
    """Of a server that takes tokens of these issuers, and reads data from the folder.

    Args:
        issuers: the text of its file of issuers.
    """
    (folder / "issuers.toml").write_text(issuers)
    return Settings(
        home=folder / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        roots=(folder,),
        issuers_file=folder / "issuers.toml",
    )


class Issuer:
    """Attributes:
    url: of it.
    keys: of its JWKS.
    asked: paths of the requests, in their order.
    answers: by path; bytes, or a status.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys = [public("rsa", rsa_key()), public("ec", ec_key())]
        self.asked: list[str] = []
        self.answers: dict[str, bytes | int] = {}

    def answer(self, path: str) -> bytes | int:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == CONFIGURATION:
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}).encode()
        return json.dumps({"keys": self.keys}).encode() if path == "/jwks" else 404

    def post(self, path: str, form: dict[str, str], authorization: str) -> bytes | int:
        """The answer to a form; for tests to replace."""
        return 404

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Those of GitHub, as far as tests need them; None removes one."""
        now = int(time.time())
        given = {
            "iss": self.url,
            "aud": "mvprune",
            "sub": "repo:acme/models:ref:refs/heads/main",
            "iat": now,
            "nbf": now,
            "exp": now + 300,
            "jti": "id-1",
            "repository": "acme/models",
            "environment": "prod",
        }
        return {name: value for name, value in (given | changed).items() if value is not None}

    def token(self, *, kid: str | None = "rsa", key: Any = None, alg: str = "RS256", **changed: Any) -> str:
        """A token."""
        headers = {"kid": kid} if kid else {}
        return jwt.encode(self.claims(**changed), key or rsa_key(), alg, headers)


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer on 127.0.0.1."""
    issuer = Issuer("")

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send(issuer.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.send(issuer.post(self.path, form, self.headers.get("authorization", "")))

        def send(self, answer: bytes | int) -> None:
            self.send_response(answer if isinstance(answer, int) else 200)
            if answer == 302:
                self.send_header("Location", f"{issuer.url}/jwks")
            body = answer if isinstance(answer, bytes) else b""
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Handler) as issuer.url:
        yield issuer
