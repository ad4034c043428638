"""An operator's token that the server reads from a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mvprune_service import ids
from mvprune_service.api.access.auth import BadOperatorToken, accept_operator, digest
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings
from mvprune_service.db import tokens
from mvprune_service.db.engine.database import Database


async def test_an_operator_token_from_a_file_is_accepted(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "token"
    secret = f"mvp_helm-a1_{'x' * 43}"
    file.write_text(f"{secret}\n")
    await asyncio.gather(*(accept_operator(db, file) for _ in range(3)))  # replicas start at the same time
    row = await db.read(tokens.with_secret, digest(secret))
    assert row is not None
    assert (row.token_id, row.project, row.scope, row.creator) == ("helm-a1", "-", "ADMIN", "server")
    # One that was revoked stays so: the file is older than the decision.
    await db.write(tokens.revoke, ids.TokenName("-", row.token_id))
    await accept_operator(db, file)
    row = await db.read(tokens.with_secret, digest(secret))
    assert row is not None
    assert row.revoke_us is not None
    file.write_text(f"mvp_helm-a1_{'y' * 43}")
    with pytest.raises(BadOperatorToken, match=r"holds the ID 'helm-a1', which another token has; choose another"):
        await accept_operator(db, file)


@pytest.mark.parametrize("text", ["s3cr3t", "mvp_x_short", f"mvp_X_{'s3cr3t' * 9}", f"mvp_x_{'s3cr3t' * 40}"])
async def test_a_file_without_an_operator_token_is_refused(db: Database, tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(BadOperatorToken, match=r"--operator-token-file .*/token must hold mvp_ID_SECRET") as refused:
        await accept_operator(db, file)
    assert "s3cr3t" not in str(refused.value)


async def test_a_file_that_cannot_be_read_or_is_empty_is_named(db: Database, tmp_path: Path) -> None:
    with pytest.raises(BadOperatorToken, match=r"must be a file that can be read, got '.*/none'"):
        await accept_operator(db, tmp_path / "none")
    (tmp_path / "none").touch()
    with pytest.raises(BadOperatorToken, match=r"must be a file with one line, got '.*/none' with none"):
        await accept_operator(db, tmp_path / "none")


async def test_a_file_from_windows_is_read(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbf" + f"mvp_x_{'a' * 32}\r\n".encode())
    await accept_operator(db, file)
    assert await db.read(tokens.with_secret, digest(f"mvp_x_{'a' * 32}")) is not None


async def test_a_server_with_a_bad_file_does_not_start(tmp_path: Path) -> None:
    address = "127.0.0.1:0"
    settings = Settings(
        home=tmp_path / "home",
        address=address,
        worker_address=address,
        executor="local",
        auth="required",
        operator_token_file=tmp_path / "none",
    )
    with pytest.raises(StartError, match=r"--operator-token-file must be a file that can be read, got .*/none"):
        async with Service(settings):
            pass
    (tmp_path / "none").write_text(f"mvp_x_{'a' * 32}\n")
    async with Service(settings):
        assert not (settings.home / "operator-token").exists()
