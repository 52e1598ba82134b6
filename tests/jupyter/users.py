"""An identity provider of several users, for tests of what one user may do with the things of another."""

from __future__ import annotations

import pytest
from jupyter_server.auth import IdentityProvider, User


class Tokens(IdentityProvider):
    """A token for each user: the token is "<name>-secret"."""

    def get_user(self, handler):
        token = handler.request.headers.get("Authorization", "").removeprefix("token ")
        name, _, secret = token.rpartition("-")
        handler._token_authenticated = True
        return User(username=name) if name and secret == "secret" else None


class AsAnn:
    """Base of tests on a server of several users, whose requests are ann's unless they say otherwise."""

    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        jp_server_config["ServerApp"]["identity_provider_class"] = Tokens
        jp_server_config["EdtApp"].setdefault("isolation", "same")
        return jp_server_config

    @pytest.fixture
    def jp_auth_header(self):
        return {"Authorization": "token ann-secret"}
