"""Data sets from one's own machine: a folder, dropped files, an archive; stopped, refused, left alone, in place."""

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.patience import until
from tests.browser.screen import Screen
from tests.packages import packed

DROP = """(zone, files) => {
    const data = new DataTransfer();
    files.forEach(([name, text]) => data.items.add(new File([text], name)));
    for (const kind of ['dragover', 'drop']) {
        zone.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
    }
}"""
LONG = (
    "a folder with a very long name, longer than a header of a tar archive has room for, überlang/" + "x" * 60 + ".csv"
)


@pytest.fixture
def form(screen: Screen) -> Locator:
    """The form for a data set, asking for files of this machine."""
    page = screen.open()
    screen.run("edt:open-catalogue", tab="datasets")
    page.get_by_role("button", name="Add a data set").click()
    form = page.get_by_role("form", name="Add a data set")
    form.get_by_label("Its files are").select_option("files")
    return form


def found(server, name: str) -> dict[str, int]:
    details = server.client().dataset(name)
    return {file.name: file.size for file in details.files}


def test_a_folder_with_all_that_is_in_it(screen: Screen, page: Page, server, form, tmp_path):
    folder = tmp_path / "my digits!"
    wanted = {"train/a.csv": "1,2\n", "train/empty.txt": "", "test/ü.csv": "x" * 1025, LONG: "long", ".DS_Store": "no"}
    for name, text in wanted.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form).to_contain_text("Give it a name.")
    form.locator("input[aria-label=Folder]").set_input_files(folder)
    expect(form.get_by_label("Name")).to_have_value("my-digits")
    expect(form.get_by_label("Files to upload")).to_contain_text("4 files")
    screen.shot("upload")
    form.get_by_label("Name").fill("digits")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="digits")).to_contain_text("a copy of its own")
    assert found(server, "digits") == {name: len(text) for name, text in wanted.items() if name != ".DS_Store"}


def test_dropped_files_and_an_archive(page: Page, server, form):
    zone = form.get_by_label("Files to upload")
    zone.evaluate(DROP, [["a.csv", "1"], ["b.csv", "22"]])
    expect(zone).to_contain_text("2 files, 3 bytes: a.csv, b.csv")
    form.get_by_label("Name").fill("two")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="two")).to_contain_text("a copy of its own")
    assert found(server, "two") == {"a.csv": 1, "b.csv": 2}

    page.get_by_role("button", name="Add a data set").click()
    form.get_by_label("Its files are").select_option("files")
    archive = {"name": "packed.tar.gz", "mimeType": "application/gzip", "buffer": packed({"inside/c.csv": b"333"})}
    form.locator("input[aria-label=Files]").set_input_files(archive)
    expect(form.get_by_label("Name")).to_have_value("packed")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="packed")).to_contain_text("a copy of its own")
    assert found(server, "packed") == {"inside/c.csv": 3}


@pytest.fixture
def held(page: Page) -> list[Route]:
    """Uploads that wait for the test to let them go on, or to refuse them."""
    held: list[Route] = []
    page.route(
        "**/edt/api/datasets", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    return held


def test_what_is_wrong_is_said_and_an_upload_can_be_stopped(screen: Screen, page: Page, server, form):
    form.get_by_label("Name").fill("half")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form).to_contain_text("Choose its files.")
    broken = {"name": "broken.zip", "mimeType": "application/zip", "buffer": b"no zip"}
    form.locator("input[aria-label=Files]").set_input_files(broken)
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form).to_contain_text("The package is not a readable zip archive")
    screen.shot("upload-refused")

    held = []
    page.route(
        "**/edt/api/datasets", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    fine = {"name": "fine.csv", "mimeType": "text/csv", "buffer": b"1\n" * 100_000}
    form.locator("input[aria-label=Files]").set_input_files(fine)
    form.get_by_role("button", name="Add", exact=True).click()
    progress = form.get_by_role("progressbar", name="Upload")
    expect(progress).to_be_visible()
    screen.shot("upload-under-way")
    form.get_by_role("button", name="Cancel the upload").click()
    expect(progress).to_have_count(0)
    expect(form.get_by_label("Name")).to_have_value("half")
    page.unroute("**/edt/api/datasets")
    assert "half" not in [each.name for each in server.client().datasets()]
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="half")).to_contain_text("1")


def test_it_goes_on_while_other_things_are_looked_at(screen: Screen, page: Page, server, form, held):
    fine = {"name": "letters.csv", "mimeType": "text/csv", "buffer": b"1\n" * 100_000}
    form.locator("input[aria-label=Files]").set_input_files(fine)
    form.get_by_role("button", name="Add", exact=True).click()
    progress = form.get_by_role("progressbar", name="Upload")
    expect(progress).to_be_visible()
    until(page, lambda: len(held) == 1, "it is sent")
    page.get_by_role("tab", name="Models").click()
    expect(progress).to_have_count(0)
    page.get_by_role("tab", name="Data sets").click()
    expect(progress).to_be_visible()
    expect(form.get_by_label("Name")).to_have_value("letters")
    expect(form.get_by_label("Files to upload")).to_contain_text("letters.csv")
    expect(form.get_by_role("button", name="Adding …")).to_be_disabled()
    screen.shot("upload-again")
    page.get_by_role("tab", name="Models").click()
    held.pop().continue_()
    expect(page.locator(".Toastify__toast", has_text="The data set letters is there.")).to_be_visible()
    page.get_by_role("tab", name="Data sets").click()
    expect(page.get_by_role("row", name="letters")).to_contain_text("a copy of its own")
    expect(form).to_have_count(0)
    assert found(server, "letters") == {"letters.csv": 200_000}


def test_refused_while_nobody_looks_it_is_told_and_the_form_is_there_again(screen: Screen, page: Page, form, held):
    fine = {"name": "refused.csv", "mimeType": "text/csv", "buffer": b"1\n"}
    form.locator("input[aria-label=Files]").set_input_files(fine)
    form.get_by_role("button", name="Add", exact=True).click()
    until(page, lambda: len(held) == 1, "it is sent")
    catalogue = page.locator("#jp-edt-catalogue")
    page.get_by_role("tab", name="Instance groups").click()
    held.pop().abort()
    expect(page.locator(".Toastify__toast", has_text="The data set refused was not added.")).to_be_visible()
    page.get_by_role("tab", name="Data sets").click()
    expect(form).to_contain_text("The upload was cut off.")
    expect(form.get_by_label("Name")).to_have_value("refused")

    # Once more, stopped by a form that did not begin it; then the page is as if it had never been.
    form.get_by_role("button", name="Add", exact=True).click()
    until(page, lambda: len(held) == 1, "it is sent again")
    page.get_by_role("tab", name="Models").click()
    page.get_by_role("tab", name="Data sets").click()
    form.get_by_role("button", name="Cancel the upload").click()
    expect(form.get_by_role("progressbar", name="Upload")).to_have_count(0)
    form.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("tab", name="Models").click()
    page.get_by_role("tab", name="Data sets").click()
    expect(catalogue.get_by_role("button", name="Add a data set")).to_be_visible()
    expect(form).to_have_count(0)
