"""Two servers for a test: an https server that redirects to an http server, which has the file.

    redirect.py CERTIFICATE KEY TEXT

The first line of output is the https server's address. The servers end when standard input ends.
"""

import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Plain(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = sys.argv[3].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Secure(Plain):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", f"http://127.0.0.1:{plain.server_port}/file")
        self.send_header("Content-Length", "0")
        self.end_headers()


plain = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
secure = ThreadingHTTPServer(("127.0.0.1", 0), Secure)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
secure.socket = context.wrap_socket(secure.socket, server_side=True)
for server in (plain, secure):
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"https://127.0.0.1:{secure.server_port}/file", flush=True)
sys.stdin.read()
