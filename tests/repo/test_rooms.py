"""Which room may import which, and that rooms meet through their faces only.

A room is a folder of the source. Its face, `__init__.py`, lists in `__all__` at most twelve names that other rooms may
import: objects, or modules of the room. Everything else in a room is private to it. Decision 036 says why modules count
as names.
"""

from __future__ import annotations

import ast
import graphlib
from collections import defaultdict

import pytest

from tests.repo.test_import_circles import PACKAGES, modules

MOST_NAMES = 12
# How many modules may lie loose next to rooms, most of them programs that are started by name.
LOOSE = {"edt_server": 2, "edt_sdk": 4, "edt_sdk.training": 5, "edt_jupyter": 4, "edt_server.supervisor": 9}
# Which rooms a room imports. A name without its package is a room of the same one. Every room may import the schemas.
ARROWS = """
edt_jupyter.api: edt_sdk.packing edt_sdk.pictures edt_sdk.pictures.parts edt_server.history edt_server.jobs edt_server.outputs edt_server.service http
edt_jupyter.app: api edt_server.fleet edt_server.leadership edt_server.service edt_server.settings edt_server.store edt_server.system front_ends group_setting http wmla
edt_jupyter.http: edt_sdk.packing edt_server.service edt_server.store
edt_jupyter.wmla: api edt_server.catalogue edt_server.jobs edt_server.store edt_server.system edt_server.wmla edt_server.wmla.inference http
edt_sdk.cli: client display formatting http pictures.parts torchrun.command_line
edt_sdk.client: display formatting http monitor packing torchrun.command_line training.checkpoints waiting
edt_sdk.display: formatting http packing pictures pictures.parts
edt_sdk.elastic: training.calls training.checkpoints training.exchange training.member training.records training.sampling training.state training.update training.user
edt_sdk.fabric: client formatting notebook packing training.calls training.checkpoints training.member training.sampling training.user
edt_sdk.formatting: pictures.parts
edt_sdk.lightning: elastic
edt_sdk.monitor: display formatting http waiting
edt_sdk.notebook: client display formatting http monitor packing pictures.parts torchrun.command_line waiting
edt_sdk.pictures: pictures.parts
edt_sdk.testing: client keeper
edt_sdk.serving: training training.calls training.checkpoints training.member training.state training.user
edt_sdk.torchrun: training training.exchange training.member
edt_sdk.training: training.calls training.checkpoints training.exchange training.member training.records training.sampling training.update training.user training.validation
edt_sdk.training.calls: client display training.member training.records training.state training.user
edt_sdk.training.checkpoints: training.records training.sampling training.state
edt_sdk.training.exchange: training.sampling
edt_sdk.training.member: training.checkpoints training.exchange training.records training.sampling training.state training.update training.user training.validation
edt_sdk.training.records: training.exchange training.sampling training.update
edt_sdk.training.state: training.exchange
edt_sdk.training.update: training.exchange training.sampling training.state
edt_sdk.training.user: callbacks formatting training.exchange training.records training.sampling training.state training.update
edt_sdk.training.validation: training.checkpoints training.exchange training.state training.update training.user
edt_sdk.transformers: elastic
edt_sdk.waiting: display formatting http packing
edt_server.agent: files messaging supervisor supervisor.processes supervisor.programs supervisor.state_machines system
edt_server.catalogue: edt_sdk.packing files ledger settings store system
edt_server.channel: catalogue files fleet ledger messaging settings store supervisor supervisor.programs system
edt_server.deployments: system
edt_server.files: system
edt_server.fleet: files messaging settings system
edt_server.history: edt_sdk.pictures edt_sdk.pictures.parts outputs
edt_server.jobs: catalogue edt_sdk.packing files ledger settings store system
edt_server.leadership: store system
edt_server.ledger: core history store system
edt_server.outputs: edt_sdk.pictures.parts
edt_server.service: catalogue channel core deployments edt_sdk.pictures edt_sdk.pictures.parts files fleet history jobs ledger outputs providers searching settings simulator store suggestions system
edt_server.providers: system
edt_server.serving: agent system
edt_server.settings: store system
edt_server.simulator: core edt_sdk.pictures edt_sdk.pictures.parts fleet
edt_server.suggestions: agent searching system
edt_server.supervisor: messaging supervisor.processes supervisor.programs supervisor.state_machines system
edt_server.supervisor.processes: supervisor.state_machines system
edt_server.supervisor.programs: supervisor.processes supervisor.state_machines system wmla
edt_server.wmla: edt_sdk.torchrun.command_line files outputs
edt_server.wmla.inference: catalogue edt_sdk.packing files ledger service settings store wmla
"""  # noqa: E501


