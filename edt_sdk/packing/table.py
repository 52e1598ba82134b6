"""Describe what is packed, for people to read before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from edt_sdk.packing.sources import Collected, helper_notes

_SHOWN = 20


def packing_table(collected: Collected, archive_bytes: int) -> str:
    """Return one line per file, largest first when there are many, then sums and notes."""
    files = [(file.name, file.size) for file in collected.listed]
    hidden = len(collected.files) - len(collected.listed)
    helpers = f" with {hidden} small helper module{'s' * (hidden > 1)}" if hidden else ""
    packed = f", {human_bytes(archive_bytes)} compressed{helpers}"
    return listing("Packing", files, collected.main, packed=packed, notes=collected.notes)


def listing(
    what: str, files: Sequence[tuple[str, int]], main: str, *, packed: str = "", notes: Sequence[str] = ()
) -> str:
    """Return a list of files as lines for people.

    Args:
        what: the first word, such as "Packing".
        files: name and bytes of each.
        main: the name of the script among them.
        packed: what follows the sum, about the archive.
        notes: lines below the list.
    """
    shown = sorted(files) if len(files) <= _SHOWN else sorted(files, key=lambda file: -file[1])[: _SHOWN - 1]
    width = max((len(name) for name, _ in shown), default=0)
    lines = [f"  {name:<{width}}  {human_bytes(size):>9}{'  ← main' if name == main else ''}" for name, size in shown]
    total = sum(size for _, size in files)
    if len(shown) < len(files):
        rest = total - sum(size for _, size in shown)
        lines.append(f"  {f'… and {len(files) - len(shown)} smaller files':<{width}}  {human_bytes(rest):>9}")
    noun = "file" if len(files) == 1 else "files"
    head = f"{what} {len(files)} {noun}, {human_bytes(total)}{packed}:"
    told = (*notes, *helper_notes(name for name, _ in files))
    return "\n".join([head, *lines, *(f"  note: {note}" for note in told)])


def human_bytes(size: float) -> str:
    """Return `size` in bytes with a unit, such as "3.2 MB" (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
