"""A small API server of Kubernetes, and a kubelet that runs a pod's container as a process of this machine.

It answers in the form of the API's documentation, with the fields that a cluster adds. It was not recorded from one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.server.providers.engines import Engine

_TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "edt-", "labels": {"team": "vision"}},
    "spec": {
        "containers": [{"name": "host", "image": "registry.example.org/edt:1", "args": ["x"]}],
        "priorityClassName": "low",
    },
}


class KubernetesEngine(Engine):
    """A cluster with one namespace.

    Attributes:
        nodes: whether there is a node for new pods.
        requests: all calls, as (method, path, body).
        refused: the message of a 403 for calls with this method and path, by "METHOD path".
    """

    kind = "kubernetes"

    def __init__(self, folder):
        super().__init__(folder)
        self.pods, self.secrets, self.processes, self.requests, self.refused = {}, {}, {}, [], {}
        self.nodes, self.down = True, False
        self._told: set[str] = set()  # pods whose process got its signal
        self._lock = threading.RLock()
        (folder / "template.yaml").write_text(yaml.safe_dump(_TEMPLATE))
        (folder / "token").write_text("service-account\n")
        engine = self

        class Answers(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                if self.headers["Authorization"] != "Bearer service-account":
                    code, said = 401, _status(401, "Unauthorized", "Unauthorized")
                else:
                    code, said = engine.serve(self.command, self.path, body)
                data = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def settings(self):
        return {
            "template": str(self.folder / "template.yaml"),
            "namespace": "lab",
            "api": f"http://127.0.0.1:{self._server.server_port}",
            "token_file": str(self.folder / "token"),
            "ca_file": "",
            "command": self.tokens.python,
        }

    def renew(self):
        super().renew()
        self.nodes = True
        self.refused.clear()
        self.requests.clear()

    def break_(self):
        self.down = True

    def heal(self):
        self.down = False

    async def notice(self, host_id):
        self.serve("DELETE", f"/api/v1/namespaces/lab/pods/{host_id}", None, keep=True)

    def clean(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for each in (self.pods, self.secrets, self.processes):
            each.clear()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, method, path, body, *, keep=False):
        """Return the status and the body of an answer. With `keep` a deleted pod gets no signal."""
        with self._lock:
            self.requests.append((method, path, body))
            parts = urlsplit(path)
            where = parts.path.removeprefix("/api/v1/namespaces/lab/")
            if self.down:
                return 503, _status(503, "ServiceUnavailable", "apiserver not ready")
            if why := self.refused.get(f"{method} {where.partition('/')[0]}"):
                return 403, _status(403, "Forbidden", why)
            self._kubelet()
            match method, where.split("/"):
                case "GET", ["pods"]:
                    key, _, value = parse_qs(parts.query)["labelSelector"][0].partition("=")
                    items = [pod for pod in self.pods.values() if pod["metadata"]["labels"].get(key) == value]
                    return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
                case "POST", ["pods"]:
                    return self._create(self.pods, body, status={"phase": "Pending", "qosClass": "BestEffort"})
                case "POST", ["secrets"]:
                    return self._create(self.secrets, body)
                case "DELETE", ["pods", name] if name in self.pods:
                    self._delete(name, keep)
                    return 200, self.pods.get(name, {})
                case "DELETE", ["pods", name]:
                    return 404, _status(404, "NotFound", f'pods "{name}" not found')
            return 405, _status(405, "MethodNotAllowed", "the server does not allow this method")

    def _create(self, there, body, **more):
        name = body["metadata"]["name"]
        if name in there:
            return 409, _status(409, "AlreadyExists", f'"{name}" already exists')
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": "lab", "creationTimestamp": created}
        there[name] = body | more
        return 201, there[name]

    def _delete(self, name, keep):
        pod = self.pods[name]
        if name not in self.processes or self.processes[name].poll() is not None:
            self._remove(name)
            return
        grace = pod["spec"]["terminationGracePeriodSeconds"]
        last = datetime.now(UTC) + timedelta(seconds=grace)
        pod["metadata"].setdefault("deletionTimestamp", last.strftime("%Y-%m-%dT%H:%M:%SZ"))
        if not keep and name not in self._told:  # a pod that is deleted again gets no other signal
            self._told.add(name)
            self.processes[name].send_signal(signal.SIGTERM)

    def _remove(self, name):
        uid = self.pods.pop(name)["metadata"]["uid"]
        for secret in list(self.secrets.values()):  # the cluster's garbage collection
            if uid in [owner["uid"] for owner in secret["metadata"].get("ownerReferences", [])]:
                del self.secrets[secret["metadata"]["name"]]

    def _kubelet(self):
        for name, pod in list(self.pods.items()):
            status, spec = pod["status"], pod["spec"]
            if not spec.get("nodeName"):
                if self.nodes:
                    spec["nodeName"] = "node-1"
                    status["containerStatuses"] = [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
                else:
                    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
                    status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": why}]
            elif status["phase"] == "Pending" and name in self.secrets:
                self._run(name, pod)
            elif name in self.processes and (code := self.processes[name].poll()) is not None:
                if "deletionTimestamp" in pod["metadata"]:
                    self._remove(name)
                elif status["phase"] == "Running":
                    status |= {"phase": "Failed" if code else "Succeeded", "message": f"exit code {code}"}

    def _run(self, name, pod):
        (volume,) = pod["spec"]["volumes"]
        container = pod["spec"]["containers"][0]
        (mount,) = container["volumeMounts"]
        token = self.folder / f"{name}.token"
        token.write_text(self.secrets[volume["secret"]["secretName"]]["stringData"]["token"])
        command = [each.replace(f"{mount['mountPath']}/token", str(token)) for each in container["command"]]
        own = {**os.environ, "XDG_DATA_HOME": str(self.folder / name)}
        self.processes[name] = subprocess.Popen(command, env=own, stderr=subprocess.DEVNULL)
        pod["status"] |= {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}


def _status(code, reason, message):
    return {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
