"""Resource groups from the page of slots and queues: what a change would come to is said before it is made."""

from playwright.sync_api import expect

from tests.browser.screen import Screen


def test_resource_groups(screen: Screen, server, submit):
    job = submit("digits", max_workers=4)
    page = screen.open()
    screen.run("edt:open-cluster")
    page.get_by_role("button", name="Change instance and resource groups").click()
    groups = page.get_by_label("Resource groups", exact=True)
    expect(groups.get_by_role("row", name="default")).to_contain_text("every host that no other group names")
    groups.get_by_role("button", name="Add a resource group").click()
    form = page.get_by_role("form", name="Add a resource group")
    form.get_by_label("Name").fill("night")
    form.get_by_label("Hosts").fill("moon")
    expect(form.locator("[data-said=foreseen]")).to_contain_text("No host called moon has a slot now")
    form.get_by_label("Slots of each host").fill("many")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("many")
    form.get_by_label("Slots of each host").fill("2")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(groups.get_by_role("row", name="night")).to_contain_text("moon")

    # Somebody else's change, below, is to come after the form has read the plan.
    with page.expect_response(lambda response: response.url.split("?")[0].endswith("/edt/api/plan")):
        groups.get_by_role("button", name="Change default (resource group)").click()
    form = page.get_by_role("form", name="Change the resource group default")
    form.get_by_label("Slots of each host").fill("2")
    said = form.locator("[data-said=foreseen]")
    expect(said).to_contain_text("4 → 2 slots.")
    expect(said).to_contain_text("digits may give slots back")
    screen.shot("resource-group")
    # Somebody else is quicker: nothing of theirs is lost.
    server.client().update_resource_group("night", slots=3)
    form.get_by_role("button", name="Change", exact=True).click()
    expect(form.get_by_role("alert").last).to_contain_text("changed")
    form.get_by_role("button", name="Cancel").click()
    groups.get_by_role("button", name="Change default (resource group)").click()
    form.get_by_label("Slots of each host").fill("2")
    form.get_by_role("button", name="Change", exact=True).click()
    expect(form).to_have_count(0)
    plan = {group.name: group.slots for group in server.client().plan().resource_groups}
    assert plan == {"default": "2", "night": "3"}
    groups.get_by_role("button", name="Delete night (resource group)").click()
    screen.answer("Delete")
    expect(groups.get_by_role("row", name="night")).to_have_count(0)
    job.stop()
