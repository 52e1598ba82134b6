"""Make the providers that c.EdtApp.providers names, after a check of their settings."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_server.providers.kubernetes import KubernetesProvider, KubernetesSettings
from edt_server.providers.level import LevelProvider
from edt_server.providers.provider import Admission, Provider, ProviderSettings
from edt_server.providers.ray import RayProvider, RaySettings
from edt_server.providers.slurm import SlurmProvider, SlurmSettings
from edt_server.providers.ssh import SshProvider, SshSettings

_Make = Callable[[str, Any, Admission, str], LevelProvider[Any]]
_KINDS: dict[str, tuple[type[ProviderSettings], _Make]] = {
    "kubernetes": (KubernetesSettings, KubernetesProvider),
    "ray": (RaySettings, RayProvider),
    "slurm": (SlurmSettings, SlurmProvider),
    "ssh": (SshSettings, SshProvider),
}
# It begins the names of jobs, pods, actors and files, and a pod allows the least.
_MARK = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


def make_provider(name: str, settings: Mapping[str, Any], admission: Admission, *, mark: str = "edt") -> Provider:
    """Return a provider, which does nothing before it is asked for machines.

    Args:
        name: its name in c.EdtApp.providers, which is also its kind unless the settings have a `kind`.
        settings: its settings there.
        admission: what its machines join by.
        mark: what begins the ids of its machines. A provider takes every machine with its mark for its own, so two
            servers that share an engine need two marks, and one server keeps its mark over restarts.

    Raises:
        Unprocessable: the settings are wrong, or a package is missing.
    """
    settings = dict(settings)
    kind = settings.pop("kind", name)
    if kind not in _KINDS:
        raise _refused(f"There is no provider {kind!r}.", f"There are {', '.join(_KINDS)}. Another name needs a kind.")
    if not _MARK.fullmatch(mark):
        raise _refused(f"{mark!r} cannot begin the names of machines.", "It has up to 30 of a-z, 0-9 and -.")
    form, make = _KINDS[kind]
    try:
        checked = msgspec.convert(settings, form)
    except msgspec.ValidationError as wrong:
        there = ", ".join(form.__struct_fields__)
        raise _refused(f"The settings of the provider {name} are wrong: {wrong}.", f"There are {there}.") from None
    if isinstance(checked, RaySettings) and not checked.driver and importlib.util.find_spec("ray") is None:
        raise _refused("The provider ray needs Ray.", 'Install it: pip install "jupyter-edt[ray]".')
    return make(name, checked, admission, mark)


def _refused(message: str, hint: str = "") -> Unprocessable:
    return Unprocessable(message, hint=hint, field="providers")
