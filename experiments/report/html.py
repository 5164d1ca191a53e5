"""HTML pages made from the templates beside this file: their cells and drawings."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from xml.etree import ElementTree
from xml.sax import saxutils

import jinja2
from markupsafe import Markup

from experiments.report import typeset
from experiments.report.claims.claims import VERDICTS
from experiments.report.typeset import NONE, Grid

TEMPLATES = Path(__file__).with_name("templates")
SHORT, LONG = 20, 60  # characters: never broken up to SHORT, wide beyond LONG
SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def render(name: str, **values) -> str:
    """Returns a page made from the template with this name; texts are escaped."""
    return environment().get_template(f"{name}.html").render(**values)


@cache
def environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    strict = {"undefined": jinja2.StrictUndefined, "trim_blocks": True}
    made = jinja2.Environment(loader=loader, autoescape=True, **strict)
    made.filters |= {"prose": prose, "kind": kind, "width": width}
    made.policies["json.dumps_kwargs"] = {}  # in the order that it has
    made.filters["xml"] = lambda text: Markup(saxutils.escape(text))
    made.globals |= {"drawing": drawing, "sides": sides, "none_said": NONE}
    return made


def prose(text: str) -> Markup:
    """Returns text as HTML, with the text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def kind(text: str) -> str:
    """Returns the CSS class of a cell, which depends on its content."""
    if text in VERDICTS:
        return f"verdict {re.sub('[ ,]+', '-', text)}"
    if text.startswith(("STALE", "DIFFERS")):
        return "warning"
    if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?( %)?", text):
        return "number"
    if text in ("", NONE):
        return "none"
    return "long" if len(text) > LONG else "short" if len(text) <= SHORT else "middle"


def sides(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the alignment of columns; columns that hold numbers are aligned to the
    right.
    """
    shown = [["" if text == NONE else text for text in row] for row in rows]
    letters = typeset.alignments(Grid("", [*head], shown))
    return ["right" if letter == "r" else "left" for letter in letters]


def width(svg: str) -> float:
    return float(re.search(r'viewBox="\S+ \S+ (\S+)', svg)[1])


def drawing(folder: Path, name: str) -> Markup | None:
    """Returns an SVG file of a folder as an element of the page, with its ids and style
    made unique; None if it was not drawn.
    """
    path, own = folder / f"{name}.svg", f"{name}-drawing"
    if not path.exists():
        return None
    root = ElementTree.fromstring(path.read_text("utf-8"))
    for parent in list(root.iter()):
        for child in parent.findall(f"{{{SVG}}}metadata"):
            parent.remove(child)
    for node in root.iter():
        if node.tag == f"{{{SVG}}}style":
            node.text = scope_style(node.text or "", own)
        for key, value in node.attrib.items():
            if key == "id":
                node.set(key, f"{own}-{value}")
            elif key.endswith("href") or "url(#" in value:
                node.set(key, rename_ids(value, own))
    for key, value in {
        "id": own,
        "role": "img",
        "aria-labelledby": f"{own}-is",
    }.items():
        root.set(key, value)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def rename_ids(value: str, name: str) -> str:
    """Returns a value in which references to ids, `#a` and `url(#a)`, point to the
    drawing's renamed ids.
    """
    return re.sub(r"(^|url\()#", rf"\1#{name}-", value)


def scope_style(style: str, name: str) -> str:
    """Returns style rules that apply to one drawing and not to the whole page."""

    def add_scope(rule: re.Match) -> str:
        several = (f"#{name} {selector.strip()}" for selector in rule[1].split(","))
        return f"{', '.join(several)} {{"

    return re.sub(r"([^{}]+)\{", add_scope, rename_ids(style, name))
