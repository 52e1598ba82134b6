"""A person's hands at one browser window: pages, commands, menus, dialogs, themes, cells; each the same way everywhere.

JupyterLab takes away what one is about to click: its palette closes when the focus moves or any command runs, also one
that nobody here asked for, and a menu with it. So whoever acts here looks whether it has worked, and else begins again;
what must not happen twice is found and clicked within one turn of the page, where nothing can come between.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as Waited

from edt_sdk.testing import LocalServer
from tests.browser.patience import until

ROOT = Path(__file__).parents[2]
PATIENCE = 180_000  # a limit for what hangs, on a machine with much else to do
AGAIN = 3_000  # milliseconds after which something is not there because it was closed, not because it is slow
# What slides or fades in has arrived; what turns for ever is not waited for.
STILL = """() => Promise.all(document.getAnimations()
    .filter(one => one.effect.getComputedTiming().endTime < 2000)
    .map(one => one.finished.catch(() => null)))"""
# Whether the command was run: with it, and in the same turn, the palette goes.
CHOOSE = """label => {
    const item = [...document.querySelectorAll('.lm-CommandPalette-item')].find(each =>
        each.checkVisibility() && each.querySelector('.lm-CommandPalette-itemLabel')?.textContent === label);
    item?.click();
    return item !== undefined && !item.checkVisibility();
}"""

# Whether the notebook on the screen is connected to its kernel.
CONNECTED = """() => [...(window.jupyterapp?.shell.widgets('main') ?? [])].some(({ isVisible, sessionContext }) =>
    isVisible && sessionContext?.isReady && sessionContext.session?.kernel?.connectionStatus === 'connected')"""

# Close every document and page of ours. Refused where something would stay as the test before has left it: a notebook
# that is closed while its kernel starts leaves a connection to it, which keeps the widgets' messages from the next one.
CLOSE_ALL = """async () => {
    const open = [...document.querySelectorAll('.jp-Dialog, .lm-Menu, .lm-CommandPalette, .Toastify__toast')];
    if (!window.jupyterapp || !window.jupyterEdt || document.querySelector('.jp-edt-panel, .jp-mod-dirty')) {
        return false;
    }
    if (open.some(each => each.checkVisibility())) { return false; }
    const documents = [...window.jupyterapp.shell.widgets('main')];
    if (documents.some(({ sessionContext }) => sessionContext?.isReady === false)) { return false; }
    for (const each of documents) { each.dispose(); }
    await new Promise(done => setTimeout(done));
    return true;
}"""

# As a press elsewhere does; Escape closes a menu only while it has the focus.
CLOSE_MENUS = "() => { document.dispatchEvent(new PointerEvent('pointerdown', { clientX: -1, clientY: -1 })); }"


def pictures_folder() -> Path | None:
    """The folder that EDT_SCREENSHOTS names, relative to the repository; None where no pictures are asked for."""
    named = os.environ.get("EDT_SCREENSHOTS")
    if not named:
        return None
    (ROOT / named).mkdir(parents=True, exist_ok=True)
    return ROOT / named


class Screen:
    """A browser window at one server."""

    def __init__(self, page: Page, server: LocalServer) -> None:
        self.page = page
        self.server = server

    def open(self, path: str = "lab") -> Page:
        """Open a page of the server (logging in on the way) and wait until Jupyter has put everything in its place.

        Where JupyterLab is open already and looks as after a load, its documents are closed instead: a load takes four
        seconds of a processor.
        """
        lab, _, document = path.split("?")[0].partition("/tree/")
        if lab == "lab" and self.page.url.startswith(f"{self.server.url}lab") and self.page.evaluate(CLOSE_ALL):
            if document:
                self.run("docmanager:open", path=document)
            self.page.wait_for_selector(".jp-NotebookPanel" if document else ".jp-Launcher", timeout=PATIENCE)
            return self.page
        sign = "&" if "?" in path else "?"
        # Without what an earlier test had open.
        self.page.goto(f"{self.server.url}{path}{sign}reset&token={self.server.token}")
        self.settled()
        if path == "lab":
            self.page.wait_for_selector(".jp-Launcher", timeout=PATIENCE)
        return self.page

    def settled(self) -> None:
        """Wait until Jupyter has put everything in its place."""
        self.page.wait_for_selector("#jp-main-content-panel, #main-panel, .jp-NotebookPanel", timeout=PATIENCE)
        self.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=PATIENCE)
        self.page.wait_for_function("() => !document.querySelector('#jupyterlab-splash')", timeout=PATIENCE)

    def panel(self) -> None:
        """Show the side panel."""
        if not self.page.locator(".jp-edt-panel").is_visible():
            self.page.get_by_role("tab", name="Elastic training").click()
        self.page.wait_for_selector(".jp-edt-panel", timeout=PATIENCE)

    # --- commands -----------------------------------------------------------------------------------------------------

    def run(self, command: str, **args: object) -> None:
        """Run a command by its name, as a button of ours would; ends when the command has."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => null)", [command, args]
        )

    def palette(self, words: str) -> None:
        """Open the command palette by its keys and type."""
        until(self.page, lambda: self._typed(words), "the palette takes what is typed")

    def command(self, label: str) -> None:
        """Run the command with exactly this label from the palette, once."""
        until(self.page, lambda: self._chosen(label), f"“{label}” is chosen in the palette")

    def command_by_keys(self, label: str, shows: Locator) -> None:
        """Run a command from the palette by keys alone; `shows` is what is to be seen then."""
        active = self.page.locator(".lm-CommandPalette-item.lm-mod-active .lm-CommandPalette-itemLabel")

        def entered() -> bool:
            self.palette(label)
            try:
                expect(active).to_have_text(label, timeout=AGAIN)
                self.page.keyboard.press("Enter")
                expect(shows).to_be_visible(timeout=AGAIN)
            except AssertionError:
                return False
            return True

        until(self.page, entered, f"“{label}” shows what it is to show")

    def _typed(self, words: str) -> bool:
        box = self.page.locator(".lm-CommandPalette-input:visible")
        try:
            if not box.count():  # its keys are known some time after the page is there
                self.page.keyboard.press("Control+Shift+C")
                box.wait_for(timeout=AGAIN / 6)
            box.fill(words, timeout=AGAIN)
        except Waited:
            return False
        return True

    def _chosen(self, label: str) -> bool:
        self.palette(label)
        with suppress(Waited):  # closed: nothing is chosen either
            self._labelled(".lm-CommandPalette-item", label).first.wait_for(timeout=AGAIN)
        return bool(self.page.evaluate(CHOOSE, label))

    # --- menus and dialogs --------------------------------------------------------------------------------------------

    def menu(self, name: str, *entries: str) -> None:
        """Choose in a menu of the menu bar; of several entries all but the last have a menu of their own."""
        bar = self._labelled(".lm-MenuBar-item", name)
        until(self.page, lambda: self._picked(bar.click, entries), f"{name} → {' → '.join(entries)} is chosen")

    def context_menu(self, of: Locator, entry: str) -> None:
        """Choose in the menu of a right click."""
        until(self.page, lambda: self._picked(lambda: of.click(button="right"), (entry,)), f"{entry} is chosen")

    def _picked(self, open_it: Callable[[], None], entries: tuple[str, ...]) -> bool:
        """Whether the entry took the click; a menu goes when one does."""
        self.page.evaluate(CLOSE_MENUS)
        open_it()
        try:
            for entry in entries[:-1]:
                self._labelled(".lm-Menu-item", entry).hover(timeout=AGAIN)
            self._labelled(".lm-Menu-item", entries[-1]).click(timeout=AGAIN)
        except Waited:
            return False
        return self.page.locator(".lm-Menu").count() == 0

    def answer(self, button: str, *, says: str | re.Pattern[str] = "") -> None:
        """Press a button of the dialog that says this, and see it go; the same text may be said again afterwards."""
        dialog = self.page.get_by_role("dialog").filter(has_text=says)
        asked = dialog.element_handle(timeout=PATIENCE)
        written = dialog.locator("button", has_text=re.compile(rf"^\s*{re.escape(button)}\s*$"))
        # To a screen reader some of JupyterLab's say more than what is written on them, or that there is only a cross.
        dialog.get_by_role("button", name=button, exact=True).or_(written).first.click()
        asked.wait_for_element_state("hidden", timeout=PATIENCE)

    def _labelled(self, items: str, label: str) -> Locator:
        """What looks like this and has exactly this label."""
        return self.page.locator(items).filter(
            has=self.page.locator(f"{items}Label", has_text=re.compile(f"^{re.escape(label)}$"))
        )

    # --- looks --------------------------------------------------------------------------------------------------------

    def dark(self) -> None:
        """Choose the dark theme as a person does."""
        self.theme("Dark")

    def theme(self, name: str) -> None:
        """Dark or Light; kept by the server."""
        self.command(f"Use Theme: JupyterLab {name}")
        self.page.wait_for_selector(f"body[data-jp-theme-light={str(name == 'Light').lower()}]", state="attached")

    def shot(self, name: str) -> None:
        """Keep what is to be seen as <name>.png, when that is asked for."""
        assert re.fullmatch(r"[a-z0-9-]+", name), name
        folder = pictures_folder()
        if folder is not None:
            self.page.evaluate(STILL)
            self.page.screenshot(path=folder / f"{name}.png")

    # --- notebooks ----------------------------------------------------------------------------------------------------

    def run_cell(self, number: int = 0) -> None:
        """Run a code cell that has not been run yet, with the keyboard, once its notebook has a kernel.

        While a notebook still looks for its kernel, JupyterLab answers the keys with a second session, or with the
        dialog "Select Kernel", which covers the cell until it is answered.
        """
        self.page.wait_for_function(CONNECTED, timeout=PATIENCE)
        cell = self.page.locator(".jp-NotebookPanel:visible .jp-CodeCell").nth(number)
        until(self.page, lambda: self._sent(cell), f"cell {number} is run")

    def type_cell(self, number: int, source: str) -> None:
        """Replace what is in a code cell."""
        editor = self.page.locator(".jp-NotebookPanel:visible .jp-CodeCell").nth(number).locator(".cm-content")
        editor.fill(source)
        expect(editor).to_contain_text(source.splitlines()[-1].strip())

    def clear_output(self) -> None:
        """Clear the output of the active notebook's first cell; a menu of the right click may be covered."""
        self.page.locator(".jp-NotebookPanel:visible .jp-CodeCell .cm-content").first.focus()
        self.run("notebook:clear-cell-output")

    def save(self) -> None:
        """Save the notebook and see that it is."""
        self.page.keyboard.press("Control+s")
        expect(self.page.locator(".jp-mod-dirty")).to_have_count(0)

    def _sent(self, cell: Locator) -> bool:
        """Press the keys and return whether the cell went to the kernel."""
        cell.locator(".cm-content").click()
        if not cell.evaluate("cell => cell.contains(document.activeElement)"):
            return False  # the notebook, ready at last, has put the focus elsewhere
        self.page.keyboard.press("Control+Enter")
        try:
            expect(cell.locator(".jp-InputPrompt")).to_have_text(re.compile(r"[*\d]"), timeout=AGAIN)
        except AssertionError:
            return False
        return True
