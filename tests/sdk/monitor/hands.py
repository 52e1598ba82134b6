"""What tests do with a monitor whose looks they take themselves, and what its server answers."""

from __future__ import annotations

import queue

from edt_sdk.http.connection import watching
from edt_sdk.monitor.kernel import make_widget
from edt_sdk.monitor.relay import WidgetRelay

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" aria-label="It goes down &amp; down."></svg>'
PICTURES = ("loss", "allocation", "efficiency", "spark")


def line(text, worker=None, err=False):
    return {"time": 50551.0, "stream": "stdout", "worker": worker, "err": err, "text": text}


class Recorded:
    """An output that keeps what it was replaced by."""

    def __init__(self):
        self.left = []

    def replace(self, bundle):
        self.left.append(bundle)


def opened(made):
    """The monitor as `show` leaves it, without its thread. What its widget sends is in `made.sent`."""
    made.connection = watching(made.connection)
    made._widget = make_widget(job=made.shows, origin=made.connection.url)
    made.sent = queue.SimpleQueue()
    made._widget.send = made.sent.put
    made._relay = WidgetRelay(made._widget, watching(made.connection))
    made._output = Recorded()
    return made


def tell(monitor, **message):
    """Send a message as a page does."""
    monitor._received(monitor._widget, message, [])


def asked(peer):
    found = peer.paths()
    peer.requests.clear()
    return found
