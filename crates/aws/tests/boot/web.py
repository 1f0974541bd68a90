"""A stand-in for a web server, S3 and the instance metadata, on one port, for boot scripts.

    web.py DIRECTORY

The first line of output is the address. `/<file>` is a plain file; `/hang/…` never answers. `/bucket/<file>`
is S3: it requires a signature by the role's credentials. The metadata are below `/metadata`. The server logs
every request as a line of `requests` in the directory: method, path, status.
"""

import json
import pathlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION = "eu-north-1"
KEYS = {"AccessKeyId": "ASIAROLE", "SecretAccessKey": "s3cr3t/+key", "Token": "to/ken+of==role"}
METADATA = {
    "placement/region": REGION,
    "services/domain": "amazonaws.com",
    "iam/security-credentials/": "machine-role",
    # In the layout of EC2's answer.
    "iam/security-credentials/machine-role": json.dumps({"Code": "Success", **KEYS}, indent=2).replace(
        '": "', '" : "'
    ),
}
TOKEN = "imds-token"


class Handler(BaseHTTPRequestHandler):
    directory = pathlib.Path(sys.argv[1])

    def do_PUT(self) -> None:
        wanted = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        known = self.path == "/metadata/latest/api/token" and wanted
        self.answer(*((200, TOKEN.encode()) if known else (400, b"")))

    def do_GET(self) -> None:
        if self.path.startswith("/hang/"):
            self.record("hangs")
            threading.Event().wait()
        if self.path.startswith("/metadata/"):
            self.answer(*self.metadata(self.path.removeprefix("/metadata/latest/meta-data/")))
        elif self.path.startswith("/bucket/") and not self.is_signed():
            self.answer(403, b"SignatureDoesNotMatch")
        else:
            self.answer(*self.file(self.path.rpartition("/")[2]))

    def metadata(self, name: str) -> tuple[int, bytes]:
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return 401, b""
        return (200, METADATA[name].encode()) if name in METADATA else (404, b"")

    def file(self, name: str) -> tuple[int, bytes]:
        path = self.directory / name
        return (200, path.read_bytes()) if path.is_file() else (404, b"")

    def is_signed(self) -> bool:
        """Whether the role's secret gives this signature for these headers."""
        _, _, fields = self.headers.get("Authorization", "").partition(" ")
        parts = dict(part.strip().split("=", 1) for part in fields.split(",") if "=" in part)
        signed = parts.get("SignedHeaders", "").split(";")
        if {"host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"} - set(signed):
            return False
        request = AWSRequest("GET", f"http://{self.headers['Host']}{self.path}")
        for name in signed:
            request.headers[name] = self.headers[name]
        request.context["timestamp"] = self.headers["x-amz-date"]
        role = Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"])
        auth = S3SigV4Auth(role, "s3", REGION)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        return (
            parts.get("Credential") == auth.scope(request)
            and self.headers["x-amz-security-token"] == KEYS["Token"]
            and parts.get("Signature") == auth.signature(text, request)
        )

    def answer(self, status: int, body: bytes) -> None:
        self.record(str(status))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def record(self, what: str) -> None:
        with (self.directory / "requests").open("a") as file:
            file.write(f"{self.command} {self.path} {what}\n")

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The parent's end closes the input and ends the server.
    sys.stdin.read()
