"""A monitor whose page was reloaded: it is there again, and still notices that nobody looks."""

from __future__ import annotations

from playwright.sync_api import expect

LISTEN = (
    "import time\nfrom edt_sdk.monitor.rounds import ROUNDS\n"
    "while any(each.due < float('inf') for each in ROUNDS.watchers()): time.sleep(0.05)\n'asks for nothing'"
)


def test_after_a_reload_a_cleared_monitor_asks_for_nothing(screen, server, submit, write_notebook):
    job = submit("digits", max_workers=4)
    write_notebook(server, "reloaded.ipynb", f"from edt_sdk import Client\nClient().job({job.id!r}).monitor()", LISTEN)
    screen.open("lab/tree/reloaded.ipynb")
    screen.run_cell()
    first, second = (screen.page.locator(".jp-Cell").nth(at) for at in (0, 1))
    expect(first.locator(".widget-tab")).to_be_visible()
    expect(first.locator(".jp-OutputArea")).to_contain_text("as of 20")
    screen.save()
    screen.page.reload()
    expect(first.locator(".widget-tab")).to_be_visible()
    expect(first.locator(".jp-OutputArea")).to_contain_text("as of 20")
    screen.context_menu(first.locator(".jp-InputPrompt"), "Clear Cell Output")
    expect(first.locator(".widget-tab")).to_have_count(0)
    second.locator(".cm-content").click()
    screen.page.keyboard.press("Control+Enter")
    expect(second.locator(".jp-OutputArea")).to_contain_text("asks for nothing")
