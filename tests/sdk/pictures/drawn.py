"""What every picture must be, whatever it was drawn from: well-formed, inside its frame, and no more than it may be."""

from __future__ import annotations

import math
import re
from itertools import combinations
from xml.etree import ElementTree

from edt_sdk.pictures.parts.lettering import width_of

SVG = "{http://www.w3.org/2000/svg}"
MOST_POINTS = 6000  # numbers in paths and polylines: a few hundred points for each of a dozen curves or bands
MOST_BYTES = 200_000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_COMMAND = re.compile(r"([MLHVhZ])([^MLHVhZ]*)")
_PLACES = {"x": 0, "x1": 0, "x2": 0, "cx": 0, "y": 1, "y1": 1, "y2": 1, "cy": 1}


def check(svg: str, width: int) -> ElementTree.Element:
    """The picture's root element; AssertionError says what is wrong with it."""
    root = ElementTree.fromstring(svg)
    assert len(svg) <= MOST_BYTES, f"{len(svg)} bytes"
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.find(f"{SVG}title").text == root.get("aria-label")
    size = (float(root.get("width")), float(root.get("height")))
    assert size[0] == width
    assert 0 < size[1] < 6000
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    count = sum(_inside(element, place, size) for element, place in _elements(root, (0.0, 0.0)))
    assert count <= MOST_POINTS, f"{count} points"
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def crowding(root: ElementTree.Element) -> list[str]:
    """Texts that lie over each other or over the picture's edge, by the widths of a wide font; none is right."""
    wide = float(root.get("width"))
    boxes = []
    for element, place in _elements(root, (0.0, 0.0)):
        if element.tag == f"{SVG}text":
            size, text = float(element.get("font-size")), element.text or ""
            room = width_of(text, size) * 0.94  # its own widths are a little more than any font's
            x, y = float(element.get("x")) + place[0], float(element.get("y")) + place[1]
            left = x - {"start": 0.0, "middle": room / 2, "end": room}[element.get("text-anchor", "start")]
            boxes.append((left, y - size * 0.75, left + room, y + size * 0.2, text))
    outside = [box[4] for box in boxes if box[0] < -1 or box[2] > wide + 1]
    over = [f"{a[4]} / {b[4]}" for a, b in combinations(boxes, 2) if _overlap(a, b)]
    return [*outside, *over]


def _overlap(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _elements(element, place):
    if element.tag == f"{SVG}defs":
        return
    if moved := re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
        place = (place[0] + float(moved[1]), place[1] + float(moved[2]))
    yield element, place
    for child in element:
        yield from _elements(child, place)


def _inside(element, place, size) -> int:
    """Every coordinate lies on the picture; how many points the element has."""
    for name, axis in _PLACES.items():
        if name in element.attrib and element.tag != f"{SVG}svg":
            value = float(element.get(name)) + place[axis]
            assert math.isfinite(value), (element.tag, element.attrib)
            assert -1 <= value <= size[axis] + 1, (element.tag, element.attrib, size)
    if element.tag == f"{SVG}rect":
        wide, high = float(element.get("width")), float(element.get("height"))
        assert wide >= 0
        assert high >= 0
        assert place[0] + float(element.get("x", 0)) + wide <= size[0] + 1
        assert place[1] + float(element.get("y", 0)) + high <= size[1] + 1
    points = [*_polyline(element), *_path(element)]
    for x, y in points:
        assert -1 <= x + place[0] <= size[0] + 1, (x, size)
        assert -1 <= y + place[1] <= size[1] + 1, (y, size)
    return len(points)


def _polyline(element):
    for pair in element.get("points", "").split():
        x, y = map(float, pair.split(","))
        yield x, y


def _path(element):
    x = y = 0.0
    for command, rest in _COMMAND.findall(element.get("d", "")):
        numbers = [float(each) for each in _NUMBER.findall(rest)]
        assert all(map(math.isfinite, numbers))
        match command:
            case "M" | "L":
                assert len(numbers) == 2
                x, y = numbers
            case "H":
                (x,) = numbers
            case "V":
                (y,) = numbers
        yield x, y
