"""Folders as T5X has written them, in every layout that it has had, and their contents.

Native ones are written by flax and tensorstore, as T5X does, Orbax's by Orbax; and
they may be in memory, or in a bucket of Google's storage that a folder stands in for.
"""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from flax import serialization
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.checkpoints.t5x import store as t5x_store
from specjax.models import t5

CONFIG = t5.Config(12, 6, 10, 1, 2, num_heads=2, head_width=4)
UNSYNCED = ts.Context({"file_io_sync": False})
V1_0 = CONFIG._replace(gated=False, tied=True)
LARGE = "token_embedder/embedding"  # [12, 6]
KERNEL = re.compile(r".*attention/(query|key|value|out)/kernel")
LAYER = re.compile(r"(encoder|decoder)/layers_\d+/(.+)")


def arrays(config=CONFIG, dtype="float32"):
    """Returns parameters by name, all of them different."""
    flat = flatten_dict(t5.abstract_params(config), sep="/")
    rng = np.random.default_rng(0)
    return {n: rng.normal(size=s.shape).astype(dtype) for n, s in flat.items()}


def nest(flat):
    return unflatten_dict(flat, sep="/")


def zarr(folder, name, array, *, chunks=None, **kvstore):
    """Writes an array as T5X does, and returns what T5X keeps in its tree."""
    metadata = {"chunks": list(chunks or array.shape), "shape": list(array.shape)}
    metadata["compressor"] = {"id": "gzip", "level": 1}
    spec = {"driver": "zarr", "dtype": array.dtype.name, "metadata": metadata}
    place = {"driver": "file", "path": f"{folder}/{name}/"}
    options = dict(create=True, context=UNSYNCED)
    ts.open(spec | {"kvstore": place}, **options).result().write(array).result()
    return spec | {"kvstore": {"driver": "file", "path": f"{name}/"} | kvstore}


def write_tree(file, target):
    state = {"step": np.int32(7), "param_states": {"v": np.ones(3, np.float32)}}
    tree = {"version": 3, "optimizer": {"state": state, "target": target}}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(serialization.msgpack_serialize(tree))


def native(folder, flat, chunks=None):
    target = {}
    for name, array in flat.items():
        place = f"target.{name.replace('/', '.')}"
        target[name] = zarr(
            folder, place, array, chunks=chunks if name == LARGE else None
        )
    write_tree(folder / "checkpoint", nest(target))
    return folder


def one_file(folder, flat):
    write_tree(folder, nest(flat))
    return folder


def inline(folder, flat):
    write_tree(folder / "checkpoint", nest(flat))
    return folder


def orbax(folder, flat, *, ocdbt=True, root="target"):
    """Writes a step with a CheckpointManager that has T5X's options."""
    options = ocp.CheckpointManagerOptions(
        step_prefix="checkpoint", enable_async_checkpointing=False
    )
    handlers = {"state": ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)}
    tree = nest({f"{root}/{n}": jnp.asarray(a) for n, a in flat.items()})
    tree["state"] = {"step": jnp.int32(7)}
    step = int(folder.name.split("_")[1])
    made = dict(options=options, item_handlers=handlers)
    with ocp.CheckpointManager(folder.parent, **made) as manager:
        manager.save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree)))
    return folder


def orbax_folders(folder, flat):
    return orbax(folder, flat, ocdbt=False)


def early_orbax(folder, flat):
    """Writes a folder as Orbax did before `_METADATA`."""
    orbax(folder, flat, ocdbt=False, root="_optimizer/target")
    state = folder / "state"
    for file in (state / "_METADATA", folder / "_CHECKPOINT_METADATA"):
        file.unlink()
    for file in folder.rglob("commit_success.txt"):
        file.unlink()
    names = {f"_optimizer/target/{name}" for name in flat} | {"_optimizer/state/step"}
    marks = {n: f"PLACEHOLDER://{n.replace('/', '.')}" for n in names}
    tree = nest(marks) | {"flax_mutables": None, "params_axes": None}
    (state / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
    return folder


def scalable(flat, axis=1, sizes=CONFIG):
    """Returns arrays as scalable_t5 has them: attention's heads on their own axis, and
    the layers of a stack in one array along `axis`, or in separate arrays if that is
    None.
    """
    arranged = {}
    for name, array in flat.items():
        if (match := KERNEL.fullmatch(name)) is not None:
            at = 0 if match[1] == "out" else 1
            heads = sizes.num_heads, sizes.head_width
            array = array.reshape(*array.shape[:at], *heads, *array.shape[at + 1 :])
        if axis is None or (match := LAYER.fullmatch(name)) is None:
            arranged[name] = array
        else:
            arranged.setdefault(f"{match[1]}/{match[1]}/{match[2]}", []).append(array)
    return {
        name: np.stack(array, axis) if isinstance(array, list) else array
        for name, array in arranged.items()
    }


LAYOUTS = (native, one_file, inline, orbax, orbax_folders, early_orbax)


def read_whole(archive, name):
    return archive.read(name, (slice(None),) * len(archive.arrays[name].shape))


def assert_same(archive, flat):
    assert archive.arrays.keys() == flat.keys()
    for name, array in flat.items():
        content, stored = read_whole(archive, name), archive.arrays[name]
        assert (content == array).all()
        for each in (content, stored):
            assert (each.dtype, each.shape) == (array.dtype, array.shape)


def copy_to_memory(folder, url):
    """Copies a folder to a memory:// URL."""
    store = t5x_store.folder(url)
    for file in folder.rglob("*"):
        if file.is_file():
            store.write(str(file.relative_to(folder)), file.read_bytes()).result()
    return url


@contextmanager
def serve_as_bucket(folder: Path | None, monkeypatch) -> Iterator[list[str]]:
    """Makes a folder available as gs://any-bucket; None may not be read. Yields the
    names of the objects that are read."""
    asked = []

    class Bucket(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            name = re.fullmatch(r"/storage/v1/b/[^/]+/o/?(.*)", url.path)[1]
            if folder is None:
                self.answer(HTTPStatus.FORBIDDEN, b'{"error": {"message": "no"}}')
                return
            if not name:
                self.answer(HTTPStatus.OK, list_objects(url.query))
                return
            asked.append(urllib.parse.unquote(name))
            there = (file := folder / asked[-1]).is_file()
            status = HTTPStatus.OK if there else HTTPStatus.NOT_FOUND
            self.answer(status, file.read_bytes() if there else b"")

        def answer(self, status: HTTPStatus, content: bytes):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("x-goog-generation", "1")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    def list_objects(query: str) -> bytes:
        fields = dict(urllib.parse.parse_qsl(query))
        first, last = (fields.get(f"{end}Offset", "") for end in ("start", "end"))
        files = (path for path in folder.rglob("*") if path.is_file())
        names = sorted(str(path.relative_to(folder)) for path in files)
        items = [{"name": n} for n in names if first <= n and (n < last or not last)]
        return json.dumps({"items": items}).encode()

    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", url)
        monkeypatch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "of no account")
        yield asked
        server.shutdown()
