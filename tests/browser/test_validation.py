"""A trained model is validated from the page of its training: the form, numbers side by side, the confusion matrix."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen

# Labels are what the model makes of half of the samples; of 50 classes the matrix is too large for counts.
TRAINER = """\
import sys
import torch
from fabric_model import FabricModel

classes = int(sys.argv[1])
torch.manual_seed(1)
inputs = torch.randn(40 * classes, 8)
labels = (inputs @ torch.randn(8, classes)).argmax(1)
labels[::2] = torch.arange(20 * classes) % classes
model = torch.nn.Linear(8, classes)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

def datasets():
    return torch.utils.data.TensorDataset(inputs, labels), torch.utils.data.TensorDataset(inputs, labels)

fabric = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer)
fabric.train(2, 40, 2, validation_freq=2)
"""


@pytest.fixture
def trained(server, tmp_path):
    """Trains with so many classes, or as a plain script; the finished job."""

    def trained(name: str, classes: int = 4, script: str = TRAINER, **options: object):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(script)
        client = server.client()
        job = client.submit(folder, main="train.py", name=name, args=[str(classes)], progress=False, **options)
        return job.wait(300, progress=False)

    return trained


def test_from_a_finished_training_to_its_confusion_matrix_and_once_more(screen: Screen, server, trained):
    job = trained("letters")
    page = screen.open()
    screen.run("edt:open-job", id=job.id)
    page.get_by_role("button", name="Validate …").click()
    form = page.get_by_role("form", name="Validate letters")
    expect(form.get_by_role("checkbox", checked=True)).to_have_count(3)
    for metric in ("Loss", "Accuracy", "Confusion matrix"):
        expect(form.get_by_label(metric)).to_be_checked()
        form.get_by_label(metric).uncheck()
    form.get_by_role("button", name="Validate", exact=True).click()
    expect(form).to_contain_text("Choose at least one.")
    for metric in ("Loss", "Accuracy", "F1", "Confusion matrix"):
        form.get_by_label(metric).check()
    form.get_by_label("Threshold").fill("2")
    form.get_by_role("button", name="Validate", exact=True).click()
    expect(page.locator(".jp-edt-field", has=page.get_by_label("Threshold"))).to_contain_text("lies between 0 and 1")
    form.get_by_label("Threshold").fill("")
    screen.shot("validate-form")
    form.get_by_role("button", name="Validate", exact=True).click()
    expect(form).to_have_count(0)
    table = page.get_by_role("table", name="Validations")
    row = table.get_by_role("row", name="letters-validation")
    expect(row).to_contain_text("finished")

    (check,) = [each for each in server.client().jobs() if each.view.validates == job.id]
    result = check.validation()
    expect(row).to_contain_text(f"{100 * result['accuracy']:.2f} %")
    metrics = page.get_by_role("table", name="Metrics", exact=True)
    expect(metrics.get_by_role("row", name="F1")).to_contain_text(f"{100 * result['f1']:.2f} %")
    cells = page.get_by_role("table", name="Confusion matrix").locator("tbody td")
    assert [int(text.replace("·", "0")) for text in cells.all_inner_texts()] == [n for r in result.confusion for n in r]
    worst = max(n for label, r in enumerate(result.confusion) for said, n in enumerate(r) if said != label)
    mistakes = page.get_by_role("table", name="The mistakes made most").locator("tbody tr")
    expect(mistakes.first.locator("td").nth(1)).to_have_text(str(worst))
    expect(page.get_by_role("table", name="Each class").locator("tbody tr")).to_have_count(4)
    screen.shot("validation")

    # Once more, with a metric that makes no sense here, and with another; the first result can be looked at again.
    rows = table.locator("tbody tr")
    for number, metric in enumerate(("Top 5", "IoU"), start=2):
        page.get_by_role("button", name="Validate again …").click()
        form.get_by_label("Confusion matrix").uncheck()
        form.get_by_label(metric).check()
        form.get_by_role("button", name="Validate", exact=True).click()
        expect(form).to_have_count(0)
        expect(rows).to_have_count(number)
        expect(rows.first).to_contain_text(re.compile("Ask for top3 at most|finished"))
    expect(rows.nth(1)).not_to_contain_text("Traceback")
    expect(metrics.get_by_role("row", name="IoU")).to_be_visible()
    expect(page.get_by_role("table", name="Confusion matrix")).to_have_count(0)
    table.get_by_role("button", name=re.compile("^Show")).last.click()
    expect(page.get_by_role("table", name="Confusion matrix")).to_be_visible()
    screen.shot("validations")

    # A validation has a page of its own, with the result in front.
    table.get_by_role("button", name="letters-validation", exact=True).last.click()
    own = page.locator(f"#jp-edt-job-{check.id}")
    expect(own.get_by_role("tab", name="Result")).to_have_attribute("aria-selected", "true")
    expect(own.get_by_role("table", name="Confusion matrix")).to_be_visible()
    expect(own.get_by_role("button", name="Validate …")).to_have_count(0)
    own.get_by_role("button", name=job.id).click()
    expect(page.locator(f"#jp-edt-job-{job.id} .jp-edt-job-header")).to_be_visible()


def test_many_classes_are_dots_with_words(screen: Screen, server, trained, write_notebook):
    job = trained("many", classes=50)
    check = job.validate("f1,accuracy,confusion").wait(300, progress=False)
    result, card = check.validation(), check._repr_mimebundle_()
    shown = f"F1 {100 * result['f1']:.1f} %, accuracy {100 * result['accuracy']:.1f} %"
    assert shown in card["text/html"]
    write_notebook(server, "card.ipynb", "check", bundles=[card])
    page = screen.open("lab/tree/card.ipynb")
    expect(page.locator(".jp-edt-card-live img")).to_have_attribute("alt", re.compile(f"{re.escape(shown)}\\.$"))
    screen.shot("card-validation")
    screen.run("edt:open-job", id=check.id)
    dots = page.get_by_role("img", name="Confusion matrix of 50 classes")
    dots.scroll_into_view_if_needed()
    box = dots.bounding_box()
    # The middle of the dot in row 7 and column 7; there is a label 7, and the model finds some of them.
    place = 7.5 / 50
    page.mouse.move(box["x"] + place * box["width"], box["y"] + place * box["height"])
    times = result.confusion[7][7]
    expect(page.get_by_text(f"7 was recognised: {times} of")).to_be_visible()
    drawn = "node => node.getContext('2d').getImageData(7, 7, 1, 1).data[3]"
    assert (dots.evaluate(drawn) > 0) == (times > 0)
    screen.shot("validation-many")


@pytest.mark.long  # menus of rows: test_panel.py; refusals: e2e/test_validation.py
def test_from_the_menu_of_a_row_and_what_cannot_be_validated(screen: Screen, server, trained):
    job, plain = trained("menu"), trained("plain", script="print(1)", framework="PyTorch")
    page = screen.open()
    screen.panel()
    screen.context_menu(page.locator(f"[data-edt-job={job.id}]"), "Validate …")
    form = page.get_by_role("form", name="Validate menu")
    expect(form).to_be_visible()
    form.get_by_label("Accuracy").uncheck()
    form.get_by_label("Confusion matrix").uncheck()
    form.get_by_role("button", name="Validate", exact=True).click()
    expect(page.get_by_role("table", name="Metrics", exact=True).get_by_role("row")).to_have_count(2)
    # Where the pointer was last is no answer to a command of the palette: which job is meant is asked.
    screen.command("Validate a Trained Model …")
    expect(page.locator(".jp-Dialog")).to_contain_text("Which job?")
    screen.answer("Cancel")
    screen.command("Open a Job …")
    dialog = page.locator(".jp-Dialog")
    dialog.get_by_role("combobox").fill("plain-")
    screen.shot("open-a-job")
    page.keyboard.press("Enter")
    expect(page.locator(".lm-TabBar-tab.lm-mod-current", has_text="plain")).to_be_visible()
    screen.context_menu(page.locator(f"[data-edt-job={plain.id}]"), "Open")
    head = page.locator(f"#jp-edt-job-{plain.id}")
    expect(head.locator(".jp-edt-job-header")).to_contain_text("finished")
    expect(head.get_by_role("button", name="Validate …")).to_have_count(0)
    head.get_by_role("tab", name="Validation").click()
    expect(head).to_contain_text("Only trainings by the elastic engine")
