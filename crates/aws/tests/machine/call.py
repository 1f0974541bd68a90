"""A program of the machine that asks its first process: `call.py SOCKET NAME ARGUMENTS...`."""

import json
import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    with asked.makefile("rw") as lines:
        lines.write(json.dumps(sys.argv[2:]) + "\n")
        lines.flush()
        status, said = json.loads(lines.readline() or '[1, "the machine is going down"]')
if said:
    print(said, file=sys.stderr)
sys.exit(status)
