"""The client of the stand-in programs, which asks `init`: `call.py SOCKET NAME ARGUMENTS...`."""

import json
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    with connection.makefile("rw") as lines:
        lines.write(json.dumps(sys.argv[2:]) + "\n")
        lines.flush()
        status, error = json.loads(lines.readline() or '[1, "the machine is powering off"]')
if error:
    print(error, file=sys.stderr)
sys.exit(status)
