"""What a small request can make the server hold: each in a process of its own, whose peak is measured."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST = 50 << 20
BOMB = 300 << 20
BEGIN = f"""
import gzip, io, resource, tarfile
from pathlib import Path
from edt_sdk.schemas.errors import PackageError, TooLarge
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue import intake
from edt_server.settings import Settings
from edt_server.wmla import archive, log_files

folder = Path({{folder!r}})
limits = Settings(data_dir=folder, runtime_dir=folder, max_package_bytes=1 << 30)

class Zeros:
    def __init__(self): self.left = {BOMB}
    def read(self, size=-1):
        count = self.left if size < 0 else min(size, self.left)
        self.left -= count
        return b"#" * count

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def refused(kind, call):
    try:
        call()
    except kind:
        return
    raise SystemExit("it was not refused")

def model():
    with tarfile.open(folder / "model.tar.gz", "w:gz", compresslevel=1) as tar:
        entry = tarfile.TarInfo("main.py")
        entry.size = {BOMB}
        tar.addfile(entry, Zeros())
    return folder / "model.tar.gz"
"""
HEADER = """
header = tarfile.TarInfo("././@PaxHeader")
header.type, header.size = tarfile.XHDTYPE, BOMB
with gzip.open(folder / "job.tar.gz", "wb", compresslevel=1) as sink:
    sink.write(header.tobuf())
    zeros = Zeros()
    while piece := zeros.read(1 << 20):
        sink.write(piece)
parts = [archive.Part("job.tar.gz", folder / "job.tar.gz")]
before = peak()
refused(PackageError, lambda: archive.pack(parts, folder, main="main.py", model_dir="", max_files=9, max_bytes=1 << 30))
parts = [archive.Part("", folder / "job.tar.gz")]
refused(PackageError, lambda: archive.pack(parts, folder, main="a.py", model_dir="m", max_files=9, max_bytes=1 << 30))
"""
UPLOAD = """
source = model()
before = peak()
intake.pack_code(source, "model.tar.gz", None, folder / "code.tar.gz", limits)
refused(TooLarge, lambda: intake.member(folder / "code.tar.gz", "main.py"))
"""
FILE = """
source = model()
before = peak()
assert intake.with_file(source, "more.py", b"print()") == (2, BOMB + 7)
assert intake.member(source, "more.py") == b"print()"
"""
LOG = """
paths = JobPaths(folder, "ann", "job-1")
for place in (paths.streams_dir / "driver.stderr", paths.log_root / "driver-x" / "stdout"):
    place.parent.mkdir(parents=True)
    with place.open("wb") as log:
        log.truncate(BOMB)
before = peak()
for kind in ("outlog", "errlog", "outerrlog"):
    refused(TooLarge, lambda: log_files.training_log(paths, elastic_engine=True, kind=kind, final=True))
refused(TooLarge, lambda: log_files.training_log(paths, elastic_engine=False, kind="outerrlog", final=True))
refused(TooLarge, lambda: log_files.driver_log(paths, "stderr"))
"""


@pytest.mark.parametrize("bomb", [HEADER, UPLOAD, FILE, LOG], ids=["header", "upload", "file", "log"])
def test_a_bomb_takes_little_memory(tmp_path, bomb):
    code = BEGIN.format(folder=str(tmp_path)) + bomb.replace("BOMB", str(BOMB)) + "\nprint(peak() - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) <= MOST
