"""The names that published checkpoints of each family give to tensors and sizes.

Each family has a file of names, `names_gpt2` and the like, which its entry in
`specjax.models.families` names.
"""

import importlib
from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast

from specjax.checkpoints.archive import Names
from specjax.checkpoints.fields import Fields
from specjax.models import families
from specjax.models.families import Family


class NameTable(Protocol):
    """The contents of a file of names.

    Attributes:
      MODEL_TYPES: values of `model_type` in config.json that the file reads.
      READOUT: the last part of the name of a readout's matrix.
      STACKS: a pattern of the names of the tensors in each stack of layers, whose first
        group is the number of the layer; by the field that counts the stack's layers.
    """

    MODEL_TYPES: tuple[str, ...]
    READOUT: str
    STACKS: Mapping[str, str]

    def read_config(self, fields: Fields, dtype: str) -> Any:
        """Returns the configuration that config.json describes, with activations of
        `dtype`. Raises ValueError for one that no model of the family has."""

    def write_config(
        self, config: Any, start: int | None, ends: tuple[int, ...]
    ) -> Fields:
        """Returns the fields of config.json for a configuration and the ids around a
        text. Raises ValueError for what the format has no field for."""

    def ends(self, fields: Fields, config: Any) -> tuple[int | None, tuple[int, ...]]:
        """Returns the id that a text starts with, and those that each end it."""

    def names(self, config: Any, fields: Fields, stored: Collection[str] = ()) -> Names:
        """Returns where each parameter lies in a file that holds `stored`, or in one
        to be written."""


def _import_table(family: Family) -> NameTable:
    module = importlib.import_module(f"specjax.checkpoints.{family.names}")
    return cast(NameTable, module)


BY_FAMILY = {family.name: _import_table(family) for family in families.FAMILIES}
BY_MODEL_TYPE = {
    kind: table for table in BY_FAMILY.values() for kind in table.MODEL_TYPES
}


def of(config: Any) -> NameTable:
    """Returns the names of a configuration's family. Raises ValueError for a
    configuration of no family."""
    return BY_FAMILY[families.of(config).name]
