"""What tests do with a monitor whose turns they take themselves, and what its server answers."""

from __future__ import annotations

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" aria-label="It goes down &amp; down."></svg>'
PICTURES = ("loss", "allocation", "efficiency", "spark")
ANSWER = {
    "job": "edt-1",
    "priority": 8000,
    "max_workers": 4,
    "instance_group": "default",
    "shares": [
        {"job": "edt-1", "name": "digits", "now": 2, "then": 3},
        {"job": "edt-2", "name": "other", "now": 2, "then": 1},
    ],
    "ends_now": 50900.0,
    "ends_then": 50551.0,
    "reason": None,
}


def line(text, worker=None, err=False):
    return {"time": 50551.0, "stream": "stdout", "worker": worker, "err": err, "text": text}


class Recorded:
    """A display handle that keeps what it was given."""

    def __init__(self):
        self.left = []

    def replace(self, bundle):
        self.left.append(bundle)


def opened(made):
    """A monitor as `show` leaves it, whose turns this test takes itself."""
    from edt_sdk.monitor.counted import counted
    from edt_sdk.monitor.kernel import toolkit

    made._trouble = toolkit().HTML()
    made._box = counted([*made._build(), made._trouble], made._shown)
    made._output = Recorded()
    return made


def asked(peer):
    found = peer.paths()
    peer.requests.clear()
    return found


def show(monitor, title):
    monitor.tabs.selected_index = monitor.tabs.titles.index(title)


def text(monitor):
    return str([getattr(widget, "value", "") for widget in everything(monitor._box)])


def everything(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from everything(child)


def text_of(page):
    return str([getattr(widget, "value", "") for widget in everything(page.widget)])
