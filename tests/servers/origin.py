"""A server that is none of a store: it notes down what it was asked, so that a proxy before it can be watched."""

from __future__ import annotations

import http.client
import http.server
import threading

CONTENT = b"what is there" * 100


class Origin(http.server.ThreadingHTTPServer):
    """Answers with 200 and notes down what it was asked."""

    scheme = "s3"

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = self.server_address
        self.got = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def understood(self, request):
        return request

    def answered(self, reply):
        return reply


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        self.server.got.append((self.path, len(body)))
        if len(body) == length:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

    def log_message(self, *_):
        pass


def put(proxy, path, timeout=10.0):
    """The status and the body that the client gets, or the class of what it raises."""
    client = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=timeout)
    try:
        client.request("PUT", path, body=b"x" * 1000)
        answer = client.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error)
    finally:
        client.close()
