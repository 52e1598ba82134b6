"""WMLA's ways to log on, and what must not be one: other people's browsers, ended sessions, wrong passwords."""

from __future__ import annotations

import base64
import json
import os
import time
from types import SimpleNamespace

import pytest
from jupyter_server.auth import passwd
from jupyter_server.auth.identity import PasswordIdentityProvider
from tornado.httpclient import HTTPClientError

from edt_jupyter.wmla import sessions
from edt_jupyter.wmla.sessions import SECONDS, Ended

DLI = "platform/rest/deeplearning/v1"
LOGON = "auth/v1/logon"


def basic(password, user="wmla_user"):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def ask(edt, jp_fetch):
    """Send a request with these headers alone; status, text, JSON if it is some, and headers."""

    async def send(method, path, headers=None, **kwargs):
        # jp_fetch would add the server's token.
        headers = {"Authorization": "", **(headers or {})}
        try:
            answer = await jp_fetch(
                *path.split("/"), method=method, headers=headers, allow_nonstandard_methods=True,
                follow_redirects=False, **kwargs,
            )  # fmt: skip
        except HTTPClientError as error:
            if error.response is None:
                raise
            answer = error.response
        text = answer.body.decode()
        body = json.loads(text) if "json" in answer.headers.get("Content-Type", "") else None
        return SimpleNamespace(status=answer.code, text=text, json=body, headers=answer.headers)

    return send


@pytest.fixture
def token(jp_auth_header):
    return jp_auth_header["Authorization"].partition(" ")[2]


def cookie(answer, name="edt-wmla"):
    for line in answer.headers.get_list("Set-Cookie"):
        if line.startswith(name):
            return line.split(";")[0]
    raise AssertionError(answer.headers.get_list("Set-Cookie"))


async def test_every_way_in(ask, token):
    answer = await ask("GET", LOGON, basic(token))
    session = answer.json["accessToken"]
    for headers in (
        basic(token),
        basic(token, user=""),
        {"X-Auth-Token": session},
        {"X-Auth-Token": token},
        {"Authorization": f"Bearer {session}"},
        {"Authorization": f"Bearer {token}"},
        {"Authorization": f"token {token}"},
        {"Cookie": cookie(answer)},
    ):
        assert (await ask("GET", f"{DLI}/conf", dict(headers))).status == 200, headers
        again = await ask("GET", LOGON, dict(headers))
        assert (again.status, len(again.json["accessToken"])) == (200, len(session))


async def test_a_body_on_a_get_is_ignored(ask, token):
    headers = {**basic(token), "Content-Type": "application/json"}
    body = json.dumps({"username": "somebody", "password": "else"}).encode()
    assert (await ask("GET", LOGON, headers, body=body)).status == 200
    assert (await ask("GET", f"{DLI}/execs", dict(headers), body=body)).json == []


NOBODY = [
    ({}, 401),
    (basic("wrong"), 401),
    (basic(""), 401),
    ({"X-Auth-Token": "wrong"}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Cookie": "edt-wmla=wrong"}, 401),
    ({"Authorization": "Basic §"}, 400),
    ({"Authorization": "Basic bm9jb2xvbg=="}, 400),
]


async def test_nobody_else_comes_in(ask):
    for headers, status in NOBODY:
        for method in ("GET", "POST", "DELETE"):
            answer = await ask(method, f"{DLI}/execs", dict(headers), **({"body": b""} if method == "POST" else {}))
            assert answer.status == status, (headers, method)
            assert answer.text.startswith(f"Error {status}: ")
            assert answer.headers["Content-Type"].startswith("text/plain")
            # A challenge by Basic would make browsers ask for a password, and then send it for everybody.
            assert "Basic" not in answer.headers.get("WWW-Authenticate", "")
            assert (status == 401) == ("WWW-Authenticate" in answer.headers)


async def test_a_wrong_password_is_not_helped_by_a_cookie(ask, token):
    good = cookie(await ask("GET", LOGON, basic(token)))
    assert (await ask("GET", LOGON, {**basic("wrong"), "Cookie": good})).status == 401


async def test_a_logoff_ends_one_session(ask, token):
    first, second = [(await ask("GET", LOGON, basic(token))).json["accessToken"] for _ in range(2)]
    assert (await ask("POST", "auth/v1/logoff", {"Authorization": f"Bearer {first}"}, body=b"")).status == 200
    assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": first})).status == 401
    assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": second})).status == 200


async def test_a_logoff_is_known_to_every_server_over_the_data_folder(ask, token, jp_serverapp, tmp_path):
    session = (await ask("GET", LOGON, basic(token))).json["accessToken"]
    await ask("POST", "auth/v1/logoff", {"Authorization": f"Bearer {session}"}, body=b"")
    folder = tmp_path / "edt" / "control" / "ended-sessions"
    (mark,) = folder.iterdir()
    assert session not in mark.name
    assert (mark.stat().st_size, mark.stat().st_mode & 0o77, folder.stat().st_mode & 0o77) == (0, 0, 0)
    # Another process, or this one after a restart, remembers nothing but the folder.
    jp_serverapp.web_app.settings.pop("edt_wmla_logons")
    assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": session})).status == 401


def test_marks_of_sessions_that_are_over_anyway_go(tmp_path):
    ended = Ended(tmp_path / "ended")
    ended.add("old")
    (mark,) = (tmp_path / "ended").iterdir()
    long_ago = time.time() - SECONDS - 1
    os.utime(mark, (long_ago, long_ago))
    ended.add("new")
    assert "new" in ended
    assert "old" not in ended


MARKS = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Referer": "https://evil.example/page"},
    {"Sec-Fetch-Site": "cross-site"},
]


