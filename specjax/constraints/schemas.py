"""JSON schemas as regular expressions.

outlines-core writes the expression. It passes over what it does not know, and over some
keywords that a text would then break, so that here every keyword is either one that it
follows or refused with a message.
"""

import json
from collections.abc import Mapping
from typing import Any

from specjax.constraints import regular
from specjax.runtime.console import shorten

# What may stand beside a type. Whatever else is in a schema changes what it means.
OF_TYPE: dict[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": frozenset(),
    "number": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
NOTES = frozenset("title description default examples deprecated $comment".split())
NOTES |= frozenset("$schema $id $defs definitions readOnly writeOnly".split())
# What says all of a value, and what may stand beside it.
WHOLE = {"enum": {"enum", "type"}, "const": {"const", "type"}}
WHOLE |= {"anyOf": {"anyOf"}, "$ref": {"$ref"}}
CLASSES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "null": type(None),
}
CLASSES |= {"array": list, "object": dict}
FORMATS = ("uuid",)
ESCAPED = {*b'"\\', *range(0x20)}  # bytes that JSON writes otherwise within a string
ELSE = "a grammar can have it: grammar='start: %json {...}'"
TOO_DEEP = "schema is nested too deeply: write it flatter"


def to_regex(text: str) -> str:
    """Returns the regular expression of the JSON texts that a schema allows.

    Properties are written in the schema's order, and none beside them; between parts
    there is at most one space, and a string has no \\u escapes. So each text is valid,
    and not every valid text is written.

    Args:
      text: the schema, as JSON.

    Raises:
      ValueError: it is not a JSON schema, or has a keyword that is not supported here;
        in one line.
    """
    try:
        read = json.dumps(read_text(text))
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    module = regular.outlines_core("schema").json_schema
    try:
        return module.build_regex_from_schema(read)
    except (ValueError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"schema cannot be followed: {shorten(first)}") from None


def read_text(text: str) -> dict:
    """Returns the schema that a text is, as `resolve` does. Raises ValueError for a
    text that is not JSON."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ValueError(f"schema is not JSON: {error}") from None
    return resolve(schema, at="#", root=schema, within=())


def resolve(schema: Any, *, at: str, root: Any, within: tuple[str, ...]) -> dict:
    """Returns a schema with references replaced and notes removed, after a check that
    all of its keywords are supported.

    Args:
      schema: a part of the whole.
      at: its place, for messages.
      root: the whole.
      within: the references that led here.

    Raises:
      ValueError: there is another keyword, or an invalid value.
    """
    if not isinstance(schema, Mapping):
        raise ValueError(f"schema at {at} is not an object: say which type it has")
    said = {name: x for name, x in schema.items() if name not in NOTES}
    for name in WHOLE:
        if name in said:
            check_keywords(said, allowed=WHOLE[name], at=at)
            if name in ("enum", "const"):
                return read_enum(said, at=at)
            reader = read_any if name == "anyOf" else read_reference
            return reader(said[name], at=at, root=root, within=within)
    kinds = said.get("type")
    if isinstance(kinds, list) and kinds:
        each = [said | {"type": kind} for kind in kinds]
        return read_any(each, at=at, root=root, within=within)
    if not isinstance(kinds, str) or kinds not in OF_TYPE:
        names, shown = ", ".join(OF_TYPE), shorten(repr(kinds))
        raise ValueError(f"schema at {at} has type {shown}: write one of {names}")
    check_keywords(said, allowed=OF_TYPE[kinds] | {"type"}, at=at)
    if kinds == "string":
        return read_string(said, at=at)
    if kinds == "array":
        return read_array(said, at=at, root=root, within=within)
    if kinds == "object":
        return read_object(said, at=at, root=root, within=within)
    return {"type": kinds}


def check_keywords(
    said: Mapping[str, Any], *, allowed: set | frozenset, at: str
) -> None:
    """Raises ValueError for the first keyword that is not allowed."""
    for name in said:
        if name not in allowed:
            raise ValueError(
                f"schema at {at} has {name!r}, which is not followed: {ELSE}"
            )


def read_any(
    each: Any, *, at: str, root: Any, within: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the schema of a value that must match one of several schemas."""
    if not isinstance(each, list) or not each:
        raise ValueError(f"schema at {at} has anyOf without schemas: list some")
    read = [
        resolve(part, at=f"{at}/anyOf/{i}", root=root, within=within)
        for i, part in enumerate(each)
    ]
    return {"anyOf": read}


