"""A search with thousands of trials on a real server: what it costs the server, and how long people wait for answers.

Every trial is a job: a shell writes a metric and ends, so that nothing else is measured. While the search runs two
clients ask as the page of a search does: for its header five times a second, for a page of 500 trials once, and a third
one asks for Jupyter's own `/api/status` fifty times a second. Afterwards the suggester is asked as the server asks it,
for the values of the trial after the last one. Then a Chromium opens the page of the search in JupyterLab, and parts of
axes are chosen in its parallel coordinates: until the lines are drawn anew, and until the trials are listed below. It
needs Chromium, Playwright and the front end (`make front-end`).

10,000 trials take an hour or more; `--trials` for fewer. Writes `.bench/search_scale.json`; exit code 1 when a target
is missed. The targets are those of 10,000 trials.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hatch_build  # noqa: E402
from benchmarks.report import finish, table  # noqa: E402
from benchmarks.server_load import Measured, clients  # noqa: E402
from benchmarks.spread import Spread  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from edt_sdk import Search, choice, log  # noqa: E402
from edt_sdk.schemas.search.views import TrialState  # noqa: E402
from edt_sdk.testing import LocalServer  # noqa: E402
from edt_server.searching import PastTrial  # noqa: E402
from edt_server.suggestions import Ask, Suggestions  # noqa: E402

SPACE = {"lr": log(1e-4, 1e-1), "width": choice(32, 64, 128)}
COMMAND = """printf '[{"step": 1, "loss": 0.%s}]' "$EDT_TRIAL" > "$RESULT_DIR/val_dict_list.json" """
PAGE = 500
ASKED = 50  # suggestions
WAIT = 180_000  # milliseconds for what hangs
# Seconds, bytes.
HEADER, TRIALS_PAGE, STATUS, SUGGESTION, BRUSH = 0.050, 0.100, 0.050, 0.5, 0.2
MEMORY, STORE = 50 << 20, 30 << 20

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    *("--no-sandbox", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
# Choose halves of the axes by keys, and take the milliseconds to the next frame and to a list of other trials.
BRUSH_IT = """async () => {
    const page = document.querySelector('.jp-edt-search-page'), picture = page.querySelector('.jp-edt-zoomable');
    const listed = () => page.querySelector('tbody')?.textContent ?? '';
    const times = [];
    for (const key of ['ArrowUp', 'Escape', 'ArrowDown', 'ArrowRight', 'ArrowUp', 'Escape', 'ArrowUp', 'ArrowDown']) {
        const before = listed(), begun = performance.now();
        picture.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        const drawn = performance.now() - begun;
        while (['ArrowUp', 'ArrowDown'].includes(key) && listed() === before && performance.now() - begun < 30000) {
            await new Promise(done => setTimeout(done, 5));
        }
        if (key !== 'ArrowRight') { times.push([drawn, performance.now() - begun]); }
    }
    const drawn = page.querySelector('.jp-edt-drawn-canvas').shadowRoot ?? page;
    return [drawn.querySelectorAll('[data-trial]').length, times];
}"""


def searched(folder: Path, trials: int, slots: int) -> dict[str, Any]:
    """Run the search with its clients, and return the figures."""
    with Measured(folder / "server", slots=slots) as server, server.client() as client:
        (folder / "empty").mkdir()
        before = server.memory(), _stored(server.data_dir)
        begun = time.monotonic()
        search = client.search(
            folder / "empty", name="many", framework="PyTorch", command=COMMAND, space=SPACE, metric="loss",
            trials=trials, algorithm="tpe", order="free", progress=False,
        )  # fmt: skip
        path = f"edt/api/searches/{search.id}"
        polls = [(path, "header", 0.2), (f"{path}/trials?limit={PAGE}", "page", 1.0), ("api/status", "status", 0.02)]
        with clients(server, {"poll": polls}) as asked:
            while not search.refresh().view.state.final:
                done = sum(search.view.counts.get(state, 0) for state in ("FINISHED", "FAILED"))
                print(f"\r  {done:,} of {trials:,} trials", end="", file=sys.stderr, flush=True)
                time.sleep(2)
        print(file=sys.stderr)
        figures: dict[str, Any] = {name: Spread.of(times) for name, times in asked["times"].items()}
        figures |= {"seconds": time.monotonic() - begun, "finished": search.view.counts.get("FINISHED", 0)}
        figures |= {"memory": server.memory() - before[0], "store": _stored(server.data_dir) - before[1]}
        figures["suggestion"] = Spread.of(asyncio.run(_suggested(search)))
        figures["search"] = search.id
        return figures


def brushed(root: Path, search: str) -> dict[str, Any]:
    """Open the page of a search that a server left in `root`, and return what choosing parts of it takes."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    hatch_build.copy(root / "front-end" / hatch_build.NAME)
    traits = {"LabApp.extra_labextensions_path": root / "front-end", "LabApp.expose_app_in_browser": True}
    with LocalServer(root, app="lab", traits=traits) as server, sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=list(QUIET))
        page = running.new_page(viewport={"width": 1400, "height": 860})
        page.goto(f"{server.url}lab?token={server.token}", timeout=WAIT)
        page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=WAIT)
        page.evaluate("id => window.jupyterapp.commands.execute('edt:open-search', { id })", search)
        page.locator(".jp-edt-search-page").get_by_role("tab", name="Parallel").click(timeout=WAIT)
        page.wait_for_selector(".jp-edt-search-page [data-axis]", state="attached", timeout=WAIT)
        lines, times = page.evaluate(BRUSH_IT)
        running.close()
    drawn, listed = ([each / 1000 for each in side] for side in zip(*times, strict=True))
    return {"lines": lines, "drawn": Spread.of(drawn), "listed": Spread.of(listed)}


