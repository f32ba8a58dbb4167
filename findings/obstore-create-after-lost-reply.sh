#!/usr/bin/env bash
# obstore: put(mode="create") raises AlreadyExistsError over the object that it has itself created.
#
# A good guess: AlreadyExistsError means that another writer was first. Instead, if the reply to the put is lost, obstore
# sends the same conditional put again, by default up to ten times, and meets its own object. A program that takes the
# error for a lost race, and goes on to the next name, writes twice.
# Seen with obstore 0.12.1 on 2026-11-28 (behind a proxy of two real servers) and 2026-11-29 (this server).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install obstore==0.12.1

expect <<'END'
as by default: AlreadyExistsError; requests ['PUT If-None-Match: *', 'PUT If-None-Match: *']; stored b'mine'
max_retries 0: GenericError; requests ['PUT If-None-Match: *']; stored b'mine'
END

run <<'PYTHON'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
from obstore.store import S3Store


class Server(BaseHTTPRequestHandler):
    """An S3 server on this machine that stores objects, honours If-None-Match, and loses its first reply."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_PUT(self):
        body, condition = self.rfile.read(int(self.headers["Content-Length"])), self.headers["If-None-Match"]
        self.server.requests.append(f"PUT If-None-Match: {condition}")
        if condition == "*" and self.path in self.server.objects:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        self.server.objects[self.path] = body
        if len(self.server.requests) == 1:
            self.close_connection = True
        else:
            self.answer(200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


for title, retries in (("as by default", {}), ("max_retries 0", {"max_retries": 0})):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.objects, server.requests = {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store = S3Store(
        "bucket",
        endpoint=f"http://127.0.0.1:{server.server_port}",
        access_key_id="dummy",
        secret_access_key="dummy",
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config=retries or None,
    )
    try:
        obstore.put(store, "key", b"mine", mode="create")
        ended = "created"
    except obstore.exceptions.BaseError as error:
        ended = type(error).__name__
    print(f"{title}: {ended}; requests {server.requests}; stored {server.objects['/bucket/key']}")
    server.shutdown()
PYTHON
