"""The server's application, called without a network."""

import asyncio
from urllib.parse import quote

from catalog.serving import TOKEN
from refdelta.catalog import server

ROOT = "/api/2.1/unity-catalog"


class Application:
    """The application over a catalog."""

    def __init__(self, catalog):
        self.app = server.make_app(catalog, [TOKEN])

    def ask(self, method, path, body=b"", query=b""):
        """The status of the answer to a request, and its body."""
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
        path = f"{ROOT}{path}"
        scope = {"type": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "headers": headers}
        scope |= {"query_string": query, "http_version": "1.1", "root_path": ""}
        asyncio.run(self.app(scope, receive, send))
        return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])
