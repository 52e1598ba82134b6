"""One engine of each kind for all tests of a process, because the real ones take seconds to start."""

import pytest

from tests.server.providers.fake import FakeEngine
from tests.server.providers.kube import KubernetesEngine
from tests.server.providers.ray_cluster import RayEngine
from tests.server.providers.slurm_cluster import SlurmEngine
from tests.server.providers.sshd import SshEngine

KINDS = {each.kind: each for each in (FakeEngine, SshEngine, SlurmEngine, KubernetesEngine, RayEngine)}


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Return what starts an engine, or returns the one that runs. It skips the test where the engine cannot run."""
    engines, missing = {}, {}

    def start(kind):
        if kind in missing:
            pytest.skip(missing[kind])
        if kind not in engines:
            try:
                engines[kind] = KINDS[kind](tmp_path_factory.mktemp(kind))
            except pytest.skip.Exception as why:
                missing[kind] = str(why)
                raise
        return engines[kind]

    yield start
    for engine in engines.values():
        engine.close()


def _engine(kind):
    @pytest.fixture
    def engine(started):
        found = started(kind)
        found.renew()
        yield found
        found.heal()
        found.clean()

    return engine


fake, ssh, slurm, kubernetes, ray = map(_engine, ("fake", "ssh", "slurm", "kubernetes", "ray"))


# Real engines take minutes, and packages of the system: make test-long.
LONG = ("ssh", "slurm", "ray")


@pytest.fixture(params=[pytest.param(kind, marks=[pytest.mark.long] if kind in LONG else []) for kind in KINDS])
def engine(request):
    """Each engine in turn."""
    return request.getfixturevalue(request.param)