async def _suggested(search: Search) -> list[float]:
    """Return seconds until the values of the next trial are there, the suggester's start not included."""
    spec = search.view.spec
    past = tuple(
        PastTrial(each.number, each.params, TrialState.FINISHED, value=each.value)
        for each in search.trials
        if each.state is TrialState.FINISHED
    )
    suggestions, times = Suggestions(os.environ), []
    try:
        for number in range(len(past), len(past) + ASKED + 1):
            question = Ask(
                search="many", algorithm="tpe", seed=0, space=dict(spec.space), direction=spec.direction,
                numbers=(number,), upto=len(past),
            )  # fmt: skip
            begun = time.perf_counter()
            await suggestions.ask(question, lambda since: past[since:])
            times.append(time.perf_counter() - begun)
    finally:
        await suggestions.close()
    return times[1:]  # the first one starts the process and tells it of all trials


def _stored(folder: Path) -> int:
    """Return the bytes of the store, its log included."""
    return sum(each.stat().st_size for each in folder.glob("edt.sqlite*"))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=4)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="edt-bench-"))
    try:
        found = searched(folder, options.trials, options.slots)
        found |= brushed(folder / "server", found["search"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spreads = {name: each for name, each in found.items() if isinstance(each, Spread)}
    print(table([["answer", "n", "median", "p99", "worst"], *(each.row(name) for name, each in spreads.items())]))
    print(f"  {found['lines']:,} lines in the parallel coordinates")
    print(f"  {found['finished']:,} of {options.trials:,} trials FINISHED in {found['seconds']:.0f} s")
    checks = [
        Check("trials that did not finish", options.trials - found["finished"], 0, "at most"),
        Check("p99 of the header, s", spreads["header"].p99, HEADER, "at most"),
        Check(f"p99 of a page of {PAGE} trials, s", spreads["page"].p99, TRIALS_PAGE, "at most"),
        Check("p99 of Jupyter's own status, s", spreads["status"].p99, STATUS, "at most"),
        Check("p99 of a suggestion, s", spreads["suggestion"].p99, SUGGESTION, "at most"),
        Check("median of a brush until its lines are drawn, s", spreads["drawn"].median, BRUSH, "at most"),
        Check("bytes of memory that the server grew by", found["memory"], MEMORY, "at most"),
        Check("bytes that the store grew by, jobs included", found["store"], STORE, "at most"),
    ]
    plain = {name: asdict(each) for name, each in spreads.items()}
    return finish("search_scale", {**found, **plain, "trials": options.trials}, checks)


if __name__ == "__main__":
    raise SystemExit(main())
