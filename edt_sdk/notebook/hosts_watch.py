"""Watch the hosts in a notebook's cell: one table, replaced in place until the cell is interrupted.

The last table stays as the cell's output. The cell's own thread asks and draws, so that Ctrl-C ends it at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edt_sdk.display.cluster_view import hosts_html, hosts_seen, hosts_text
from edt_sdk.notebook.live_cell import Shown
from edt_sdk.schemas.errors import ServerUnreachable

if TYPE_CHECKING:
    from edt_sdk.client import Client, HostList

EVERY = 2.0  # seconds between two looks


def watch_hosts(client: Client) -> None:
    """Show the hosts until the cell is interrupted. A server that does not answer is asked again.

    EdtError as `Client.hosts`, but ServerUnreachable only from the first look.
    """
    table, hosts, taken = Shown(), client.hosts(), time.time()
    try:
        _show(table, hosts)
        while True:
            time.sleep(EVERY)
            try:
                hosts, taken = client.hosts(), time.time()
            except ServerUnreachable as lost:
                _show(table, hosts, hosts_seen(taken, str(lost)))
            else:
                _show(table, hosts)
    except KeyboardInterrupt:
        # A table that is not renewed must not pass for the present.
        _show(table, hosts, hosts_seen(taken))


def _show(table: Shown, hosts: HostList, remark: str = "") -> None:
    text = "\n".join(filter(None, [hosts_text(hosts), remark]))
    table.show({"text/html": hosts_html(hosts, remark), "text/plain": text})
