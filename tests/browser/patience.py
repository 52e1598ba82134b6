"""Waiting for what a page does not show: a condition, and that the application has kept its layout."""

from __future__ import annotations

import time
from collections.abc import Callable

import requests
from playwright.sync_api import Page

from edt_sdk.testing import LocalServer

LIMIT = 90.0


def until(page: Page, condition: Callable[[], bool], what: str) -> None:
    """Wait for something that the page does not show."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        page.wait_for_timeout(100)


def kept(server: LocalServer, page: str, text: str) -> bool:
    """Whether the application would bring this page back after a reload, with this text."""
    headers = {"Authorization": f"token {server.token}"}
    layout = requests.get(f"{server.url}lab/api/workspaces/default", headers=headers, timeout=10).text
    return layout.count(page) > 1 and text in layout
