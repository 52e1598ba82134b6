"""The documentation is right about what can be checked: links, code that compiles, settings that exist."""

import ast
import re

import pytest

from edt_jupyter.app import EdtApp

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"")
ANCHOR = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def pages(tracked):
    return {path: path.read_text(encoding="utf-8") for path in tracked if path.suffix == ".md"}


def test_links_inside_the_repository_lead_somewhere(pages, root):
    broken = [
        f"{path.relative_to(root)}: {target}"
        for path, text in pages.items()
        for match in LINK.finditer(text)
        if "://" not in (target := match[1] or match[2]) and not (path.parent / target).exists()
    ]
    assert broken == []


def test_links_to_a_heading_find_it(pages, root):
    """As GitHub names headings: small letters, no punctuation, dashes for spaces."""
    names = {path: {slug(line) for line in HEADING.findall(text)} for path, text in pages.items()}
    lost = [
        f"{path.relative_to(root)}: {target}#{heading}"
        for path, text in pages.items()
        for target, heading in ANCHOR.findall(text)
        if (there := (path.parent / target).resolve() if target else path) in names and heading not in names[there]
    ]
    assert lost == []


def slug(heading):
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def test_every_example_is_python(pages, root):
    for path, text in pages.items():
        for match in FENCE.finditer(text):
            line = text[: match.start()].count("\n") + 1
            ast.parse(match[1], f"{path.relative_to(root)}:{line}")


def test_the_admin_guide_lists_every_setting_with_its_help(root):
    listed = re.findall(r"^\| `(\w+)` \|", (root / "docs/admin-guide.md").read_text(encoding="utf-8"), re.MULTILINE)
    settings = EdtApp.class_own_traits(config=True)
    assert sorted(listed) == sorted(settings)
    assert [name for name, trait in settings.items() if not trait.help] == []


def test_no_page_knows_the_machine_it_was_written_on(pages, root):
    for path, text in pages.items():
        assert not re.search(r"/(root|home|work|tmp/h)/\w", text), path.relative_to(root)
