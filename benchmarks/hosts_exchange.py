"""The exact sum over two machines with two workers each, beside what it was before and beside gloo's all-reduce.

The machines are network namespaces with pids of their own, and the cable between them has a rate. The ways take turns
in one run, over the same vectors. Needs root. Some minutes; `--quick` is one size at one rate. Writes
`.bench/hosts_exchange.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.hosts_members import WAYS  # noqa: E402
from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from tests.network import Network  # noqa: E402

MACHINES, MEMBERS = 2, 2
BESIDE_GLOO = 1.2
RATES, SIZES, ROUNDS = ("1gbit", "400mbit", ""), (8.0, 60.0), 8


def measured(rate: str, megabytes: float, rounds: int) -> dict[str, Any]:
    """Return what the members found at this rate ("" for no limit)."""
    names = [f"machine{number}" for number in range(MACHINES)]
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as folder, Network(*names) as network:
        programs = []
        for number, name in enumerate(names):
            if rate:
                network.limit(name, rate)
            words = [number, MEMBERS, MACHINES, folder, network.addresses[name], megabytes, rounds]
            command = [sys.executable, str(REPOSITORY / "benchmarks" / "hosts_members.py"), *map(str, words)]
            programs.append(network.start(name, command, log=Path(folder) / f"{name}.log"))
        for program in programs:
            program.wait()
        found = Path(folder) / "found.json"
        if not found.exists():
            raise RuntimeError("".join(log.read_text() for log in Path(folder).glob("*.log")))
        result: dict[str, Any] = json.loads(found.read_text())
        return result


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rates, sizes, rounds = (RATES[:1], SIZES[:1], 3) if options.quick else (RATES, SIZES, ROUNDS)
    rows, results, unequal = [["rate", "MB", *(f"{way}, ms" for way in WAYS), "gloo ÷ together"]], [], 0
    for rate in rates:
        for size in sizes:
            found = measured(rate, size, rounds)
            unequal += len(set(found["hashes"].values())) != 1 or found["together"] != "HostsExchange"
            ratio = median(
                gloo / ours for gloo, ours in zip(found["seconds"]["gloo"], found["seconds"]["together"], strict=True)
            )
            figures = [f"{1000 * median(found['seconds'][way]):.0f}" for way in WAYS]
            rows.append([rate or "no limit", f"{size:g}", *figures, f"{ratio:.2f}"])
            results.append({"rate": rate, "megabytes": size, "ratio": ratio, **found})
    print(table(rows))
    checks = [Check("sums whose bits differ", unequal, 0, "at most")]
    for each in results:
        if each["rate"] == "1gbit":
            what = f"gloo's time ÷ ours, {each['megabytes']:g} MB at 1 Gbit/s"
            checks.append(Check(what, each["ratio"], BESIDE_GLOO, "at least"))
    return finish("hosts_exchange", {"results": results}, checks)


if __name__ == "__main__":
    raise SystemExit(main())
