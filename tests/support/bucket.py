"""A bucket of Google's storage that a folder stands in for, read as gs:// is."""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(folder: Path, monkeypatch, allowed: bool = True) -> Iterator[list[str]]:
    """gs://any-bucket has what the folder has, and gives it or refuses it. Yields the
    names of the objects that were asked for."""
    asked = []

    class Bucket(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            name = re.fullmatch(r"/storage/v1/b/[^/]+/o/?(.*)", url.path)[1]
            if not allowed:
                self.answer(HTTPStatus.FORBIDDEN, b'{"error": {"message": "no"}}')
            elif name:
                asked.append(urllib.parse.unquote(name))
                file = folder / asked[-1]
                there = file.is_file()
                status = HTTPStatus.OK if there else HTTPStatus.NOT_FOUND
                self.answer(status, file.read_bytes() if there else b"")
            else:
                self.answer(HTTPStatus.OK, listed(url.query))

        def answer(self, status: HTTPStatus, content: bytes):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("x-goog-generation", "1")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    def listed(query: str) -> bytes:
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
