"""WMLA's ways to log on, and what must not be one: other people's browsers, ended sessions, wrong passwords."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from types import SimpleNamespace

import pytest
from jupyter_server.auth import passwd
from jupyter_server.auth.identity import PasswordIdentityProvider
from tornado.httpclient import HTTPClientError
from tornado.web import create_signed_value

from edt_jupyter.wmla import sessions
from edt_jupyter.wmla.sessions import SECONDS, Sessions
from tests.clocks import YEAR, set_wall_clock

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


async def test_a_session_shows_nothing_of_its_credential(ask, token):
    answer = await ask("GET", LOGON, basic(token))
    session = answer.json["accessToken"]
    # Earlier releases gave base64 of base64.
    once = readings(session.encode())
    twice = [each for text in once for part in re.findall(rb"[\w-]{40,}", text) for each in readings(part)]
    assert not any(token.encode() in text for text in (session.encode(), *once, *twice))


def readings(text):
    """What base64 makes of the text, wherever it begins."""
    return [base64.urlsafe_b64decode(text[at : at + (len(text) - at) // 4 * 4]) for at in range(4)]


async def test_a_session_survives_a_restart_and_a_logoff_takes_its_credential(ask, token, jp_serverapp, tmp_path):
    session = (await ask("GET", LOGON, basic(token))).json["accessToken"]
    folder = tmp_path / "edt" / "control" / "sessions"
    (file,) = folder.iterdir()
    assert session not in file.name
    assert token.encode() not in file.read_bytes()
    assert (file.stat().st_mode & 0o77, folder.stat().st_mode & 0o77) == (0, 0)
    # Another process, or this one after a restart, remembers nothing but the folder.
    jp_serverapp.web_app.settings.pop("edt_wmla_logons")
    assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": session})).status == 200
    await ask("POST", "auth/v1/logoff", {"Authorization": f"Bearer {session}"}, body=b"")
    assert list(folder.iterdir()) == []
    jp_serverapp.web_app.settings.pop("edt_wmla_logons")
    assert (await ask("GET", f"{DLI}/conf", {"X-Auth-Token": session})).status == 401


async def test_a_session_of_the_release_before_is_asked_to_log_on_again(ask, token, jp_serverapp, edt):
    key = sessions.signing_key(edt.secret, jp_serverapp.identity_provider)
    signed = create_signed_value(key, "edt-wmla", json.dumps(["token", token, "nonce", " " * 600]))
    before = base64.urlsafe_b64encode(signed).decode().rstrip("=")
    answer = await ask("GET", f"{DLI}/conf", {"Authorization": f"Bearer {before}"})
    assert (answer.status, "Log on again" in answer.text) == (401, True)


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


class TestSessions:
    KEY = "00" * 32

    @pytest.fixture
    def kept(self, tmp_path):
        return Sessions(tmp_path / "sessions")

    def test_have_tokens_of_the_length_of_the_releases_before(self, kept):
        """dlicmd writes a new one over the old one without shortening its file."""
        for value in ("", "short", "x" * 500, '{"username": "ann"}', "Ünïcødé" * 10):
            token = kept.open(self.KEY, "ann", "user", value)
            assert (len(token), sessions.is_session(token)) == (1500, True)
            assert kept.read(self.KEY, token) == ("user", value)

    def test_of_another_key_or_changed_are_none(self, kept):
        token = kept.open(self.KEY, "ann", "token", "abc")
        assert kept.read("11" * 32, token) is None
        assert kept.read(self.KEY, token[:-8] + "AAAAAAAA") is None
        assert not any(map(sessions.is_session, ("", "not base64 §", token + "\n", "/" + token[1:], token[:-1] + "§")))

    def test_a_damaged_file_is_none(self, kept, tmp_path):
        token = kept.open(self.KEY, "ann", "token", "abc")
        (file,) = (tmp_path / "sessions").iterdir()
        file.write_bytes(b"x" * file.stat().st_size)
        assert kept.read(self.KEY, token) is None

    def test_are_over_after_twelve_hours(self, kept, tmp_path, monkeypatch):
        token = kept.open(self.KEY, "ann", "token", "abc")
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + SECONDS - 60)
        assert kept.read(self.KEY, token) is not None
        monkeypatch.setattr(time, "time", lambda: now + SECONDS + 60)
        assert kept.read(self.KEY, token) is None
        # The next logon, of any user, removes the file.
        kept.open(self.KEY, "bob", "token", "abc")
        assert len(list((tmp_path / "sessions").iterdir())) == 1

    @pytest.mark.parametrize("leap", [YEAR, -YEAR])
    def test_are_over_when_the_clock_leaps_by_a_year(self, kept, monkeypatch, leap):
        token = kept.open(self.KEY, "ann", "token", "abc")
        set_wall_clock(monkeypatch, -5.0)
        assert kept.read(self.KEY, token) is not None, "a correction"
        set_wall_clock(monkeypatch, leap)
        assert kept.read(self.KEY, token) is None, "neither longer than a session lasts, nor with an error"
        assert kept.read(self.KEY, kept.open(self.KEY, "ann", "token", "new")) is not None

    def test_too_many_of_one_user_end_the_oldest(self, kept, tmp_path, monkeypatch):
        monkeypatch.setattr(sessions, "MOST", 3)
        theirs = kept.open(self.KEY, "bob", "token", "bob's")
        first = kept.open(self.KEY, "ann", "token", "first")
        (file,) = (tmp_path / "sessions").glob(f"{first[:32]}-*")
        os.utime(file, (time.time() - 60, time.time() - 60))
        second = kept.open(self.KEY, "ann", "token", "second")
        for _ in range(2):
            kept.open(self.KEY, "ann", "token", "more")
        read = [kept.read(self.KEY, each) is not None for each in (theirs, first, second)]
        assert read == [True, False, True]
        assert len(list((tmp_path / "sessions").iterdir())) == 4
