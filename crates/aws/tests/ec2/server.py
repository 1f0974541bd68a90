"""The server: one port for EC2, the admin API and the instances' metadata.

moto takes no locks, and two of its calls at once lose instances, so the server handles one request at a
time.

Not here: the answers (`admin`, `metadata`, and moto with the replacements of the other modules).
"""

from __future__ import annotations

import io
import json
import re
import threading
import time
import traceback
import urllib.parse
import uuid
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import moto.settings
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

from . import admin, fleets, instances, templates
from .hook import HOOK
from .metadata import TTL, Metadata
from .world import WORLD, Fault

PREFIX = "/_bullpen"
METADATA = f"{PREFIX}/metadata/"
# How often the server performs due events when the clock is the real one.
TICK = 0.02
# EC2's documentation lists these as server errors; moto answers them with 400.
SERVER_ERRORS = {"InsufficientInstanceCapacity": 500, "UnfulfillableCapacity": 500}
ERROR_CODE = re.compile(rb"<Errors><Error><Code>([A-Za-z.]+)</Code>")

Environ = dict[str, Any]
# A status line, headers, a body.
Answer = tuple[str, Any, bytes]
StartResponse = Callable[..., Any]


class Handler(MotoRequestHandler):
    """Keeps connections open, as EC2 does, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Application:
    """The WSGI application; it passes EC2's calls on to moto, the application behind it."""

    def __init__(self, behind: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._behind = behind
        self._metadata = Metadata()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        # Always read the body: unread bytes would become the start of the next request.
        sent = _body(environ)
        with WORLD.lock:
            WORLD.settle()
            if path.startswith(METADATA):
                status, headers, body = self._answer_instance(environ, path)
            elif path.startswith(PREFIX):
                status, headers, body = self._answer_admin(environ["REQUEST_METHOD"], path, sent)
            else:
                status, headers, body = self._answer_client(environ, sent)
            WORLD.settle()
        start_response(status, headers)
        return [body]

    def _answer_instance(self, environ: Environ, path: str) -> Answer:
        name, _, rest = path.removeprefix(METADATA).partition("/")
        instance = WORLD.instances.get(name)
        status, body = self._metadata.answer(environ["REQUEST_METHOD"], rest, environ, instance)
        headers = [("Content-Length", str(len(body)))]
        # Clients require the token's lifetime in the answer.
        if status == 200 and TTL in environ:
            headers.append(("X-aws-ec2-metadata-token-ttl-seconds", environ[TTL]))
        return _line(status), headers, body

    def _answer_admin(self, method: str, path: str, sent: bytes) -> Answer:
        try:
            body = json.loads(sent or b"null")
            route = path.removeprefix(PREFIX).strip("/")
            answer, status = admin.answer(method, route, body), 200
        except (admin.Refused, ValueError) as error:
            answer, status = {"error": str(error)}, 400
        text = json.dumps(answer).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
        return _line(status), headers, text

    def _answer_client(self, environ: Environ, sent: bytes) -> Answer:
        action = _action(sent)
        WORLD.calls[action] += 1
        fault = WORLD.take_fault(action)
        if fault is None:
            return _true_status(*self._answer_behind(environ))
        if fault.carried_out:
            self._answer_behind(environ)
        return _answer_fault(fault)

    def _answer_behind(self, environ: Environ) -> Answer:
        started: list[tuple[str, Any]] = []

        def start(status: str, headers: Any, _: Any = None) -> None:
            started.append((status, headers))

        try:
            body = b"".join(self._behind(environ, start))
        except Exception:
            # An error in moto. A client should see EC2's code for it, not moto's HTML.
            traceback.print_exc()
            return _answer_fault(Fault("InternalError", 500))
        return *started[-1], body


def _body(environ: Environ) -> bytes:
    """Reads the body and leaves a copy for the application behind."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _action(sent: bytes) -> str:
    form = urllib.parse.parse_qs(sent.decode(errors="replace"))
    return form.get("Action", ["unknown"])[0]


def _line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


def _true_status(status: str, headers: Any, body: bytes) -> Answer:
    code = ERROR_CODE.search(body) if status.startswith("400") else None
    server_error = SERVER_ERRORS.get(code.group(1).decode()) if code else None
    return (_line(server_error) if server_error else status), headers, body


def _answer_fault(fault: Fault) -> Answer:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{fault.code}</Code><Message>Not carried out as asked.</Message>"
        f"</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    ).encode()
    headers = [("Content-Type", "text/xml;charset=UTF-8"), ("Content-Length", str(len(text)))]
    return _line(fault.status), headers, text


def _tick() -> None:
    while True:
        time.sleep(TICK)
        with WORLD.lock:
            WORLD.settle()


def _install() -> None:
    moto.settings.ENABLE_AMI_VALIDATION = True
    moto.settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
    for module in (instances, fleets, templates):
        module.install()


def bind(port: int) -> BaseWSGIServer:
    """A server on loopback, ready to serve; port 0 is any free port."""
    _install()
    application = Application(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler)
    server.daemon_threads = True
    HOOK.address = f"http://127.0.0.1:{server.server_port}"
    if not WORLD.clock.by_hand:
        threading.Thread(target=_tick, daemon=True).start()
    return server
