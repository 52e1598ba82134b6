"""Display data sets, models, their versions and deployments: a table in a notebook, lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from edt_sdk.formatting.number_words import stamp
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.packing.table import human_bytes
from edt_sdk.schemas.catalogue import Dataset, Model
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.serving.deployments import DeploymentView
from edt_sdk.schemas.serving.versions import ModelVersion

DATASET_HEAD = ("NAME", "TYPE", "KEPT", "FILES", "SIZE", "JOBS", "WHERE")
MODEL_HEAD = ("NAME", "KIND", "FRAMEWORK", "MAIN", "DATA SET", "WORKERS", "TRAININGS")
VERSION_HEAD = ("VERSION", "ALIASES", "METRICS", "JOB", "EPOCH", "CREATED", "SIZE", "DESCRIPTION")
DEPLOYMENT_HEAD = ("NAME", "STATE", "VERSION", "REPLICAS", "SPACE", "ADDRESS", "MESSAGE")
_REVISION_HEAD = ("REVISION", "VERSION", "ANSWERS", "SINCE", "BY", "OUTCOME")
_NO_DATASETS = "No data sets yet: client.add_dataset(name, folder) adds one."
_NO_MODELS = "No models yet: client.add_model(name, folder) adds one."


def dataset_cells(item: Dataset) -> tuple[str, ...]:
    """Return the columns of a data set."""
    return (
        item.name,
        item.type,
        item.mode,
        "?" if item.files is None else str(item.files),
        "?" if item.size is None else human_bytes(item.size),
        str(item.jobs),
        item.trouble or (item.path or "(data folder)" if item.mode == "reference" else "(server's copy)"),
    )


def model_cells(item: Model) -> tuple[str, ...]:
    """Return the columns of a model or template."""
    workers, trainings = (str(item.max_workers), str(item.trainings)) if item.kind == "model" else ("", "")
    return (item.name, item.kind, item.framework, item.main, item.dataset or "-", workers, trainings)


def version_cells(item: ModelVersion) -> tuple[str, ...]:
    """Return the columns of a version."""
    return (
        item.id,
        ", ".join(item.aliases),
        metric_words(item.metrics),
        item.job_name or "a folder",
        ("final" if item.sha256 else "") if item.epoch is None else str(item.epoch),
        stamp(item.created),
        human_bytes(item.size) if item.sha256 else "",
        item.trouble or item.description,
    )


def lineage_rows(item: ModelVersion) -> list[tuple[str, str]]:
    """Return what a version came from, a row each, without what is not known or empty."""
    trained = item.sha256 != ""
    rows = [
        ("aliases", ", ".join(item.aliases)),
        ("description", item.description),
        ("tags", ", ".join(item.tags)),
        ("metrics", metric_words(item.metrics)),
        ("job", f"{item.job_name} ({item.job})" if trained else "none: it was made of a folder"),
        ("search", item.search),
        ("epoch", "" if item.epoch is None else str(item.epoch)),
        ("script", " ".join((item.main, *item.args))),
        ("data set", item.dataset),
        ("seed", str(item.seed) if trained else ""),
        ("mode", (item.mode if item.framework == Framework.EDT else item.framework) if trained else ""),
        ("shards", "" if item.shards is None else str(item.shards)),
        ("threads", str(item.threads_per_slot)),
        ("software", ", ".join(f"{name} {number}" for name, number in item.software.items())),
        ("weights", f"{human_bytes(item.size)}, SHA-256 {item.sha256}" if trained else ""),
        ("code", f"SHA-256 {item.code_sha256}"),
        ("trouble", item.trouble),
    ]
    return [row for row in rows if row[1]]


def metric_words(metrics: Mapping[str, float | None]) -> str:
    """Return metrics such as "test_loss 0.1234"; "" for none."""
    return ", ".join(f"{name} {'NaN' if value is None else f'{value:.4g}'}" for name, value in metrics.items())


class DatasetList(list[Dataset]):
    """Lists data sets as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(DATASET_HEAD, list(map(dataset_cells, self))) if self else _NO_DATASETS

    def _repr_html_(self) -> str:
        return html_table(DATASET_HEAD, list(map(dataset_cells, self)), empty=_NO_DATASETS)


class ModelList(list[Model]):
    """Lists models as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(MODEL_HEAD, list(map(model_cells, self))) if self else _NO_MODELS

    def _repr_html_(self) -> str:
        return html_table(MODEL_HEAD, list(map(model_cells, self)), empty=_NO_MODELS)


def deployment_cells(item: DeploymentView) -> tuple[str, ...]:
    """Return the columns of a deployment."""
    replicas = f"{item.ready} of {item.replicas[0]}–{item.replicas[1]}"
    return (item.name, item.state.value, item.version, replicas, item.space, item.url, item.message.partition("\n")[0])


def deployment_rows(item: DeploymentView) -> list[tuple[str, str]]:
    """Return what there is to say about a deployment, a row each, without what is empty."""
    least, most = item.replicas
    counted = [each.requests for each in item.counters.values()]
    answers = sum(sum(each.values()) for each in counted)
    failed = sum(count for each in counted for status, count in each.items() if status >= 500)
    revisions = [each for each in item.revisions if each.share or not each.outcome]
    rows = [
        ("state", item.state.value),
        ("", item.message.partition("\n")[0]),
        ("serves", ", ".join(f"{each.version} ({each.share} %)" for each in revisions) or item.version),
        ("replicas", f"{item.ready} answer, {item.wanted} wanted, {least} to {most}"),
        ("slots", f"{item.slots} at priority {item.priority} in {item.instance_group}"),
        ("requests", f"{answers:,}, {failed:,} of them failed" if answers else "none yet"),
        ("address", item.url),
        ("keys", "public" if item.public else ", ".join(f"{key.name} ({key.id})" for key in item.keys) or "none yet"),
        ("space", item.space),
        ("description", item.description),
    ]
    return [row for row in rows if row[1]]


def revision_table(item: DeploymentView) -> str:
    """Return all revisions of a deployment, the newest first."""
    return text_table(
        _REVISION_HEAD,
        [
            (
                each.number,
                each.version,
                f"{each.share} %" if each.share else "",
                stamp(each.created),
                each.by,
                each.outcome,
            )
            for each in item.revisions
        ],
    )
