"""Waiting for what a page does not show: a condition, and that the application has kept its layout."""

from __future__ import annotations

from collections.abc import Callable

import requests
from playwright.sync_api import Page

from edt_sdk.testing import LocalServer
from tests import waiting


def until(page: Page, condition: Callable[[], bool], what: str) -> None:
    """Wait for something that the page does not show, while the page goes on."""
    waiting.until(condition, what, sleep=lambda seconds: page.wait_for_timeout(1000 * seconds))


def kept(server: LocalServer, page: str, text: str) -> bool:
    """Whether the application would bring this page back after a reload, with this text."""
    headers = {"Authorization": f"token {server.token}"}
    layout = requests.get(f"{server.url}lab/api/workspaces/default", headers=headers, timeout=120).text
    return layout.count(page) > 1 and text in layout
