"""Models and data that a real browser sends, through interruptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect
from tests.bert_folder import write_bert
from tests.unit.console.browser.conftest import World

pytestmark = pytest.mark.slow
CHUNK = re.compile(r"/uploads/\w{64}/chunks/")
REFERENCE = re.compile(r"upload:\w{64}/")


def choose_folder(page: Page, folder: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Send a folder for model").click()
    chooser.value.set_files(folder)


def test_a_models_folder_goes_on_after_a_lost_connection_and_after_a_reload(world: World, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "my-model", 20 << 20)  # three chunks, and those of small files
    (folder / "notes.pkl").write_bytes(b"x")
    sent: list[str] = []
    lost: list[str] = []

    def lose(route: Route) -> None:
        """Some arrive, then the connection is lost."""
        if len(sent) >= 2:
            lost.append(route.request.url)
            route.abort("connectionreset")
        else:
            sent.append(route.request.url)
            route.continue_()

    with world.page("/projects/default/submit") as page:
        page.route(CHUNK, lose)
        choose_folder(page, folder)
        status = page.get_by_role("status")
        expect(status.filter(has_text="the connection is lost; it goes on by itself")).to_be_visible(timeout=120_000)
        page.reload()
        page.unroute(CHUNK)
        expect(status.filter(has_text="The upload of my-model was interrupted at")).to_be_visible()
        again: list[str] = []
        page.on("request", lambda request: again.append(request.url) if CHUNK.search(request.url) else None)
        choose_folder(page, folder)
        expect(page.get_by_label("model", exact=True)).to_have_value(REFERENCE, timeout=120_000)
        expect(status.filter(has_text="not sent, as no part of a model: notes.pkl")).to_be_visible()
        assert lost
        assert not set(sent) & set(again)  # what had arrived is not sent again
        page.reload()
        expect(status.filter(has_text="was interrupted")).to_have_count(0)
        fails = [True, True]

        def fail(route: Route) -> None:
            route.abort("connectionreset") if fails and fails.pop() else route.continue_()

        page.route(CHUNK, fail)
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nnew\nwords\n")
        choose_folder(page, folder)
        expect(page.get_by_label("model", exact=True)).to_have_value(REFERENCE, timeout=120_000)
        assert not fails
    names = {one.display_name for one in world.client.uploads() if one.kind == "model" and one.state == "READY"}
    assert "my-model" in names
    assert world.problems == []


def test_a_file_that_changes_while_it_is_sent_is_refused(world: World, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "changing", 10 << 20)
    weights = folder / "model.safetensors"

    def change(route: Route) -> None:
        weights.write_bytes(weights.read_bytes() + b"x")
        route.continue_()

    with world.page("/projects/default/submit") as page:
        page.route(re.compile("/uploads/begin"), change)
        choose_folder(page, folder)
        expect(page.locator(".problem", has_text="not sent: ")).to_be_visible(timeout=120_000)
        expect(page.get_by_label("model", exact=True)).to_have_value("")
        page.reload()
        page.get_by_role("button", name="Forget it").click()
        page.reload()
        expect(page.get_by_role("status").filter(has_text="was interrupted")).to_have_count(0)


def test_who_is_logged_out_meanwhile_is_told(world: World, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "late")
    with world.page("/projects/default/submit") as page:
        page.context.clear_cookies()
        choose_folder(page, folder)
        expect(page.locator(".problem", has_text="not sent: log in first")).to_be_visible(timeout=120_000)


def test_what_is_dropped_is_sent_and_a_wrong_choice_is_said(world: World, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "dropped")
    with world.page("/projects/default/submit") as page:
        drop(page, "model", folder)
        expect(page.get_by_label("model", exact=True)).to_have_value(re.compile(r"upload:\w{64}/dropped"))
        drop(page, "train", world.data.train)
        expect(page.get_by_label("train", exact=True)).to_have_value(re.compile(r"upload:\w{64}/train.tsv"))
        drop(page, "model", tmp_path / "dropped" / "config.json")
        expect(page.locator(".problem", has_text="not sent: choose one folder")).to_be_visible()
        empty = tmp_path / "nothing"
        empty.mkdir()
        (empty / "a.pkl").write_bytes(b"x")
        drop(page, "model", empty)
        expect(page.locator(".problem", has_text="not sent: nothing has no file of a model")).to_be_visible()
        expect(page.get_by_label("model", exact=True)).to_have_value(re.compile(r"upload:\w{64}/dropped"))
    assert world.problems == []


@pytest.mark.parametrize("scripts", [True, False])
def test_the_page_of_uploads_sends_with_and_without_scripts(world: World, tmp_path: Path, scripts: bool) -> None:
    file = tmp_path / f"data-{scripts}.tsv"
    file.write_text(f"text\tlabel\ngood {scripts}\t1\nbad\t0\n")
    folder = write_bert(tmp_path / f"model-{scripts}")
    with world.page("/projects/default/uploads", java_script_enabled=scripts) as page:
        for label, path in (("A data file", file), ("A model's folder", folder)):
            field = page.get_by_label(label)
            field.set_input_files(path)
            page.locator("form", has=field).get_by_role("button", name="Send").click()
            expect(page.get_by_role("cell", name=path.name, exact=True)).to_be_visible(timeout=15_000)
    assert world.problems == []


def drop(page: Page, field: str, path: Path) -> None:
    """Drops a file or a folder of this machine on a field, as a desktop does."""
    box = page.get_by_label(field, exact=True).bounding_box()
    assert box
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        where = {"x": box["x"] + 5, "y": box["y"] + 5}
        devtools.send("Input.dispatchDragEvent", {"type": kind, **where, "data": data})
