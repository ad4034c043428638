"""Runs are lit wherever a page shows them, tables are filtered, and the page of a sweep is live while it descends."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.conftest import server_path
from tests.unit.console.browser.conftest import World

from mvprune import SearchStrategy

pytestmark = pytest.mark.slow


def test_a_run_is_lit_in_all_plots_and_tables(world: World) -> None:
    sweep = world.sweep()
    with world.page(f"/projects/default/sweeps/{sweep}") as page:
        lit = page.locator(".lit")
        expect(page.locator(".plots path[data-run='1']").first).to_be_visible()
        expect(lit).to_have_count(0)
        row = page.get_by_role("region", name="Points", exact=True).locator("tr[data-run='1']")
        for light in (row.hover, page.get_by_label("Compare point 1").focus):
            page.mouse.move(1, 1)
            light()
            expect(page.locator(".plots path[data-run='1'].lit").first).to_be_visible()
            expect(page.get_by_role("region", name="The best points").locator(".lit")).to_have_count(1)
            expect(row).to_have_class("lit")
            assert set(lit.evaluate_all("all => all.map(one => one.dataset.run)")) == {"1"}
        page.get_by_label("Compare point 1").blur()
        expect(lit).to_have_count(0)
        page.locator(".plots path[data-run='2']").first.hover()
        expect(page.locator("tr[data-run='2'].lit")).to_have_count(2)
        page.get_by_label("Compare point 1").check()
        page.get_by_label("Compare point 2").check()
        page.get_by_role("button", name="Compare the chosen points").click()
        page.get_by_role("region", name="Parameters that differ").locator("td").first.hover()
        first = page.locator("th[data-run]").first.get_attribute("data-run")
        shown = page.locator(f"[data-run='{first}']")
        expect(page.locator(".lit")).to_have_count(shown.count())
        page.mouse.move(1, 1)
        page.locator("th a").first.focus()
        expect(page.locator(".lit")).to_have_count(shown.count())
        words = page.locator("[data-rows]").first
        words.get_by_role("searchbox").fill("latency RATIO")
        table = page.get_by_role("region", name="Results").locator("tbody tr")
        assert set(table.locator("visible=true").locator("th").all_inner_texts()) == {
            "latency_ratio",
            "int8_latency_ratio",
        }
        expect(words.get_by_role("status")).to_have_text(f"2 of {table.count()}")
    assert world.problems == []


def test_the_page_of_a_sweep_is_live_while_it_descends(world: World) -> None:
    data = {"train": server_path(world.data.train), "validation": server_path(world.data.validation)}
    search = SearchStrategy(way="descent", min_density=0.4)
    options = {"method": "obert", "max_steps": 120, "batch_size": 1, "cpus": 0.1, **data}
    sweep = world.client.sweep(model="bert-base-uncased", max_loss=50.0, strategy=search, **options)
    seen: list[int] = []
    with world.page(f"/projects/default/sweeps/{sweep.id}") as page:
        rows = page.get_by_role("region", name="Points", exact=True).locator("tbody tr")
        expect(page.locator("#live")).to_have_text("live")
        while not sweep.refresh().state.is_terminal:
            there = len([*sweep.points()])
            page.wait_for_function(
                "least => document.querySelectorAll('tr[data-run] [type=checkbox]').length >= least",
                arg=max(1, there - 1),
            )
            seen.append(rows.count())
            page.wait_for_timeout(100)  # a point takes a second
        expect(page.locator(".lead .state")).to_have_text("SUCCEEDED", timeout=20_000)
        expect(page.get_by_text("mvpctl sweep download")).to_be_visible()
        assert seen == sorted(seen)
        assert len(set(seen)) > 2  # points came one after another
    assert world.problems == []
