"""Translate models of Elastic Distributed Inference: their descriptions, packages, runtimes, and what runs of them.

A model of these clients is a deployment of the same name, whose versions are made of the model's package: a kernel,
what it needs, and the description `model.json`. A record keeps what only these clients read back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import SourceFile, collect
from edt_sdk.schemas.catalogue import check_inside, check_name
from edt_sdk.schemas.errors import InvalidRequest, PackageError
from edt_sdk.schemas.registered import DESCRIPTION
from edt_server.catalogue.places import below_data_fs
from edt_server.files import unpack
from edt_server.settings import Settings
from edt_server.store import CatalogueRow
from edt_server.wmla.archive import Part, pack
from edt_server.wmla.inference.runtimes import PYTHON, SCHEMA, RuntimeRecord, checked_pairs

NO_WEIGHTS = ("", "N/A")
# Of a description, with what a client that leaves a field out gets.
_TEXTS = {"schema_version": SCHEMA, "tag": "", "weight_path": "N/A", "model_path": "./", "runtime": PYTHON}
_PAIRS = {"attributes": "key", "mk_environments": "name"}
# What a runtime may want that no process here has.
_ELSEWHERE = ("conda_home", "conda_env_name", "docker_img")


class InferenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model of these clients in the store.

    Attributes:
        model: its description, the fields of model.json.
        profile: where it differs from the default.
        readme: a text for people.
        size: bytes of the package as it was sent.
        started: seconds since the epoch (UTC), None before the first start.
    """

    model: dict[str, Any]
    profile: dict[str, Any] = {}
    readme: str = ""
    size: int = 0
    started: float | None = None


# --- descriptions and packages ----------------------------------------------------------------------------------------


def description(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a model, whole. InvalidRequest names the first field that cannot be used."""
    for field in ("name", "kernel_path"):
        if not isinstance(fields.get(field), str) or not fields[field]:
            raise InvalidRequest(f"{DESCRIPTION} has no {field}.", field=field)
    check_name(fields["name"], "model")
    check_inside(fields["kernel_path"], "kernel_path")
    found = {"name": fields["name"], "kernel_path": fields["kernel_path"]}
    for field, default in _TEXTS.items():
        found[field] = fields.get(field) or default
        if not isinstance(found[field], str):
            raise InvalidRequest(f"{field} is a text, not {found[field]!r:.60}.", field=field)
    for field, key in _PAIRS.items():
        found[field] = checked_pairs(fields.get(field), field, key)
    return found


def pairs(given: object, field: str, key: str) -> list[dict[str, Any]]:
    """Return the list of a description for what clients write as an object, as its JSON, or as a=b,c=d."""
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except ValueError:
            given = dict(each.strip().partition("=")[::2] for each in str(given).split(","))
    if isinstance(given, dict):
        return [{key: name, "value": value} for name, value in given.items()]
    if given and not isinstance(given, list):
        raise InvalidRequest(f"{field} is an object.", field=field)
    return given if isinstance(given, list) else []


def unpacked(archive: Path, folder: Path, limits: Settings) -> tuple[Path, dict[str, Any]]:
    """Unpack the archive of a model below `folder`. Return the folder with its files, and its description. Blocks."""
    most = {"max_files": limits.max_package_files, "max_bytes": limits.max_package_bytes}
    packed = pack([Part("model.tar", archive)], folder, main=DESCRIPTION, model_dir="", **most)
    code = folder / "unpacked"
    unpack(packed.path, code, main="", code_dir="", **most)
    code = code / packed.code_dir
    try:
        fields = json.loads((code / DESCRIPTION).read_bytes())
    except FileNotFoundError:
        raise PackageError(
            f"The archive has no {DESCRIPTION}.", hint="It belongs at the top, or into the only folder.", field="model"
        ) from None
    except (ValueError, RecursionError) as wrong:
        raise PackageError(f"{DESCRIPTION} is not JSON: {wrong}.", field="model") from None
    if not isinstance(fields, dict):
        raise PackageError(f"{DESCRIPTION} is not a JSON object.", field="model")
    return code, description(fields)


def package(
    folder: Path, model: Mapping[str, Any], target: Path, limits: Settings, more: Mapping[str, Path | bytes] = {}
) -> int:
    """Write the package of a model, and return its size in bytes. Blocks.

    Args:
        folder: its files.
        model: its description, which takes the place of any file of that name.
        target: the file to write.
        limits: have the most bytes and files of a package.
        more: further files by their names.

    Raises:
        InvalidRequest, NotFound: the kernel or the weights are not there.
    """
    added = {**more, DESCRIPTION: json.dumps(model, indent=2).encode()}
    found = collect(folder, script=False, most=limits.max_package_files).files
    files = [each for each in found if not each.spare and each.name not in added]
    files += [SourceFile(name, content, _size(content)) for name, content in added.items()]
    names = {each.name for each in files}
    if model["kernel_path"].removeprefix("./") not in names:
        raise InvalidRequest(f"There is no file {model['kernel_path']}.", field="kernel_path")
    weights_elsewhere(model, names, limits)
    with target.open("wb") as sink:
        return write_archive(files, sink, cap=limits.max_package_bytes)


def weights_elsewhere(model: Mapping[str, Any], names: Collection[str], settings: Settings) -> Path | None:
    """Return the weights in the data folder, None for weights in the package (`names`) or none. NotFound."""
    weights = model["weight_path"]
    if weights in NO_WEIGHTS or weights.removeprefix("./") in names:
        return None
    return below_data_fs(settings, weights)


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def for_kernels(
    model: Mapping[str, Any], runtime: RuntimeRecord, profile: Mapping[str, Any], weights: Path | None
) -> bytes:
    """Return model.json as a kernel reads it: with all environment variables, and `weights` of the data folder.

    InvalidRequest where the runtime needs what no process here has.
    """
    wanted = [name for name in _ELSEWHERE if getattr(runtime, name)]
    if wanted:
        raise InvalidRequest(
            f"The runtime {model['runtime']} wants {', '.join(wanted)}: kernels run in the server's own Python.",
            hint=f"Install what the kernel imports there, and use the runtime {PYTHON}.",
            field="runtime",
        )
    given = {each["name"]: each["value"] for each in runtime.envs}
    given |= {each["name"]: each.get("value", "") for each in profile["kernel"]["envs"]}
    given |= {each["name"]: each["value"] for each in model["mk_environments"]}
    variables = [{"name": name, "value": value} for name, value in given.items()]
    place = {} if weights is None else {"weight_path": str(weights)}
    return json.dumps({**model, **place, "mk_environments": variables}, indent=2).encode()


def model_object(row: CatalogueRow, record: InferenceRecord, *, server: str) -> dict[str, Any]:
    """Return a model as these clients see it. `server` is the address that they have reached."""
    return {
        **record.model,
        "uid": row.id,
        "size": record.size,
        "creator": row.owner,
        "create_time": int(row.created),
        "last_updated_time": int(row.changed),
        "started_at": 0 if record.started is None else int(record.started),
        "service_uri": f"{server}/dlim/v1/inference/{row.name}",
    }
