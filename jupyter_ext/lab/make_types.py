"""Write the front end's types from the OpenAPI description: `make types`.

`src/schemas.ts` has those of jobs and slots, `src/catalogue_schemas.ts` those of what has a name in the catalogue.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from edt_jupyter.api.openapi import document

SOURCE = Path(__file__).parent / "src"
# Of which only the catalogue and what is opened from it know.
CATALOGUE = {
    *("ModelVersion", "DeploymentView", "DeploymentState", "DeploymentKey", "Revision", "Counters"),
    *("ProjectView", "ExperimentView", "RunTable", "RunColumn"),
}
HEAD = (
    "/** The server's requests and answers. Generated from the OpenAPI description by `make types`; do not edit. */\n"
)
# What no page builds or reads.
UNUSED = {"JobSpec", "OfJob", "Picked", "TorchrunOptions", "Validates", "WmlaRequest"} | {
    *("Registered", "Runtime", "Serves"),
    *("SearchSpec", "SearchPatch", "SearchPreview", "NewPoints", "OnceMore", "Uniform", "Integer", "Choice"),
    *("TrialReport", "Decision"),
    *("InstanceGroupChange", "ResourceGroupChange", "Plan", "Error", "JobResume"),
    *("DatasetDetails", "ModelChange", "ModelTraining", "NewDataset", "NewModel"),
    *("NewVersion", "NewFolderVersion", "VersionPatch", "VersionComparison"),
    *("NewHostToken", "HostDrain"),
    *("NewDeployment", "DeploymentPatch", "NewRevision", "NewKey"),
}
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def types() -> dict[Path, str]:
    """Return the TypeScript sources by their files."""
    schemas = yaml.safe_load(document())["components"]["schemas"]
    used = schemas.keys() - UNUSED
    catalogue = _declarations(schemas, used & CATALOGUE)
    others = sorted(name for name in used - CATALOGUE if re.search(rf"\bI?{name}\b", catalogue))
    names = ", ".join(name if "enum" in schemas[name] else f"I{name}" for name in others)
    imported = f"import type {{ {names} }} from './schemas';\n" if others else ""
    return {
        SOURCE / "schemas.ts": HEAD + _declarations(schemas, used - CATALOGUE),
        SOURCE / "catalogue_schemas.ts": HEAD + (imported and f"\n{imported}") + catalogue,
    }


def _declarations(schemas: dict[str, Any], names: Iterable[str]) -> str:
    return "".join(f"\n{_declaration(name, schemas[name])}" for name in sorted(names))


def _declaration(name: str, schema: dict[str, Any]) -> str:
    if "enum" in schema:
        values = ", ".join(map(_quoted, schema["enum"]))
        return f"export const {name}s = [{values}] as const;\nexport type {name} = (typeof {name}s)[number];\n"
    return f"{_comment(schema, '')}export interface I{name} {_members(schema, '')}\n"


def _members(schema: dict[str, Any], indent: str) -> str:
    inner = indent + "  "
    required = schema.get("required", ())
    lines = [
        f"{_comment(field, inner)}{inner}{name}{'' if name in required else '?'}: {_type(field, inner)};\n"
        for name, field in schema["properties"].items()
    ]
    return "{\n" + "".join(lines) + indent + "}"


def _comment(schema: dict[str, Any], indent: str) -> str:
    text = " ".join(schema.get("description", "").split()).replace("*/", "* /")
    return f"{indent}/** {text} */\n" if text else ""


def _type(schema: dict[str, Any], indent: str) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in UNUSED:
            return "Record<string, unknown>"
        return name if name.endswith("State") and name != "GroupState" else f"I{name}"
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(_type(each, indent) for each in schema[choice])
    if "enum" in schema or "const" in schema:
        return " | ".join(map(_quoted, schema.get("enum", [schema.get("const")])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": each}, indent) for each in kind)
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(_type(each, indent) for each in schema["prefixItems"]) + "]"
        item = _type(schema["items"], indent) if "items" in schema else "unknown"
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object":
        if "properties" in schema:
            return _members(schema, indent)
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more, indent) if isinstance(more, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


def _quoted(value: Any) -> str:
    return "'" + value + "'" if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    for file, source in types().items():
        file.write_text(source, encoding="utf-8")
        sys.stdout.write(f"{file}\n")
