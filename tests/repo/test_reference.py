"""`make reference`: every public name is in it, with words, and so is every method of the two classes people hold."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import edt_sdk


class Sections(HTMLParser):
    """Anchor → the text of its docstring, from pdoc's HTML."""

    def __init__(self, html):
        super().__init__()
        self.words = {}
        self._at, self._depth = None, 0
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag in ("section", "div") and known.get("id"):
            self._at = known["id"]
            self.words.setdefault(self._at, "")
        if tag == "div" and (self._depth or "docstring" in known.get("class", "")):
            self._depth += 1

    def handle_endtag(self, tag):
        if tag == "div" and self._depth:
            self._depth -= 1

    def handle_data(self, data):
        if self._depth and self._at:
            self.words[self._at] += data.strip()


@pytest.fixture(scope="module")
def sections(root, tmp_path_factory):
    made = tmp_path_factory.mktemp("reference")
    makefile = (root / "Makefile").read_text().replace("\\\n", " ")
    modules = re.search(r"^REFERENCE := (.*)$", makefile, re.MULTILINE)[1].split()
    command = [sys.executable, "-m", "pdoc", "--docformat", "google", "--no-show-source", "-o", str(made), *modules]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    return Sections((made / "edt_sdk.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name in edt_sdk.__all__ if name != "__version__"])
def test_every_public_name_is_explained(sections, name):
    assert len(sections.words.get(name, "")) > 15


@pytest.mark.parametrize("cls", ["Client", "Job", "FabricModel"])
def test_so_is_every_method(sections, cls):
    held = getattr(edt_sdk, cls)
    methods = [name for name in vars(held) if not name.startswith("_") and callable(getattr(held, name))]
    assert methods
    assert [name for name in methods if len(sections.words.get(f"{cls}.{name}", "")) < 10] == []
