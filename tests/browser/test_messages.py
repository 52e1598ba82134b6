"""The messages about ends of jobs: never more than one over the page, and gone once a person has seen the job."""

import pytest
from playwright.sync_api import expect

from tests.browser.patience import until

# The largest number of messages that were on the page at a time.
COUNT = """() => {
    window.mostToasts = 0;
    const look = () => {
        window.mostToasts = Math.max(window.mostToasts, document.querySelectorAll('.Toastify__toast').length);
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
}"""
# Whether a click in the middle of this element reaches it.
REACHED = """node => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return node.contains(document.elementFromPoint(left + width / 2, top + height / 2));
}"""


@pytest.fixture
def fail(server, tmp_path):
    """Submits a plain job that fails at once."""
    (tmp_path / "broken.py").write_text("raise ValueError('wrong')\n")

    def submit(name: str):
        options = {"main": "broken.py", "framework": "PyTorch", "max_workers": 1, "progress": False}
        return server.client().submit(tmp_path, name=name, **options)

    return submit


def test_failures_in_a_row_are_one_message_that_covers_no_tab(screen, fail):
    page = screen.open("lab?reset")
    screen.run("edt:open-cluster")
    screen.run("edt:open-catalogue")
    screen.run("edt:open-cluster")
    page.evaluate(COUNT)
    toast = page.locator(".Toastify__toast")
    jobs = [fail("first")]
    expect(toast).to_contain_text("first has failed")
    toast.hover()  # it does not leave while the pointer is on it, however long the others take
    jobs += [fail(f"next-{n}") for n in range(6)]
    until(page, lambda: all(job.refresh().view.state.final for job in jobs), "all have ended")
    expect(toast).to_contain_text("7 jobs failed")
    screen.shot("message-of-failures")
    last = page.locator("#jp-main-dock-panel .lm-TabBar-tab").last
    assert last.evaluate(REACHED)
    last.click()
    expect(last).to_have_attribute("aria-selected", "true")
    toast.get_by_role("button", name="Show").click()
    expect(page.get_by_role("button", name="Failed 7")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".jp-edt-row")).to_have_count(7)
    expect(toast).to_have_count(0)
    assert page.evaluate("() => window.mostToasts") == 1


def test_a_message_leaves_when_its_job_is_opened_and_otherwise_for_the_bell(screen, fail):
    page = screen.open("lab?reset")
    toast = page.locator(".Toastify__toast")
    seen, other = fail("seen"), fail("other")
    until(page, lambda: all(job.refresh().view.state.final for job in (seen, other)), "both have ended")
    expect(toast).to_contain_text("2 jobs failed")
    toast.hover()
    screen.run("edt:open-job", id=seen.id)
    expect(toast).to_contain_text("other has failed")
    page.mouse.move(10, 400)
    expect(toast).to_have_count(0)
    page.get_by_title("1 notification").click()
    bell = page.locator(".jp-Notification-Center")
    expect(bell).to_contain_text("other has failed")
    page.keyboard.press("Escape")
    screen.run("edt:open-job", id=other.id)
    expect(page.get_by_title("No notifications")).to_be_visible()
