"""Hostile archives: each is refused, or unpacked into nothing but its own folder.

All are small when sent. `CANARY` is the name of the files that traversals try to write outside.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from typing import Any

CANARY = "escaped-from-an-archive"
MAIN = b"print('here')\n"
_BOMB = 300 << 20
_PIECE = 1 << 20


@dataclass(frozen=True)
class Animal:
    """An archive, and the name under which it is sent."""

    name: str
    filename: str
    data: bytes


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"x", **more: Any) -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def _tar(*entries: Any, form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form, errors="surrogateescape") as tar:
        for info, data in (_entry("train.py", data=MAIN), *entries):
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return raw.getvalue()


def _block(name: bytes, size: int, kind: bytes = b"0", link: bytes = b"") -> bytes:
    """A header of a tar, with whatever size."""
    number = b"%011o\0" % size if 0 <= size < 8**11 else struct.pack(">Bxxxq", 0x80 if size >= 0 else 0xFF, size)
    header = bytearray(512)
    header[:100] = name[:100].ljust(100, b"\0")
    header[100:124] = b"0000644\x000000000\x000000000\x00"
    header[124:136] = number
    header[136:148] = b"00000000000\0"
    header[148:156], header[156:157] = b" " * 8, kind
    header[157:257] = link.ljust(100, b"\0")
    header[257:265] = b"ustar\x0000"
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _packed(*pieces: bytes | int) -> bytes:
    """A gzip file of these bytes, and of so many zeros where there is a number: streams in a row count as one."""
    zeros = gzip.compress(bytes(_PIECE))
    return b"".join(zeros * (each // _PIECE) if isinstance(each, int) else gzip.compress(each, 1) for each in pieces)


def _pax(*records: bytes, kind: bytes = b"x") -> bytes:
    text = b""
    for record in records:
        length = len(record) + 3
        while length != len(b"%d %s\n" % (length, record)):
            length = len(b"%d %s\n" % (length, record))
        text += b"%d %s\n" % (length, record)
    return _block(b"PaxHeader", len(text), kind) + text.ljust(-(-len(text) // 512) * 512, b"\0")


def _after_main(*blocks: bytes) -> bytes:
    return _block(b"train.py", len(MAIN)) + MAIN.ljust(512, b"\0") + b"".join(blocks) + bytes(1024)


def _script(text: bytes) -> bytes:
    return _block(b"train.py", len(text)) + text.ljust(-(-len(text) // 512) * 512, b"\0") + bytes(1024)


def _tars() -> dict[str, bytes]:
    link, hard = tarfile.SYMTYPE, tarfile.LNKTYPE
    here, up = f"/tmp/{CANARY}", f"../../../../../../../../tmp/{CANARY}"
    whole = _tar(_entry("other.py", data=bytes(range(256)) * 20))
    plain = {
        "traversal": _tar(_entry(f"../{CANARY}")),
        "traversal, far": _tar(_entry(up)),
        "traversal, inside": _tar(_entry(f"a/../../{CANARY}")),
        "absolute": _tar(_entry(here)),
        "absolute, two slashes": _tar(_entry(f"/{here}")),
        "backslashes": _tar(_entry(f"..\\{CANARY}")),
        "link out": _tar(_entry("out", link, up)),
        "link to /etc/passwd": _tar(_entry("out", link, "/etc/passwd")),
        "file through a link": _tar(_entry("d", link, "/tmp"), _entry(f"d/{CANARY}")),
        "file through a link inside": _tar(_entry("d", link, "."), _entry(f"d/{CANARY}")),
        "file over a link": _tar(_entry("d", link, here), _entry("d")),
        "links in a circle": _tar(_entry("a", link, "b"), _entry("b", link, "a")),
        "link by a link": _tar(_entry("a", link, "b"), _entry("b", tarfile.DIRTYPE), _entry("c", link, "a/../..")),
        "script is a link": _tar(_entry("main.py", link, "/etc/passwd")),
        "empty link": _tar(_entry("a", link, "")),
        "hard link out": _tar(_entry("h", hard, up)),
        "hard link to /etc/passwd": _tar(_entry("h", hard, "/etc/passwd")),
        "hard link to a later file": _tar(_entry("h", hard, "z"), _entry("z")),
        "hard link to itself": _tar(_entry("h", hard, "h")),
        "hard link to a link": _tar(_entry("l", link, "train.py"), _entry("h", hard, "l")),
        "device": _tar(_entry("null", tarfile.CHRTYPE, devmajor=1, devminor=5)),
        "disk": _tar(_entry("disk", tarfile.BLKTYPE, devmajor=8)),
        "FIFO": _tar(_entry("fifo", tarfile.FIFOTYPE)),
        "contiguous": _tar(_entry("c", tarfile.CONTTYPE)),
        "unknown type": _after_main(_block(b"z", 0, b"Z")),
        "deep": _tar(_entry("/".join("d" * 120))),
        "very deep": _tar(_entry("/".join("d" * 20_000))),
        "long name": _tar(_entry("n" * 70_000), form=tarfile.GNU_FORMAT),
        "name of 255 bytes": _tar(_entry("ü" * 127)),
        "long link": _tar(_entry("l", link, "a/" * 2500)),
        "folders that no member names": _tar(*(_entry(f"{n}/" + "/".join("d" * 260)) for n in range(20))),
        "twice": _tar(_entry("a"), _entry("a", data=b"other")),
        "script twice": _tar(_entry("train.py", data=b"other")),
        "folder after file": _tar(_entry("a"), _entry("a/b")),
        "file after folder": _tar(_entry("a/b"), _entry("a")),
        "names without case": _tar(_entry("A"), _entry("a")),
        "escape": _tar(_entry("a\x1b[2Jb")),
        "newline": _tar(_entry("a\nb")),
        "surrogates": _tar(_entry("a\udcff\udcfe"), form=tarfile.GNU_FORMAT),
        "surrogates in a link": _tar(_entry("a", link, "b\udcff"), form=tarfile.GNU_FORMAT),
        "NUL in a pax name": _after_main(_pax(b"path=a\0b"), _block(b"a", 0)),
        "surrogates in a pax name": _after_main(_pax(b"path=a\xff\xfe"), _block(b"a", 0)),
        "right to left": _tar(_entry("a\u202eyp.b")),
        "empty name": _after_main(_block(b"", 0)),
        "dot": _tar(_entry(".", tarfile.DIRTYPE), _entry("./", tarfile.DIRTYPE)),
        "dot as a file": _tar(_entry(".")),
        "setuid": _tar(_entry("run", mode=0o6777, uid=0)),
        "times": _after_main(_pax(b"mtime=1e999", b"atime=nan"), _block(b"a", 0)),
        "pax size": _after_main(_pax(b"size=99999999999"), _block(b"a", 0)),
        "pax size below 0": _after_main(_pax(b"size=-99999999999"), _block(b"a", 0)),
        "pax size is text": _after_main(_pax(b"size=many"), _block(b"a", 0)),
        "pax record too long": _after_main(_block(b"P", 9, b"x"), b"999 a=b\n".ljust(512, b"\0"), _block(b"a", 0)),
        "pax record of 0": _after_main(_block(b"P", 9, b"x"), b"0 a=b\n".ljust(512, b"\0"), _block(b"a", 0)),
        "pax headers in a row": _after_main(*[_pax(b"comment=x")] * 3000),
        "pax global": _after_main(_pax(b"path=../x", kind=b"g"), _block(b"a", 0)),
        "hdrcharset": _after_main(_pax(b"hdrcharset=BINARY", b"path=\xff"), _block(b"a", 0)),
        "sparse": _after_main(
            _pax(b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.realsize=%d" % 2**41, b"GNU.sparse.name=s"),
            _block(b"s", 512),
            b"1\n0\n0\n".ljust(512, b"\0"),
        ),
        "sparse map": _after_main(
            _pax(b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.realsize=9"),
            _block(b"s", 512),
            b"99999999999\n0\n".ljust(512, b"\0"),
        ),
        "sparse map is text": _after_main(
            _pax(b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.realsize=9"),
            _block(b"s", 512),
            b"x\ny\n".ljust(512, b"\0"),
        ),
        "sparse 0.1": _after_main(_pax(b"GNU.sparse.map=0,1,x", b"GNU.sparse.size=%d" % 2**41), _block(b"s", 0)),
        "sparse 0.0": _after_main(_pax(b"GNU.sparse.offset=0", b"GNU.sparse.size=9"), _block(b"s", 0)),
        "old sparse": _after_main(_block(b"s", 0, b"S")),
        "announces more": _block(b"train.py", 5000) + MAIN,
        "announces terabytes": _after_main(_block(b"big", 2**42)),
        "announces 2^63": _after_main(_block(b"big", 2**63 - 1)),
        "size below 0": _after_main(_block(b"big", -512)),
        "size in letters": _after_main(_block(b"a", 0)[:124] + b"zzzzzzzzzzz\0" + _block(b"a", 0)[136:]),
        "without its end": _tar()[:1024],
        "truncated": whole[: len(whole) // 2],
        "truncated header": whole[:700],
        "damaged header": whole[:1100] + b"\xff" + whole[1101:],
        "tail of junk": _tar() + b"junk" * 1000,
        "two in a row": _tar() + _tar(_entry("b")),
        "only zeros": bytes(10240),
        "script too deep to parse": _script(b"x = 1" + b"+1" * 100_000),
        "script of minuses": _script(b"x = " + b"-" * 100_000 + b"1"),
        "script of a megabyte": _script(b"x=1\n" * 240_000),
    }
    packed = {
        "gzip truncated": gzip.compress(whole)[:-20],
        "gzip checksum": gzip.compress(whole)[:-6] + b"\0" * 6,
        "gzip with junk": gzip.compress(_tar()) + b"junk",
        "gzip in gzip": gzip.compress(gzip.compress(_tar())),
        "gzip header": b"\x1f\x8b\x08\xff" + b"\xff" * 40,
        "bomb": _packed(_block(b"train.py", _BOMB), _BOMB, bytes(1024)),
        "bomb after the end": _packed(_tar(), _BOMB),
        "bomb of a pax header": _packed(_block(b"P", _BOMB, b"x"), _BOMB),
        "bomb of a global header": _packed(_block(b"P", _BOMB, b"g"), _BOMB),
        "bomb of a long name": _packed(_block(b"././@LongLink", _BOMB, b"L"), _BOMB),
        "bomb of pax headers in a row": _packed(_pax(b"comment=" + b"x" * 900_000) * 300),
        "bomb of global headers in a row": _packed(
            b"".join(
                _pax(b"%d=" % number + b"x" * 900_000, kind=b"g") + _block(b"a%d" % number, 0) for number in range(99)
            )
        ),
        "bomb of long names": _packed(
            b"".join(_pax(b"path=%d" % number + b"x" * 900_000) + _block(b"a", 0) for number in range(99))
        ),
        "bomb of members": _packed(_block(b"m", 0, b"5") * 20_000),
        "bomb of files": _packed(b"".join(_block(b"f%d" % number, 0) for number in range(6_000))),
        "bomb of hard links": _packed(
            _block(b"train.py", 8 << 20),
            8 << 20,
            b"".join(_block(b"h%d" % number, 0, b"1", b"train.py") for number in range(300)),
        ),
        "bz2": bz2.compress(_tar()),
        "xz": lzma.compress(_tar()),
    }
    return plain | packed


def _zip(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, attributes: int = 0) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as made:
        for name, data in (("train.py", MAIN), *entries):
            info = zipfile.ZipInfo(name)
            info.compress_type, info.external_attr = method, attributes if name != "train.py" else 0
            made.writestr(info, data)
    return raw.getvalue()


def _changed(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """A zip with a field of its last header of this kind changed."""
    changed, at = bytearray(data), data.rfind(signature) + offset
    changed[at : at + len(value)] = value
    return bytes(changed)


@cache
def _zip_bomb() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made, made.open("train.py", "w") as out:
        for _ in range(_BOMB // _PIECE // 3):
            out.write(bytes(_PIECE))
    return raw.getvalue()


def _overlapping(count: int) -> bytes:
    """A zip of many entries with the same bytes: what they inflate to is far more than it announces once."""
    one = _zip(("a", bytes(4 << 20)))
    begin, end = one.rfind(b"PK\x01\x02"), one.rfind(b"PK\x05\x06")
    entry = one[begin:end]
    directory = one[one.find(b"PK\x01\x02") : begin] + b"".join(
        entry[:28] + b"\x05\0" + entry[30:46] + b"a%04d" % number + entry[47:] for number in range(count)
    )
    tail = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, count + 1, count + 1, len(directory), one.find(b"PK\x01\x02"), 0
    )
    return one[: one.find(b"PK\x01\x02")] + directory + tail


def _many_entries(count: int) -> bytes:
    """A zip with a directory of empty files."""
    one = _zip(("a", b""))
    begin, end = one.rfind(b"PK\x01\x02"), one.rfind(b"PK\x05\x06")
    directory = one[begin:end] * count
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), one.find(b"PK\x01\x02"), 0)
    return one[: one.find(b"PK\x01\x02")] + directory + tail


def _zips() -> dict[str, bytes]:
    local, central, end = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
    one, packed = _zip(("a", b"x" * 5000)), _zip(("a", b"x" * 5000), method=zipfile.ZIP_LZMA)
    return {
        "traversal": _zip((f"../{CANARY}", b"x")),
        "traversal, far": _zip((f"../../../../../../../../tmp/{CANARY}", b"x")),
        "absolute": _zip((f"/tmp/{CANARY}", b"x")),
        "backslashes": _zip((f"..\\..\\{CANARY}", b"x")),
        "drive": _zip((f"C:\\{CANARY}", b"x")),
        "link": _zip(("out", b"/etc/passwd"), attributes=0o120777 << 16),
        "device": _zip(("null", b""), attributes=0o020666 << 16),
        "FIFO": _zip(("fifo", b""), attributes=0o010666 << 16),
        "twice": _zip(("a", b"1"), ("b", b"2")).replace(b"b", b"a"),
        "script twice": _zip(("train.pz", b"2")).replace(b"train.pz", b"train.py"),
        "folder with bytes": _zip(("a/", b"bytes")),
        "escape": _zip(("a\x1b[2J", b"x")),
        "surrogates": _zip(("aaaa", b"x")).replace(b"aaaa", b"\xff\xfe\xff\xfe"),
        "surrogates as UTF-8": _changed(
            _changed(_zip(("üüü", b"x")), central, 46, b"\xed\xa0\x80\xed\xa0\x80"),
            local,
            30,
            b"\xed\xa0\x80\xed\xa0\x80",
        ),
        "NUL": _zip(("aXb", b"x")).replace(b"aXb", b"a\0b"),
        "empty name": _changed(_zip(("a", b"")), central, 28, b"\0\0"),
        "deep": _zip(("/".join("d" * 5000), b"x")),
        "long name": _zip(("n" * 60_000, b"x")),
        "in a zip": _zip(("inner.zip", _zip(("a", b"x")))),
        "bomb": _zip_bomb(),
        "bomb that announces one byte": _changed(
            _changed(_zip_bomb(), central, 24, b"\1\0\0\0"), local, 22, b"\1\0\0\0"
        ),
        "bomb of overlaps": _overlapping(2000),
        "bomb of entries": _many_entries(300_000),
        "announces more": _changed(one, central, 24, b"\xff\xff\0\0"),
        "announces 2^32": _changed(one, central, 24, b"\xfe\xff\xff\xff"),
        "wrong checksum": _changed(one, central, 16, b"\0\0\0\0"),
        "wrong offset": _changed(one, central, 42, b"\xf0\xff\xff\x7f"),
        "wrong local name": _changed(one, local, 30, b"b"),
        "encrypted": _changed(_changed(one, central, 8, b"\1\0"), local, 6, b"\1\0"),
        "unknown compression": _changed(_changed(one, central, 10, b"\x63\0"), local, 8, b"\x63\0"),
        "deflate damaged": _changed(one, local, 31, b"\xff" * 8),
        "bzip2": _zip(("a", b"x"), method=zipfile.ZIP_BZIP2),
        "bzip2 damaged": _changed(_zip(("a", b"x" * 500), method=zipfile.ZIP_BZIP2), local, 31, b"\xff" * 20),
        "LZMA": packed,
        "LZMA damaged": _changed(packed, local, 40, b"\xff" * 20),
        "LZMA properties": _changed(packed, local, 33, b"\xff\xff\xff\xff\xff\xff"),
        "LZMA dictionary of 4 GB": _changed(packed, local, 36, b"\xff\xff\xff\xff"),
        "truncated": one[:-30],
        "only an end": one[one.rfind(end) :],
        "end with a wrong size": _changed(one, end, 12, b"\xff\xff\xff\x7f"),
        "end with a wrong offset": _changed(one, end, 16, b"\xff\xff\xff\x7f"),
        "version of the future": _changed(one, central, 6, b"\xff\0"),
        "zip64 without it": _changed(one, end, 12, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        "extra field": _changed(one, central, 30, b"\xff\xff"),
        "comment": _changed(one, end, 20, b"\xff\xff"),
        "junk before": b"junk" * 100 + one,
    }


@cache
def zoo() -> tuple[Animal, ...]:
    """All of them; made once, in a second or two."""
    found = [Animal(f"tar: {name}", "a.tar", data) for name, data in _tars().items()]
    found += [Animal(f"zip: {name}", "a.zip", data) for name, data in _zips().items()]
    junk = {
        "empty": b"",
        "text": b"not an archive" * 100,
        "signature of zip": b"PK\x03\x04",
        "signature of gzip": b"\x1f\x8b",
    }
    found += [Animal(f"{end}: {name}", f"a.{end}", data) for name, data in junk.items() for end in ("tar.gz", "zip")]
    return tuple(found)
