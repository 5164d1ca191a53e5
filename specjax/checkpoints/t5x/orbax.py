"""Orbax's format, as T5X writes it: a tree in `_METADATA`, arrays in folders or OCDBT.

OCDBT keeps the files of all arrays in one database. Early Orbax has a msgpack file
`checkpoint` in place of `_METADATA`, with a placeholder for each array.
"""

import json

import tensorstore as ts

from specjax.checkpoints.t5x import store
from specjax.checkpoints.t5x.native import PLACEHOLDER

COMMIT, STARTED = "commit_success.txt", "_CHECKPOINT_METADATA"
MANIFEST = "manifest.ocdbt"
INDEX = {"total_bytes_limit": 2**23}  # of a database's index, read for each array


def is_committed(folder: ts.KvStore, has_final_name: bool) -> bool:
    """Returns whether Orbax finished writing a checkpoint's folder."""
    if store.exists(folder, COMMIT):
        return True
    started = store.content(folder, STARTED)
    return has_final_name and (started is None or _has_finish_time(started))


def arrays_folder(folder: ts.KvStore) -> ts.KvStore:
    """Returns where the folders of a checkpoint's arrays are: in it, or in its
    database."""
    if not store.exists(folder, MANIFEST):
        return folder
    spec = {"driver": "ocdbt", "base": folder.spec().to_json(), "cache_pool": INDEX}
    return ts.KvStore.open(spec, context=store.CONTEXT).result()


def parse(data: bytes, where: str) -> dict[str, str]:
    """Returns the placeholders of the arrays that a `_METADATA` names, by their paths
    joined by slashes. Raises ValueError for a file of another kind."""
    try:
        fields = json.loads(data)
        nodes = fields["tree_metadata"].values()
        paths = [[str(part["key"]) for part in node["key_metadata"]] for node in nodes]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} is not Orbax's, copy it again: {error!r}") from None
    if fields.get("use_zarr3"):
        raise ValueError(f"{where}: its arrays are zarr 3; save it again as zarr 2")
    return {"/".join(path): PLACEHOLDER + ".".join(path) for path in paths}


def _has_finish_time(started: bytes) -> bool:
    try:
        return json.loads(started).get("commit_timestamp_nsecs") is not None
    except ValueError:
        return False