def read_reference(
    name: Any, *, at: str, root: Any, within: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the schema that a reference names."""
    if name in within:
        raise ValueError(f"schema at {at} refers to itself by {name!r}: {ELSE}")
    part = root
    if not isinstance(name, str) or not name.startswith("#"):
        raise ValueError(f"schema at {at} refers to {name!r}: write '#/$defs/NAME'")
    for key in filter(None, name[1:].split("/")):
        if not isinstance(part, Mapping) or key not in part:
            raise ValueError(f"schema at {at} refers to {name!r}, which is not there")
        part = part[key]
    return resolve(part, at=name, root=root, within=(*within, name))


def read_enum(said: Mapping[str, Any], *, at: str) -> dict[str, Any]:
    """Returns the schema of a value that must be one of a list, or equal to a
    constant."""
    values = [said["const"]] if "const" in said else said["enum"]
    if not isinstance(values, list) or not values:
        raise ValueError(f"schema at {at} has enum without values: list some")
    kinds = said.get("type", [*OF_TYPE])
    for value in values:
        if not fits(value, kinds if isinstance(kinds, list) else [kinds]):
            raise ValueError(
                f"schema at {at} has the value {shorten(repr(value))}, which is not of"
                f" type {kinds}: change one of them"
            )
    return {"enum": values}


def fits(value: Any, kinds: list) -> bool:
    """Returns whether a value of JSON has one of these types."""
    if isinstance(value, bool):
        return "boolean" in kinds
    for kind, classes in CLASSES.items():
        if kind in kinds and isinstance(value, classes):
            return True
    return False


def read_string(said: Mapping[str, Any], *, at: str) -> dict[str, Any]:
    """Returns the schema of a string: of a length, of a pattern, or of a format."""
    ways = [name for name in ("pattern", "format") if name in said]
    if len(ways) > 1 or (ways and len(said) > 2):
        raise ValueError(
            f"schema at {at} has {ways[0]} beside other limits: write one pattern"
        )
    if "format" in said and said["format"] not in FORMATS:
        raise ValueError(
            f"schema at {at} has format {said['format']!r}, which is not followed:"
            " write a pattern"
        )
    check_bounds(said, "minLength", "maxLength", at=at)
    if "pattern" not in said:
        return dict(said)
    pattern = said["pattern"]
    if not isinstance(pattern, str):
        raise ValueError(f"schema at {at} has a pattern that is not text: write one")
    pattern = pattern.removeprefix("^")
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1]
    step = regular.compile_bytes(pattern, what=f"pattern at {at}").step
    used = {*map(int, (step != regular.NO_STATE).any(axis=0).nonzero()[0])}
    if used & ESCAPED:
        raise ValueError(
            f"schema at {at} has a pattern that allows quotes, backslashes or control"
            ' characters: exclude them, as [^"\\\\\\x00-\\x1f] does'
        )
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def read_array(
    said: Mapping[str, Any], *, at: str, root: Any, within: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the schema of an array, whose items all have one schema."""
    if "items" not in said:
        raise ValueError(f"schema at {at} says nothing of its items: give them a type")
    check_bounds(said, "minItems", "maxItems", at=at)
    items = resolve(said["items"], at=f"{at}/items", root=root, within=within)
    return dict(said) | {"items": items}


def read_object(
    said: Mapping[str, Any], *, at: str, root: Any, within: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the schema of an object, which has the named properties alone."""
    properties, required = said.get("properties"), said.get("required", [])
    if not isinstance(properties, Mapping) or not properties:
        raise ValueError(f"schema at {at} names no properties: {ELSE}")
    names = [*properties]
    if not isinstance(required, list) or any(name not in names for name in required):
        raise ValueError(f"schema at {at} requires what is not in its properties")
    if not isinstance(said.get("additionalProperties", False), bool):
        raise ValueError(
            f"schema at {at} has 'additionalProperties' with a schema, which is not"
            f" followed: {ELSE}"
        )
    for name in properties:
        if {*name.encode()} & ESCAPED:
            raise ValueError(
                f"schema at {at} names a property {name!r}: leave quotes, backslashes"
                " and control characters out of names"
            )
    read = {
        name: resolve(part, at=f"{at}/{name}", root=root, within=within)
        for name, part in properties.items()
    }
    return {"type": "object", "properties": read, "required": required}


def check_bounds(said: Mapping[str, Any], least: str, most: str, *, at: str) -> None:
    """Raises ValueError for bounds that are not numbers from 0 on, or not in order."""
    low, high = said.get(least, 0), said.get(most)
    for name, bound in ((least, low), (most, high)):
        if name in said and (type(bound) is not int or bound < 0):
            raise ValueError(f"schema at {at} has {name} {bound!r}: write 0 or more")
    if high is not None and low > high:
        raise ValueError(f"schema at {at} has {least} above {most}: exchange them")
