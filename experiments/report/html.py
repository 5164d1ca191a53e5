"""Pages of HTML, and the cells, tables and drawings that stand on them."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from experiments.report.claims.claims import VERDICTS

STYLE = Path(__file__).with_name("page.css")

NONE = "\N{EN DASH}"  # a cell with nothing to say
SHORT, LONG = 20, 60  # characters: never broken up to SHORT, wide beyond LONG
WIDE = 480  # points; a wider figure keeps its letters and scrolls on its own
MANY = 4  # lines after the first that fold away
SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def prose(text: str) -> str:
    """Text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def kind(text: str) -> str:
    """How a cell is shown, by what it holds."""
    if text in VERDICTS:
        return f"verdict {re.sub('[ ,]+', '-', text)}"
    if text.startswith(("STALE", "DIFFERS")):
        return "warning"
    if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?( %)?", text):
        return "number"
    if text == NONE:
        return "none"
    return "long" if len(text) > LONG else "short" if len(text) <= SHORT else "middle"


def cell(text: str, side: str) -> str:
    """One cell; of many lines only the first stands there, the rest folds away."""
    first, *rest = text.split("\n")
    inner = prose(text)
    if len(rest) >= MANY:
        more = "\n".join(map(prose, rest))
        inner = f"{prose(first)}<details><summary>each</summary>{more}</details>"
    return f'<td class="{kind(text)} {side}">{inner}</td>'


def numeric(column: Sequence[str]) -> bool:
    """Whether a column holds numbers, where it holds anything."""
    return all(kind(text) in ("number", "none") or text == "not run" for text in column)


def filled(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """No cell is blank."""
    return [[text or NONE for text in row] for row in rows]


def document(title: str, head: str, main: str) -> str:
    """A whole page that needs nothing but itself; head, main: HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text('utf-8')}</style>"
        f"\n</head>\n<body>\n<header>\n<h1>{prose(title)}</h1>\n{head}</header>\n"
        f"<main>\n{main}</main>\n</body>\n</html>\n"
    )


def section(name: str, title: str, text: str) -> str:
    return f'<section id="{name}">\n<h2>{prose(title)}</h2>\n{text}</section>\n'


def drawing(name: str, svg: str, caption: str) -> str:
    """A figure in a frame that scrolls where it is wide."""
    size = float(re.search(r'viewBox="\S+ \S+ (\S+)', svg)[1])
    return (
        f'<figure class="{"wide" if size > WIDE else "narrow"}">\n'
        f'<div class="scroll" tabindex="0" role="region"'
        f' aria-labelledby="{name}-drawing-is">{inline(svg, f"{name}-drawing")}</div>\n'
        f'<figcaption id="{name}-drawing-is">{prose(caption)}</figcaption></figure>\n'
    )


def grid(
    name: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """A table in a frame that scrolls; `name` is unique on the page."""
    sides = [
        "right" if numeric(column) else "left" for column in zip(*rows, strict=True)
    ] or ["left"] * len(head)
    columns = "".join(
        f'<th scope="col" class="{side}">{prose(text)}</th>'
        for text, side in zip(head, sides, strict=True)
    )
    lines = "".join(
        f'<tr><th scope="row">{prose(first)}</th>'
        f"{''.join(map(cell, rest, sides[1:]))}</tr>\n"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}-is">\n'
        f'<table id="{name}"><caption id="{name}-is"><span>'
        f"{prose(caption)}</span></caption>\n"
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n{lines}</tbody></table>\n</div>\n"
    )


def inline(text: str, name: str) -> str:
    """An SVG file as an element of the page; its ids and its style stay its own."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in parent.findall(f"{{{SVG}}}metadata"):
            parent.remove(child)
    for node in root.iter():
        if node.tag == f"{{{SVG}}}style":
            node.text = scoped(node.text or "", name)
        for key, value in node.attrib.items():
            if key == "id":
                node.set(key, f"{name}-{value}")
            elif key.endswith("href") or "url(#" in value:
                node.set(key, renamed(value, name))
    root.set("id", name)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-is")
    return ElementTree.tostring(root, encoding="unicode")


def renamed(value: str, name: str) -> str:
    """References to the drawing's own ids: `#a` and `url(#a)`."""
    return re.sub(r"(^|url\()#", rf"\1#{name}-", value)


def scoped(style: str, name: str) -> str:
    """Rules that would otherwise hold for the whole page, for one drawing alone."""

    def within(rule: re.Match) -> str:
        several = (f"#{name} {selector.strip()}" for selector in rule[1].split(","))
        return f"{', '.join(several)} {{"

    return re.sub(r"([^{}]+)\{", within, renamed(style, name))
