"""Tokens in time: how long what was read is believed, when a use is written, how often one may ask."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.service.conftest import Jobs, TestClock
from tests.unit.service.serving import serving
from tests.waiting import PATIENCE, until_seen

from mvprune.v1 import admin_pb2, job_pb2, job_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.auth import OPERATOR_TOKEN_FILE, Authenticator, digest, ensure_operator, new_secret
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.peers import host_of
from mvprune_service.api.access.principal import LOCAL, Principal, Scope, current_principal
from mvprune_service.api.access.streams import Streams
from mvprune_service.api.messages.lists import TOKEN_LIST
from mvprune_service.db import lifecycle, tokens
from mvprune_service.db.engine.database import Database, Tx

ALL = TOKEN_LIST.asked(admin_pb2.ListTokensRequest()).page


class Call:
    """What a servicer's context tells of a caller."""

    def __init__(self, header: str | None, peer: str = "ipv4:10.0.0.1:5000") -> None:
        self._header = header
        self._peer = peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._header is None else (("authorization", self._header),)

    def peer(self) -> str:
        return self._peer


class Reads:
    """A database that counts how often it is asked for a token."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.count = 0

    async def look_up(self, *args: Any) -> Any:
        self.count += 1
        return await self._db.look_up(*args)

    async def write(self, *args: Any) -> Any:
        return await self._db.write(*args)


@pytest.fixture
def reads(db: Database) -> Reads:
    return Reads(db)


@pytest.fixture
def authenticator(reads: Reads, clock: TestClock) -> Authenticator:
    return Authenticator(reads, clock)  # type: ignore[arg-type]


async def make(db: Database, scope: str = "READ", expire_us: int | None = None) -> tuple[ids.TokenName, str]:
    name = ids.TokenName("p", ids.new_token_id())
    secret = new_secret(name.token)
    options = {"display_name": "", "creator": "test", "expire_us": expire_us}
    await db.write(tokens.create, name, secret_sha256=digest(secret), scope=scope, **options)
    return name, secret


async def reason_of(authenticator: Authenticator, call: Call) -> str:
    with pytest.raises(ApiError) as caught:
        await authenticator.principal(call)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    return caught.value.reason


async def test_a_token_is_who_it_was_made_for(db: Database, authenticator: Authenticator) -> None:
    name, secret = await make(db, "SUBMIT")
    found = await authenticator.principal(Call(f"Bearer {secret}"))
    assert found == Principal(name.token, "p", Scope.SUBMIT, since_us=found.since_us)
    assert await authenticator.principal(Call(f"bearer {secret}"))
    await authenticator.close()
    row = (await db.read(tokens.page, "p", ALL))[0]
    assert secret not in str(row)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "mvp_token", "Bearer " + "x" * 201])
async def test_headers_that_hold_no_token(header: str, authenticator: Authenticator, reads: Reads) -> None:
    assert await reason_of(authenticator, Call(header)) == "BAD_TOKEN"
    assert reads.count == 0
    assert await reason_of(authenticator, Call(None)) == "NO_TOKEN"


async def test_a_token_ends_on_time_even_if_it_is_remembered(
    db: Database, authenticator: Authenticator, clock: TestClock
) -> None:
    _, secret = await make(db, expire_us=clock() + 2_000_000)
    await authenticator.principal(Call(f"Bearer {secret}"))
    clock.pass_seconds(2)
    assert await reason_of(authenticator, Call(f"Bearer {secret}")) == "TOKEN_EXPIRED"
    await authenticator.close()


async def test_a_token_revoked_elsewhere_is_known_within_seconds_and_here_at_once(
    db: Database, authenticator: Authenticator, clock: TestClock, reads: Reads
) -> None:
    name, secret = await make(db)
    call = Call(f"Bearer {secret}")
    for _ in range(100):
        await authenticator.principal(call)
    assert reads.count == 1, "it is looked up once"
    await db.write(tokens.revoke, name)
    await authenticator.principal(call)
    clock.pass_seconds(5)
    assert await reason_of(authenticator, call) == "TOKEN_REVOKED"

    other, secret = await make(db)
    await authenticator.principal(Call(f"Bearer {secret}"))
    await db.write(tokens.revoke, other)
    authenticator.forget()
    assert await reason_of(authenticator, Call(f"Bearer {secret}")) == "TOKEN_REVOKED"
    await authenticator.close()


async def test_a_stream_tells_a_revoked_token_nothing_more(db: Database, authenticator: Authenticator) -> None:
    name, secret = await make(db)

    class Revoking(job_pb2_grpc.JobServiceServicer):
        async def WatchJob(self, request: job_pb2.WatchJobRequest, context: Any) -> Any:
            yield job_pb2.WatchJobResponse(sequence=1)
            await db.write(tokens.revoke, name)
            authenticator.forget()
            yield job_pb2.WatchJobResponse(sequence=2)

    calls = Calls(authenticator)
    job_pb2_grpc.add_JobServiceServicer_to_server(Revoking(), calls)
    async with serving(calls) as channel:
        stub: Any = job_pb2_grpc.JobServiceStub(channel)
        metadata = (("authorization", f"Bearer {secret}"),)
        call = stub.WatchJob(job_pb2.WatchJobRequest(name="projects/p/jobs/a"), metadata=metadata, timeout=PATIENCE)
        assert (await call.read()).sequence == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    await authenticator.close()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_has_so_many_streams_open_at_a_time(db: Database, authenticator: Authenticator) -> None:
    class Silent(job_pb2_grpc.JobServiceServicer):
        async def WatchJob(self, request: job_pb2.WatchJobRequest, context: Any) -> Any:
            yield job_pb2.WatchJobResponse(sequence=1)
            await asyncio.sleep(PATIENCE)

    async def sequence(call: Any) -> int:
        """Of the first message; 0 where the stream is one too many."""
        try:
            return int((await call.read()).sequence)
        except grpc.aio.AioRpcError as error:
            if "open streams of a caller must be at most 2" not in str(error.details()):
                raise
            return 0

    calls = Calls(authenticator, streams=Streams(2))
    job_pb2_grpc.add_JobServiceServicer_to_server(Silent(), calls)
    secrets = [(await make(db))[1] for _ in range(2)]
    async with serving(calls) as channel:
        stub: Any = job_pb2_grpc.JobServiceStub(channel)

        def watch(secret: str) -> Any:
            metadata = (("authorization", f"Bearer {secret}"),)
            return stub.WatchJob(job_pb2.WatchJobRequest(name="projects/p/jobs/a"), metadata=metadata, timeout=PATIENCE)

        held = [watch(secrets[0]) for _ in range(2)]
        assert [await sequence(call) for call in held] == [1, 1]
        assert await sequence(watch(secrets[0])) == 0
        assert await sequence(watch(secrets[1])) == 1, "another token has streams of its own"
        held[0].cancel()
        await until_seen(lambda: sequence(watch(secrets[0])), bool, "a place was free again")
    await authenticator.close()


async def test_those_who_come_together_with_one_token_cost_one_read(
    db: Database, authenticator: Authenticator, clock: TestClock, reads: Reads
) -> None:
    async def slowly(*args: Any) -> Any:
        reads.count += 1
        await asyncio.sleep(0)  # as a database that is not in this process
        return await db.read(*args)

    _, secret = await make(db)
    reads.look_up = slowly  # type: ignore[method-assign]
    for count in (1, 2):
        await asyncio.gather(*(authenticator.principal(Call(f"Bearer {secret}")) for _ in range(100)))
        assert reads.count == count
        clock.pass_seconds(6)
    await authenticator.close()


async def test_a_change_of_one_token_makes_no_other_wait(db: Database, authenticator: Authenticator) -> None:
    secrets = [(await make(db))[1] for _ in range(60)]
    for start in (0, 30):
        for secret in secrets[start : start + 30]:
            await authenticator.principal(Call(f"Bearer {secret}", f"ipv4:10.0.{start}.1:1"))
    authenticator.forget()
    for secret in secrets:  # more than one address may guess at once
        await authenticator.principal(Call(f"Bearer {secret}"))
    await authenticator.close()


async def test_the_last_use_is_written_at_most_once_a_minute(
    db: Database, authenticator: Authenticator, clock: TestClock
) -> None:
    _, secret = await make(db)
    seen = []
    for _ in range(13):
        await authenticator.principal(Call(f"Bearer {secret}"))
        await authenticator.close()
        (row,) = await db.read(tokens.page, "p", ALL)
        seen.append(row.last_use_us)
        clock.pass_seconds(10)
    assert len(set(seen)) == 3
    assert seen[0] == seen[5] < seen[6] == seen[11] < seen[12]


async def test_a_use_that_cannot_be_written_fails_no_call(
    db: Database, authenticator: Authenticator, reads: Reads, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*args: Any) -> Any:
        raise OSError("away")

    _, secret = await make(db)
    reads.write = away  # type: ignore[method-assign]
    await authenticator.principal(Call(f"Bearer {secret}"))
    await authenticator.close()
    assert "was not noted: OSError" in caplog.text


def guess(number: int, host: str = "10.0.0.1") -> Call:
    return Call(f"Bearer guess{number}", f"ipv4:{host}:{5000 + number}")


async def test_guessing_is_slow(authenticator: Authenticator, clock: TestClock, reads: Reads) -> None:
    for number in range(50):
        assert await reason_of(authenticator, guess(number)) == "BAD_TOKEN"
    with pytest.raises(ApiError) as caught:
        await authenticator.principal(guess(50))
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reads.count == 51, "it was looked up all the same: it might have been good"
    assert await reason_of(authenticator, guess(1)) == "BAD_TOKEN", "what is remembered costs nothing"
    assert await reason_of(authenticator, guess(51, "10.0.0.2")) == "BAD_TOKEN", "others are not made to wait"
    clock.pass_seconds(0.2)
    assert await reason_of(authenticator, guess(52)) == "BAD_TOKEN"


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"])
async def test_unknown_tokens_lock_out_no_good_one(host: str, db: Database, authenticator: Authenticator) -> None:
    """A good one that is not remembered yet, from the address of the flood or another, while the flood goes on."""
    secrets = [(await make(db))[1] for _ in range(20)]
    flood = [asyncio.create_task(authenticator.principal(guess(number))) for number in range(1_000)]
    for secret in secrets:
        await asyncio.wait_for(authenticator.principal(Call(f"Bearer {secret}", f"ipv4:{host}:1")), PATIENCE)
    found = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(error) for error in found} == {ApiError}
    await authenticator.close()


async def test_look_ups_for_an_address_that_floods_are_few_at_a_time(
    db: Database, authenticator: Authenticator, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = most = 0
    look_up = reads.look_up

    async def slowly(*args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return await look_up(*args)

    reads.look_up = slowly  # type: ignore[method-assign]
    monkeypatch.setattr("mvprune_service.api.access.auth._SLOW_WAITING", 100)
    calls = (authenticator.principal(guess(number)) for number in range(400))
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert most <= 52, "a burst, and two at a time"
    refused = [str(error) for error in found if "come from this address; try again later" in str(error)]
    assert len(refused) == 400 - 50 - 100, "what would wait behind many is refused at once"
    assert not authenticator._asked
    assert authenticator._waiting == 0


async def test_what_is_remembered_is_bounded_and_guesses_displace_no_good_token(
    db: Database, authenticator: Authenticator, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mvprune_service.api.access.auth._REMEMBERED", 30)
    _, secret = await make(db)
    good = Call(f"Bearer {secret}")
    await authenticator.principal(good)
    for number in range(100):
        await reason_of(authenticator, guess(number, f"10.0.{number}.1"))
    assert len(authenticator._missed) == 30
    count = reads.count
    await authenticator.principal(good)
    assert reads.count == count
    await authenticator.close()


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:5000", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2::9%5D:1", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", "10.0.0.1"),
        ("unix:", "unix:"),
        ("ipv4:nonsense", ""),
    ],
)
def test_an_address_is_a_callers_whatever_its_port(peer: str, host: str) -> None:
    assert host_of(peer) == host


# The operator's token


async def test_the_first_operator_token_is_made_once(db: Database, clock: TestClock, tmp_path: Path) -> None:
    file = tmp_path / OPERATOR_TOKEN_FILE
    await ensure_operator(db, tmp_path, clock)
    secret = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    row = await db.read(tokens.with_secret, digest(secret))
    assert row is not None
    assert (row.project, row.scope, row.creator) == ("-", "ADMIN", "server")
    await ensure_operator(db, tmp_path, clock)
    assert file.read_text().strip() == secret
    # Revoked, there would be no way in: the next start makes another.
    await db.write(tokens.revoke, ids.TokenName("-", row.token_id))
    await ensure_operator(db, tmp_path, clock)
    assert file.read_text().strip() != secret
    assert not file.with_suffix(".tmp").exists()


def test_without_a_call_it_is_the_machines_own_user() -> None:
    assert current_principal() == LOCAL
    assert LOCAL.is_operator


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret("token-a") for _ in range(1000)}
    assert len(made) == 1000
    assert {len(secret) for secret in made} == {len("mvp_token-a_") + 43}


async def test_a_new_job_of_an_old_name_shares_no_credential_with_it(db: Database, jobs: Jobs) -> None:
    await jobs.create("a")
    old = (await jobs.get("a")).fencing_token
    await jobs.cancel("a")

    def remove(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, ids.JobName("p", "a"))
        assert job is not None
        lifecycle.remove(tx, job, etag="")

    await db.write(remove)
    await jobs.create("a")
    # Credentials are made of the attempt's name and its token, which is one more for each attempt.
    assert (await jobs.get("a")).fencing_token > old + 1
