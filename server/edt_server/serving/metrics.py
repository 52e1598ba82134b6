"""Write the counters as text for Prometheus."""

from __future__ import annotations

import json

from edt_server.serving.edge import Edge

_COUNTERS = {"rows": "rows_total", "batches": "batches_total", "busy": "busy_seconds_total"}
_GAUGES = {"queued": "queued", "waited": "waited_seconds", "replicas": "replicas", "working": "working"}


def exposition(edge: Edge) -> str:
    """Return the counters of all targets, with deployment, revision and version as labels."""
    found = []
    for name, deployment in edge.deployments.items():
        for each in deployment.targets:
            labels = {"deployment": name, "revision": str(each.target.revision), "version": each.target.version}
            # JSON escapes what Prometheus wants escaped: backslashes, quotation marks and line breaks.
            words = ",".join(f"{label}={json.dumps(value, ensure_ascii=False)}" for label, value in labels.items())
            found.append((words, each.counters()))
    lines = ["# TYPE edt_serving_requests_total counter"]
    for words, counters in found:
        for status, count in sorted(counters.requests.items()):
            lines.append(f'edt_serving_requests_total{{{words},status="{status}"}} {count}')
    lines.append("# TYPE edt_serving_latency_seconds histogram")
    for words, counters in found:
        total = sum(counters.requests.values())
        for bound, count in (*counters.latency.items(), ("+Inf", total)):
            lines.append(f'edt_serving_latency_seconds_bucket{{{words},le="{bound}"}} {count}')
        lines.append(f"edt_serving_latency_seconds_sum{{{words}}} {counters.latency_sum:.6f}")
        lines.append(f"edt_serving_latency_seconds_count{{{words}}} {total}")
    for field, name in (_COUNTERS | _GAUGES).items():
        lines.append(f"# TYPE edt_serving_{name} {'counter' if field in _COUNTERS else 'gauge'}")
        lines += [f"edt_serving_{name}{{{words}}} {getattr(counters, field):.10g}" for words, counters in found]
    return "\n".join((*lines, ""))
