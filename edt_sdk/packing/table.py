"""What is packed, for people to read before it is sent."""

from __future__ import annotations

from edt_sdk.packing.sources import Collected

_SHOWN = 20


def packing_table(collected: Collected, archive_bytes: int) -> str:
    """What is packed, for people: one line a file, largest first when there are many, then sums and notes."""
    files = sorted(collected.files, key=lambda f: f.name)
    shown = files if len(files) <= _SHOWN else sorted(files, key=lambda f: -f.size)[: _SHOWN - 1]
    width = max(len(f.name) for f in shown)
    lines = [
        f"  {f.name:<{width}}  {human_bytes(f.size):>9}{'  ← main' if f.name == collected.main else ''}" for f in shown
    ]
    if len(shown) < len(files):
        rest = sum(f.size for f in files) - sum(f.size for f in shown)
        lines.append(f"  {f'… and {len(files) - len(shown)} smaller files':<{width}}  {human_bytes(rest):>9}")
    total = sum(f.size for f in files)
    noun = "file" if len(files) == 1 else "files"
    head = f"Packing {len(files)} {noun}, {human_bytes(total)}, {human_bytes(archive_bytes)} compressed:"
    return "\n".join([head, *lines, *(f"  note: {note}" for note in collected.notes)])


def human_bytes(size: float) -> str:
    """`size` in bytes with a unit, such as "3.2 MB" (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
