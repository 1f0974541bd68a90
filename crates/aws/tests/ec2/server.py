"""The server: one port for EC2, the admin API and the instances' metadata.

moto takes no locks and two of its calls at once lose instances, so one request is served at a time.

Not here: what is answered (`admin`, `metadata`, and moto with what the other modules put in it).
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
# How often what is due is looked for when the clock is the real one.
TICK = 0.02
# EC2's documentation has these among the errors of the server, moto knows none of them.
SERVER_ERRORS = {"InsufficientInstanceCapacity": 500, "UnfulfillableCapacity": 500}
ERROR_CODE = re.compile(rb"<Errors><Error><Code>([A-Za-z.]+)</Code>")

Environ = dict[str, Any]
# A status line, headers, a body.
Answer = tuple[str, Any, bytes]
StartResponse = Callable[..., Any]


class Handler(MotoRequestHandler):
    """Keeps connections open, as EC2 does, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Application:
    """The WSGI application; what is EC2's is answered by the one behind it, which is moto."""

    def __init__(self, behind: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._behind = behind
        self._metadata = Metadata()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        # Whoever answers, what was sent has to be read, or it would be taken for the next request.
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
        # A token is answered with how long it is good, and clients insist on it.
        if status == 200 and TTL in environ:
            headers.append(("X-aws-ec2-metadata-token-ttl-seconds", environ[TTL]))
        return _line(status), headers, body

    def _answer_admin(self, method: str, path: str, sent: bytes) -> Answer:
        try:
            body = json.loads(sent or b"null")
            route = path.removeprefix(PREFIX).strip("/")
            said, status = admin.answer(method, route, body), 200
        except (admin.Refused, ValueError) as error:
            said, status = {"error": str(error)}, 400
        text = json.dumps(said).encode()
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
        said: list[tuple[str, Any]] = []

        def start(status: str, headers: Any, _: Any = None) -> None:
            said.append((status, headers))

        try:
            body = b"".join(self._behind(environ, start))
        except Exception:
            # What moto does not know or trips over. EC2 has a code for that, and a client should see it.
            traceback.print_exc()
            return _answer_fault(Fault("InternalError", 500))
        return *said[-1], body


def _body(environ: Environ) -> bytes:
    """The body, which can be read again after."""
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
    told = SERVER_ERRORS.get(code.group(1).decode()) if code else None
    return (_line(told) if told else status), headers, body


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
    """A server on loopback that is ready to serve; port 0 is any that is free."""
    _install()
    application = Application(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler)
    server.daemon_threads = True
    HOOK.address = f"http://127.0.0.1:{server.server_port}"
    if not WORLD.clock.by_hand:
        threading.Thread(target=_tick, daemon=True).start()
    return server