class TestOtherPeoplesPages:
    """What a browser sends by itself lets nobody in when a browser sends it."""

    async def test_with_the_logon_cookie(self, ask, token):
        mine = {"Cookie": cookie(await ask("GET", LOGON, basic(token)))}
        calls = (("POST", f"{DLI}/execs/some/stop"), ("DELETE", f"{DLI}/execs"), ("POST", f"{DLI}/execs"))
        for method, path, marks in ((*call, marks) for call in calls for marks in MARKS):
            body = {"body": b""} if method == "POST" else {}
            answer = await ask(method, path, {**mine, **marks}, **body)
            # 404 is Jupyter's own word for a foreign Origin.
            assert answer.status in (401, 404), (method, marks, answer.text)
            assert "exec some" not in answer.text
        # The same request by a script is let in, and finds that there is no such job.
        answer = await ask("POST", f"{DLI}/execs/some/stop", dict(mine), body=b"")
        assert (answer.status, "There is no exec some" in answer.text) == (404, True)

    async def test_with_a_basic_password_it_remembers(self, ask, token):
        for method, marks in ((method, marks) for method in ("GET", "DELETE") for marks in MARKS):
            answer = await ask(method, f"{DLI}/execs", {**basic(token), **marks})
            assert answer.status == 403

    async def test_with_jupyters_own_cookie(self, ask, token, jp_serverapp):
        page = await ask("GET", f"{DLI}/conf", {"Authorization": f"token {token}"})
        mine = {"Cookie": cookie(page, "username-")}
        assert (await ask("GET", f"{DLI}/conf", dict(mine))).status == 200
        answer = await ask("POST", f"{DLI}/execs/some/stop", dict(mine), body=b"")
        assert answer.status == 403
        assert "_xsrf" in answer.text

    async def test_a_token_in_a_header_is_nobody_elses(self, ask, token):
        """Another page cannot set it without the server's leave, so it is no reason to refuse."""
        answer = await ask("GET", f"{DLI}/conf", {"X-Auth-Token": token, "Origin": "http://lab.example"})
        assert answer.status == 200

    async def test_the_cookie_is_for_requests_of_this_host_alone(self, ask, token):
        answer = await ask("GET", LOGON, basic(token))
        (line,) = [each for each in answer.headers.get_list("Set-Cookie") if each.startswith("edt-wmla")]
        assert "HttpOnly" in line
        assert "SameSite=Strict" in line
        assert "Domain" not in line


class TestWithAPassword:
    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        jp_server_config["PasswordIdentityProvider"] = {"hashed_password": passwd("open sesame")}
        return jp_server_config

    async def test_it_lets_in_like_a_token(self, ask, token, monkeypatch):
        checked = []
        check = PasswordIdentityProvider.passwd_check
        monkeypatch.setattr(
            PasswordIdentityProvider, "passwd_check", lambda self, text: checked.append(text) or check(self, text)
        )
        answer = await ask("GET", LOGON, basic("open sesame"))
        session = answer.json["accessToken"]
        for headers in (basic("open sesame"), {"X-Auth-Token": session}, {"Cookie": cookie(answer)}):
            assert (await ask("GET", f"{DLI}/conf", dict(headers))).status == 200
        assert (await ask("POST", f"{DLI}/execs/some/stop", {"X-Auth-Token": session}, body=b"")).status == 404
        # It takes its time to check a password; that it was right is known from then on.
        assert checked == ["open sesame"]
        assert (await ask("GET", LOGON, basic("open sesamx"))).status == 401
        assert len((await ask("GET", LOGON, basic(token))).json["accessToken"]) == len(session)

    async def test_a_new_password_ends_all_sessions(self, ask, jp_serverapp):
        session = (await ask("GET", LOGON, basic("open sesame"))).json["accessToken"]
        jp_serverapp.identity_provider.hashed_password = passwd("another")
        assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": session})).status == 401
        assert (await ask("GET", LOGON, basic("open sesame"))).status == 401
        assert (await ask("GET", LOGON, basic("another"))).status == 200


class TestTokens:
    KEY = "00" * 32

    def test_have_one_length(self):
        """dlicmd writes a new one over the old one without shortening its file."""
        values = ["", "short", "x" * 500, '{"username": "ann"}', "Ünïcødé" * 10]
        assert len({len(sessions.seal(self.KEY, "token", value)) for value in values}) == 1
        assert all(sessions.unseal(self.KEY, sessions.seal(self.KEY, "user", v)) == ("user", v) for v in values)

    def test_of_another_server_or_damaged_are_none(self):
        sealed = sessions.seal(self.KEY, "token", "abc")
        assert sessions.unseal("11" * 32, sealed) is None
        assert sessions.unseal(self.KEY, sealed[:-8] + "AAAAAAAA") is None
        assert sessions.unseal(self.KEY, "not base64 §") is None
        assert sessions.unseal(self.KEY, "") is None

    def test_are_over_after_twelve_hours(self, monkeypatch):
        import time

        sealed = sessions.seal(self.KEY, "token", "abc")
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + sessions.SECONDS + 60)
        assert sessions.unseal(self.KEY, sealed) is None
