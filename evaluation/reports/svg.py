"""Preparation of an SVG drawing for a page: title, description, unique ids."""

import re
from xml.etree import ElementTree as ET

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def for_page(drawing: bytes, name: str, title: str, description: str) -> str:
    """Return `drawing` without its XML head and metadata, its ids prefixed with `name`.

    Two drawings in one page must not share ids: clip paths and hatches are looked up by id.
    """
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(drawing)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for attribute, value in element.attrib.items():
            element.set(attribute, _renamed(attribute, value, name))
    for index, (kind, text) in enumerate({"title": title, "desc": description}.items()):
        element = ET.Element(f"{{{_SVG}}}{kind}", id=f"{name}-{kind}")
        element.text = text
        root.insert(index, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    return ET.tostring(root, encoding="unicode")


def _renamed(attribute: str, value: str, name: str) -> str:
    if attribute == "id":
        return f"{name}-{value}"
    if attribute.endswith("href"):
        return re.sub(r"^#", f"#{name}-", value)
    return re.sub(r"url\(#", f"url(#{name}-", value)
