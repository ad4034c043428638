"""Submitting by a form, and sending files from a browser."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import server_path
from tests.unit.console.conftest import EVIL, OWN, World, form_token

from mvprune.cli.shared.jobfile import parse
from mvprune.cli.shared.submission import submissions
from mvprune.cli.shared.submit_parser import submit_parser
from mvprune.client.given import command, job_file, value_of
from mvprune.common.exceptions import InvalidArgument
from mvprune.console.sending import place_of
from mvprune.sources.uploads import CHUNK_BYTES
from mvprune.spec.parameters import PARAMETERS

PATH = "/projects/search/submit"
VALUES: dict[str, Any] = {
    **{"model": "bert-base-uncased", "density": 0.03, "task": "sst2", "method": "movement", "max_steps": 3000},
    **{"learning_rate": 3e-5, "max_runtime": 7200.0, "target_bytes": 10_000_000, "gates": ["f1>=80", "bytes<=10MB"]},
    **{"labels": {"team": "search", "kind": "a b"}, "dropout": False, "trim_vocabulary": True, "include": ["*.a.*"]},
    **{"display_name": EVIL, "memory_bytes": 8 << 30, "first_event": 0.5},
}


def test_the_command_and_the_file_say_the_same() -> None:
    argv = shlex.split(command(VALUES))[2:]
    (typed,) = submissions(argv, submit_parser(argv).parse_args(argv))
    given = {name: typed.options[name] for name in VALUES}
    assert given == VALUES
    (document,) = parse("job.yaml", job_file(VALUES), Path())
    assert document.values == VALUES


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("density", "much"),
        ("max_steps", "1.5"),
        ("method", "magic"),
        ("dropout", "maybe"),
        ("max_runtime", "2 hours"),
        ("target_bytes", "2 parsecs"),
        ("labels", "team"),
        ("learning_rate", "nan"),
    ],
)
def test_what_is_typed_wrongly_is_said(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        value_of(PARAMETERS[name], text)


async def test_a_job_is_checked_and_submitted_once(world: World, tmp_path: Path) -> None:
    browser = await world.logged_in("submit")
    again = (await browser.get(PATH, params={"from": world.job})).text
    for name in (name for name, one in PARAMETERS.items() if name not in ("start_from", "request_id")):
        assert f'name="{name}"' in again
    assert 'value="bert-base-uncased"' in again
    assert html.escape(EVIL).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in again
    form = {
        "form_token": await form_token(browser, PATH),
        "request_id": "once",
        **{"model": "bert-base-uncased", "density": "0.1", "method": "magnitude", "max_steps": "9", "batch_size": "1"},
        **{name: server_path(tmp_path / "train.tsv") for name in ("train", "validation")},
    }
    checked = await browser.post(PATH, data={**form, "do": "check"}, headers=OWN)
    assert checked.status_code == 200, checked.text
    assert "valid: keeps 10.0 %" in checked.text
    assert "mvpctl submit --model bert-base-uncased" in checked.text
    done = [await browser.post(PATH, data={**form, "do": "submit"}, headers=OWN) for _ in range(2)]
    assert [one.status_code for one in done] == [303, 303]
    assert done[0].headers["location"] == done[1].headers["location"]
    assert "magnitude" in (await browser.get(done[0].headers["location"])).text


MISTAKES = [
    ({"density": "2"}, "density"),
    ({"density": "x"}, "density"),
    ({"model": "/etc"}, "model"),
    ({"model": "~/models"}, "model"),
    ({"train": "/etc/passwd"}, "train"),
    ({"teacher": "/etc"}, "teacher"),
    ({"mask_from": "./x"}, "mask_from"),
    ({"pruning_start": "0.1", "method": "rigl"}, "pruning_start"),
]


async def test_mistakes_stand_at_their_fields(world: World) -> None:
    browser = await world.logged_in("submit")
    form = {"form_token": await form_token(browser, PATH), "do": "submit", "model": "bert-base-uncased"}
    for wrong, name in MISTAKES:
        answer = await browser.post(PATH, data={**form, "density": "0.1", "task": "sst2", **wrong}, headers=OWN)
        assert answer.status_code == 400, wrong
        part = answer.text[answer.text.index(f'id="p-{name}"') :]
        assert 'aria-invalid="true"' in part[:400], wrong
        assert "Nothing was submitted" in answer.text


@pytest.mark.slow
async def test_a_data_file_becomes_an_upload(world: World) -> None:
    browser = await world.logged_in("submit")
    token = {"form_token": await form_token(browser, PATH)}
    sent = {"file": ("mine.tsv", b"text\tlabel\ngood\t1\nbad\t0\n")}
    uploads = "/projects/search/uploads"
    answer = await browser.post(uploads, data=token, files=sent, headers={**OWN, "accept": "application/json"})
    assert answer.status_code == 200, answer.text
    assert re.fullmatch(r"upload:[0-9a-f]{64}/mine\.tsv", answer.json()["reference"])
    assert "mine.tsv" in (await browser.get(uploads)).text
    digest = answer.json()["reference"].partition(":")[2].partition("/")[0]
    gone = await browser.post(f"{uploads}/{digest}/delete", data=token, headers=OWN)
    assert gone.status_code == 303
    assert "mine.tsv" not in (await browser.get(uploads)).text
    assert (await browser.post(uploads, data=token, headers=OWN, files={"file": ("", b"")})).status_code == 400
    for site, data in ((OWN, {"form_token": "x"}), (OWN, {}), ({}, token)):
        assert (await browser.post(uploads, data=data, files=sent, headers=site)).status_code == 403
    assert (await world.browser().post(uploads, data=token, files=sent, headers=OWN)).status_code == 401
    endless = await browser.post(uploads, content=_endless(), headers={**OWN, "content-type": "multipart/form-data"})
    assert endless.status_code == 411
    large = {**OWN, "content-type": "multipart/form-data; boundary=x", "content-length": str(1 << 50)}
    assert (await browser.post(uploads, content=b"", headers=large)).status_code == 413
    reader = await world.logged_in("read")
    token = {"form_token": _token_of(reader)}
    assert (await reader.post(uploads, data=token, files=sent, headers=OWN)).status_code == 403


@pytest.mark.slow
async def test_an_upload_goes_on_with_the_chunks_that_are_missing(world: World) -> None:
    browser = await world.logged_in("submit")
    token = await form_token(browser, PATH)
    content = b"text\tlabel\n" + b"".join(b"row %09d\t1\n" % number for number in range(600_000))
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    names = [hashlib.sha256(chunk).hexdigest() for chunk in chunks]
    uploads = "/projects/search/uploads"
    form = {"form_token": token, "kind": "data", "name": "mine.tsv"}
    form["files"] = json.dumps([["mine.tsv", len(content), names]])

    async def begin() -> Any:
        answer = await browser.post(f"{uploads}/begin", data=form, headers=OWN)
        assert answer.status_code == 200, answer.text
        return answer.json()

    begun = await begin()
    assert (len(names), begun["missing"]) == (2, names)
    addresses = [f"{uploads}/{begun['digest']}/chunks/{name}" for name in names]
    headers = {**OWN, "x-form-token": token}
    for site, status in ((OWN, 403), ({"x-form-token": token}, 403), ({**OWN, "x-form-token": "x"}, 403)):
        assert (await browser.post(addresses[0], content=chunks[0], headers=site)).status_code == status
    assert (await world.browser().post(addresses[0], content=chunks[0], headers=headers)).status_code == 401
    for content, status in ((chunks[1], 400), (chunks[0][:-1] + b"x", 400), (chunks[0] + b"x", 413)):
        assert (await browser.post(addresses[0], content=content, headers=headers)).status_code == status
    assert (await browser.post(addresses[0], content=chunks[0], headers=headers)).status_code == 204
    assert (await begin())["missing"] == names[1:]  # the page was loaded again
    assert (await browser.post(addresses[1], content=chunks[1], headers=headers)).status_code == 204
    done = await begin()
    assert (done["missing"], done["reference"]) == ([], f"upload:{begun['digest']}/mine.tsv")
    for files in ("", "x", "[1]", '[["a.tsv"]]', '[["a.tsv", "x", []]]', '[["../a.tsv", 0, []]]', "[]"):
        wrong = await browser.post(f"{uploads}/begin", data={**form, "files": files}, headers=OWN)
        assert wrong.status_code == 400, files
    other = await world.logged_in("other")
    headers["x-form-token"] = _token_of(other)
    assert (await other.post(addresses[0], content=chunks[0], headers=headers)).status_code == 403


@pytest.mark.parametrize("name", ["../x", "a/../x", "/etc/x", "a//b", "a/./b", "a\\b", "a\x00b", "", "c:x", "a" * 300])
def test_files_stay_in_their_folder(name: str) -> None:
    with pytest.raises(InvalidArgument):
        place_of(name)


async def _endless() -> Any:
    yield b"x"


def _token_of(browser: httpx.AsyncClient) -> str:
    sessions = browser._transport.app.state.sessions  # type: ignore[attr-defined]
    (name,) = browser.cookies.values()
    return str(sessions.get(name).form_token)
