"""Provide machines by pods of Kubernetes, over its REST API: list, create and delete pods, and create a Secret.

A pod is the administrator's template with an id, labels and the agent's command. Its token is made when it has a node:
the pod waits there for the Secret that it mounts. The Secret belongs to the pod and is removed with it. The service
account needs these verbs in one namespace: list, create and delete of pods, and create of secrets.

This has not been run on a cluster. Its tests talk to a small API server of ours, with answers in the form of the API's
documentation.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from edt_server.providers.level import EngineTrouble, LevelProvider
from edt_server.providers.provider import NOTICE, Admission, Provided, ProvidedState, ProviderSettings

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_FOLDER = "/run/edt"
_PATIENCE = 30.0


class KubernetesSettings(ProviderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the provider kubernetes.

    Attributes:
        template: a file with a pod (YAML or JSON). Its first container becomes the host.
        namespace: where the pods are.
        api: URL of the API server. The default is that of the cluster which the server runs in.
        token_file: a file with the bearer token, read at each call. The default is the service account's, "" is none.
        ca_file: a file with the API server's CA, "" for those of the system.
        command: the Python in the pod.
    """

    template: str
    namespace: str = "default"
    api: str = "https://kubernetes.default.svc"
    token_file: str = f"{_ACCOUNT}/token"
    ca_file: str = f"{_ACCOUNT}/ca.crt"
    command: str = "python"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            pod = yaml.safe_load(Path(self.template).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as wrong:
            raise ValueError(f"the template {self.template} cannot be read: {wrong}") from None
        spec = pod.get("spec") if isinstance(pod, dict) and pod.get("kind") == "Pod" else None
        if not isinstance(spec, dict) or not spec.get("containers"):
            raise ValueError(f"the template {self.template} is no pod with a container")


class KubernetesProvider(LevelProvider[KubernetesSettings]):
    """One pod for each machine."""

    poll = 5.0

    def __init__(self, name: str, settings: KubernetesSettings, admission: Admission, mark: str) -> None:
        super().__init__(name, settings, admission, mark)
        self._uids: dict[str, str] = {}

    async def _look(self) -> Mapping[str, Provided]:
        selector = urllib.parse.quote(f"edt.mark={self.mark}")
        listed = await self._ask("GET", f"pods?labelSelector={selector}")
        pods = {each["metadata"]["name"]: each for each in listed["items"]}
        self._uids = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
        seen = {name: _machine(name, pod) for name, pod in pods.items()}
        for machine in seen.values():
            if machine.state is ProvidedState.GONE:
                await self._stop(machine.id)  # the pod has ended, and its object is left
        return seen

    async def _start(self, host_id: str) -> None:
        await self._ask("POST", "pods", self._pod(host_id))

    def _pod(self, host_id: str) -> dict[str, Any]:
        pod: dict[str, Any] = yaml.safe_load(Path(self.settings.template).read_text(encoding="utf-8"))
        metadata, spec = pod.setdefault("metadata", {}), pod["spec"]
        metadata.pop("generateName", None)
        metadata["name"] = host_id
        metadata.setdefault("labels", {}).update({"edt.host": host_id, "edt.mark": self.mark})
        spec["restartPolicy"] = "Never"  # another pod has another id
        spec.setdefault("terminationGracePeriodSeconds", NOTICE)
        # Any account in the pod may read it: it is spent when the agent has joined.
        secret = {"secretName": host_id, "defaultMode": 0o444}
        spec.setdefault("volumes", []).append({"name": "edt-token", "secret": secret})
        container = spec["containers"][0]
        mount = {"name": "edt-token", "mountPath": _TOKEN_FOLDER, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        container["command"] = self._join(host_id, f"{_TOKEN_FOLDER}/token")
        container.pop("args", None)
        return pod

    async def _admit(self, host_id: str, token: str) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": host_id, "uid": self._uids[host_id]}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": host_id, "ownerReferences": [owner]},
            "stringData": {"token": token},
        }
        # A conflict: an earlier server has made it.
        await self._ask("POST", "secrets", secret, fine=409)

    async def _stop(self, host_id: str) -> None:
        await self._ask("DELETE", f"pods/{host_id}", fine=404)

    async def _ask(self, method: str, path: str, body: Any = None, *, fine: int = 0) -> Any:
        return await asyncio.to_thread(self._asked, method, path, body, fine)

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self.settings.ca_file or None)
        # No proxy: the API server is in the same network.
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def _asked(self, method: str, path: str, body: Any, fine: int) -> Any:
        settings = self.settings
        request = urllib.request.Request(
            f"{settings.api}/api/v1/namespaces/{settings.namespace}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            method=method,
        )
        try:
            if settings.token_file:
                # Read again each time: the cluster replaces it every hour.
                token = Path(settings.token_file).read_text(encoding="utf-8").strip()
                request.add_header("Authorization", f"Bearer {token}")
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as wrong:
            if wrong.code == fine:
                return None
            raise EngineTrouble(f"Kubernetes has refused {method} {path}: {_message(wrong)}") from None
        except (OSError, ValueError) as wrong:
            raise EngineTrouble(f"Kubernetes cannot be asked: {wrong}.") from None


def _message(wrong: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(wrong)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{wrong.code} {wrong.reason}."


def _machine(name: str, pod: dict[str, Any]) -> Provided:
    """Return how a pod stands."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    phase = status.get("phase", "Pending")
    if phase in ("Succeeded", "Failed"):
        why = status.get("message") or status.get("reason") or f"Its pod has {phase.lower()}."
        return Provided(name, ProvidedState.GONE, why)
    if (deletion := metadata.get("deletionTimestamp")) is not None:
        # The time by which the pod is gone, with its grace period.
        until = datetime.fromisoformat(deletion).timestamp()
        return Provided(name, ProvidedState.DRAINING, "Its pod is being deleted.", until)
    if phase == "Running":
        return Provided(name, ProvidedState.UP)
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses", [])]
    reasons = [each.get("reason", "") for each in waiting]
    reasons += [each.get("message", "") for each in status.get("conditions", []) if each.get("status") == "False"]
    why = next(filter(None, reasons), "")
    placed = pod["spec"].get("nodeName")
    return Provided(name, ProvidedState.STARTING if placed else ProvidedState.ASKED, why)