def table():
    for line in ARROWS.strip().splitlines():
        room, _, others = line.partition(": ")
        package = room.partition(".")[0]
        yield room, {each if each.partition(".")[0] in PACKAGES else f"{package}.{each}" for each in others.split()}


def room_of(module, paths):
    parent = module.rpartition(".")[0]
    return module if paths[module].name == "__init__.py" or parent in PACKAGES else parent


def imports(root):
    """(importing module, imported module, name or None for the module itself), whatever in the source it stands in."""
    paths = dict(modules(root))
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((module, alias.name, None) for alias in node.names if alias.name in paths)
            elif isinstance(node, ast.ImportFrom) and node.module in paths:
                for alias in node.names:
                    spelled = f"{node.module}.{alias.name}"
                    yield (module, spelled, None) if spelled in paths else (module, node.module, alias.name)


@pytest.fixture(scope="module")
def crossing(root):
    """Every import that leaves its room: (room, room, importing module, imported module, name)."""
    paths = dict(modules(root))
    found = []
    for module, imported, name in imports(root):
        a, b = room_of(module, paths), room_of(imported, paths)
        # The faces of packages are for users; nothing of ours imports WMLA's module names or the migrations.
        if a != b and module not in PACKAGES and ".compat." not in module and ".migrations" not in module:
            found.append((a, b, module, imported, name))
    return found


@pytest.fixture(scope="module")
def faces(root):
    """What the face of each room offers."""
    offered = {}
    for module, path in modules(root):
        if path.name == "__init__.py":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            lists = (n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")
            offered[module] = set(ast.literal_eval(next(lists, ast.List([]))))
    return offered


def test_rooms_import_what_the_table_allows_and_nothing_else(crossing):
    drawn = defaultdict(set)
    for a, b, *_ in crossing:
        if not b.startswith("edt_sdk.schemas"):
            drawn[a].add(b)
    allowed = dict(table())
    assert len(allowed) <= 51
    assert {
        room: sorted(drawn[room] - allowed.get(room, set())) for room in drawn if drawn[room] - allowed.get(room, set())
    } == {}
    assert {room: sorted(allowed[room] - drawn[room]) for room in allowed if allowed[room] - drawn[room]} == {}


def test_no_rooms_import_each_other_by_whatever_way(crossing):
    drawn = defaultdict(set)
    for a, b, *_ in crossing:
        drawn[a].add(b)
    assert len(list(graphlib.TopologicalSorter(drawn).static_order())) > 50


def test_rooms_meet_through_their_faces(crossing, faces):
    past = []
    for _, b, module, imported, name in crossing:
        part = imported.removeprefix(f"{b}.").partition(".")[0] if imported != b else name
        if b in faces and part is not None and part not in faces[b]:  # a loose module is open to all
            past.append(f"{module} imports {imported}{f'.{name}' if name else ''}")
    assert past == []


def test_a_face_is_small_and_says_what_its_room_is_for(faces, root):
    paths = dict(modules(root))
    assert {room: len(names) for room, names in faces.items() if len(names) > MOST_NAMES and room != "edt_sdk"} == {}
    for room in (each for each in faces if each.count(".") and ".compat" not in each and ".migrations" not in each):
        doc = ast.get_docstring(ast.parse(paths[room].read_text(encoding="utf-8"))) or ""
        assert doc.startswith("Own "), f"{room}: the first sentence of a face says what the room owns"
        assert "Never: " in doc, room
        assert "Read first: " in doc, room


def test_few_modules_lie_loose(root):
    paths = dict(modules(root))
    for room, most in LOOSE.items():
        loose = [m for m, p in paths.items() if p.name != "__init__.py" and m.rpartition(".")[0] == room]
        assert len(loose) + 1 <= most + 1, loose
    assert sum(LOOSE.values()) <= 30
