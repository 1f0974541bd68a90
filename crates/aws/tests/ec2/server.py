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
from .metadata import Metadata
from .world import WORLD, Fault

PREFIX = "/_bullpen"
METADATA = f"{PREFIX}/metadata/"
# How often what is due is looked for when the clock is the real one.
TICK = 0.02
# EC2's documentation has these among the errors of the server, moto knows none of them.
SERVER_ERRORS = {"InsufficientInstanceCapacity": 500, "UnfulfillableCapacity": 500}
ERROR_CODE = re.compile(rb"<Errors><Error><Code>([A-Za-z.]+)</Code>")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class Handler(MotoRequestHandler):
    """Keeps connections open, as EC2 does, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Application:
    """The WSGI application."""

    def __init__(self) -> None:
        moto.settings.ENABLE_AMI_VALIDATION = True
        moto.settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
        for module in (instances, fleets, templates):
            module.install()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._metadata = Metadata()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        with WORLD.lock:
            WORLD.settle()
            if path.startswith(METADATA):
                status, headers, body = self._answer_instance(environ, path)
            elif path.startswith(PREFIX):
                status, headers, body = self._answer_admin(environ, path)
            else:
                status, headers, body = self._answer_client(environ)
            WORLD.settle()
        start_response(status, headers)
        return [body]

    def _answer_instance(self, environ: Environ, path: str) -> tuple[str, Any, bytes]:
        name, _, rest = path.removeprefix(METADATA).partition("/")
        instance = WORLD.instances.get(name)
        status, body = self._metadata.answer(environ["REQUEST_METHOD"], rest, environ, instance)
        return _line(status), [("Content-Length", str(len(body)))], body

    def _answer_admin(self, environ: Environ, path: str) -> tuple[str, Any, bytes]:
        try:
            body = json.loads(_body(environ) or b"null")
            route = path.removeprefix(PREFIX).strip("/")
            said, status = admin.answer(environ["REQUEST_METHOD"], route, body), 200
        except (admin.Refused, ValueError) as error:
            said, status = {"error": str(error)}, 400
        text = json.dumps(said).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
        return _line(status), headers, text

    def _answer_client(self, environ: Environ) -> tuple[str, Any, bytes]:
        action = _action(environ)
        WORLD.calls[action] += 1
        fault = WORLD.take_fault(action)
        if fault is None:
            return _true_status(*self._answer_moto(environ))
        if fault.carried_out:
            self._answer_moto(environ)
        return _answer_fault(fault)

    def _answer_moto(self, environ: Environ) -> tuple[str, Any, bytes]:
        said: list[tuple[str, Any]] = []
        body = b"".join(self._moto(environ, lambda status, headers, _=None: said.append((status, headers))))
        return *said[-1], body


def _body(environ: Environ) -> bytes:
    """The body, which can be read again after."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _action(environ: Environ) -> str:
    form = urllib.parse.parse_qs(_body(environ).decode(errors="replace"))
    return form.get("Action", ["unknown"])[0]


def _line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


def _true_status(status: str, headers: Any, body: bytes) -> tuple[str, Any, bytes]:
    code = ERROR_CODE.search(body) if status.startswith("400") else None
    told = SERVER_ERRORS.get(code.group(1).decode()) if code else None
    return (_line(told) if told else status), headers, body


def _answer_fault(fault: Fault) -> tuple[str, Any, bytes]:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{fault.code}</Code><Message>Brought about by the test.</Message>"
        f"</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    ).encode()
    headers = [("Content-Type", "text/xml;charset=UTF-8"), ("Content-Length", str(len(text)))]
    return _line(fault.status), headers, text


def _tick() -> None:
    while True:
        time.sleep(TICK)
        with WORLD.lock:
            WORLD.settle()


def bind(port: int) -> BaseWSGIServer:
    """A server on loopback that is ready to serve; port 0 is any that is free."""
    server = make_server("127.0.0.1", port, Application(), threaded=True, request_handler=Handler)
    server.daemon_threads = True
    HOOK.address = f"http://127.0.0.1:{server.server_port}"
    if not WORLD.clock.by_hand:
        threading.Thread(target=_tick, daemon=True).start()
    return server
