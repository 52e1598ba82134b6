"""Build the OpenAPI description: paths from `openapi.yaml`, the schemas of structs from the structs themselves."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from edt_sdk.schemas import (
    catalogue,
    events,
    fields,
    forecast,
    hosts,
    job,
    plan,
    registered,
    torchrun,
    validation,
)
from edt_sdk.schemas.experiments import runs
from edt_sdk.schemas.search import spec, views
from edt_sdk.schemas.serving import deployments, versions
from edt_server.outputs import logs

_STRUCTS: tuple[type[msgspec.Struct], ...] = (
    *(job.JobSpec, job.JobPatch, job.JobResume, job.JobView, job.JobProgress, job.Reason),
    *(torchrun.TorchrunOptions, registered.WmlaRequest, registered.Registered, validation.Validates),
    *(forecast.Forecast, forecast.Picked, forecast.OfJob, forecast.Preview, forecast.PackedFile),
    *(forecast.WhatIf, forecast.WhatIfShare, events.Event, logs.LoggedLine),
    *(validation.NewValidation, validation.Validated, validation.ClassScores),
    *(catalogue.NewDataset, catalogue.Dataset, catalogue.DatasetDetails, catalogue.FileEntry, catalogue.ModelTraining),
    *(catalogue.NewModel, catalogue.ModelChange, catalogue.Model, catalogue.ModelDetails),
    *(versions.NewVersion, versions.NewFolderVersion, versions.VersionPatch, versions.ModelVersion),
    versions.VersionComparison,
    *(deployments.NewDeployment, deployments.DeploymentPatch, deployments.NewRevision, deployments.DeploymentView),
    *(deployments.NewKey, deployments.DeploymentKey),
    *(runs.ProjectView, runs.ExperimentView, runs.RunTable, runs.RunColumn),
    *(spec.SearchSpec, spec.SearchPatch, spec.NewPoints, spec.OnceMore, views.SearchView, views.RungView),
    *(views.TrialView, views.TrialReport, views.Decision, views.SearchPreview),
    *(hosts.HostView, hosts.HostToken, hosts.NewHostToken, hosts.HostDrain),
    *(plan.Plan, plan.InstanceGroup, plan.ResourceGroup, plan.QuotaUse),
)


def schemas() -> dict[str, Any]:
    """Return the schemas of all structs that cross the API, by name."""
    found = fields.components(_STRUCTS)
    for name in ("InstanceGroup", "ResourceGroup"):
        # A change names the group in its path, and every field of its body is optional.
        named = {field: schema for field, schema in found[name]["properties"].items() if field != "name"}
        found[f"{name}Change"] = {**found[name], "properties": named, "required": []}
    return found


@cache
def document() -> str:
    """Return the description as YAML. The file ends with the schemas that no struct has, and JSON is YAML."""
    lines = (f"    {name}: {msgspec.json.encode(schema).decode()}\n" for name, schema in schemas().items())
    return files("edt_jupyter").joinpath("openapi.yaml").read_text(encoding="utf-8") + "".join(lines)
