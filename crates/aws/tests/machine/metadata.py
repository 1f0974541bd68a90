"""The machine's metadata at an address of its own, as on an instance.

The test EC2 serves the metadata of every instance below a path. Some clients take the host of what they are
told and leave the path, so a process of the machine passes their questions on.

Not here: what is answered (`ec2.metadata`).
"""

from __future__ import annotations

import http.client
import http.server
import os
import urllib.parse


def serve(base: str) -> str:
    """Passes questions on, in a process of its own, until the machine ends; says where."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _passing_on(base))
    if os.fork() == 0:
        server.serve_forever()
    server.socket.close()
    return f"http://127.0.0.1:{server.server_port}"


def _passing_on(base: str) -> type[http.server.BaseHTTPRequestHandler]:
    place = urllib.parse.urlsplit(base)

    class Passing(http.server.BaseHTTPRequestHandler):
        def _pass(self) -> None:
            there = http.client.HTTPConnection(place.netloc, timeout=10)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            there.request(self.command, place.path + self.path, headers=headers)
            answer = there.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _pass

        def log_message(self, *_: object) -> None:
            pass

    return Passing
