"""The root file system of a machine: the host's, except for the machine's own directories.

The machine's own directories are kept between boots. They also have the host's entries, as links to
`/.host`, so that programs find their settings; other files in them belong to the machine.

Not here: the processes in it (`init`).
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import sys
import uuid

LINKED = ("etc", "home", "opt", "var", "var/lib")
# New directories, without the host's entries.
EMPTY = ("etc/systemd/system", "etc/sudoers.d", "var/lib/bullpen", "var/lib/cloud", "var/log")
# Copies, because programs write to them.
COPIED = ("etc/passwd", "etc/group")
# Empty after every boot.
VOLATILE = "run"
TEMPORARY = "tmp"
HOST = ".host"
BOOT_ID = "proc/sys/kernel/random/boot_id"

MS_BIND, MS_REC = 4096, 16384
LIBC = ctypes.CDLL(None, use_errno=True)


def make(root: pathlib.Path, image: str | None) -> None:
    """Creates the root of a machine before its first boot."""
    for name in EMPTY:
        (root / name).mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(f"/{name}", root / name)
    for name in LINKED:
        _link(root, name)
    # On the host this is a link to the host's `/run`.
    (root / "var/run").unlink(missing_ok=True)
    (root / "var/run").symlink_to("/run")
    if image:
        shutil.copytree(image, root, symlinks=True, dirs_exist_ok=True, copy_function=_link_or_copy)


def _link(root: pathlib.Path, name: str) -> None:
    for entry in os.scandir(f"/{name}"):
        path = root / name / entry.name
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(f"/{HOST}/{name}/{entry.name}")


def _link_or_copy(source: str, target: str) -> None:
    """Links, because agents with debug symbols are large; a machine replaces files and writes into none."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)


def enter(root: pathlib.Path, shared: str) -> None:
    """Makes it this process's root, with `/proc` of its own namespace and a new boot id.

    The machine has a `/tmp` of its own, because it removes the files that its jobs leave there. Of the host's
    `/tmp` it has only the entries that begin with `shared`, if that is not empty, and the files of this program.
    """
    shutil.rmtree(root / VOLATILE, ignore_errors=True)
    (root / VOLATILE).mkdir()
    _make_temporary(root / TEMPORARY, shared)
    # The file system that holds the machine first, while nothing is mounted in the root.
    for source, target in sorted(_binds(root), key=lambda bind: not root.is_relative_to(bind[0])):
        target.mkdir(parents=True, exist_ok=True)
        _mount(source, target, MS_BIND | MS_REC)
    (root / "proc").mkdir(exist_ok=True)
    _mount("proc", root / "proc", 0, "proc")
    boot = root / VOLATILE / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    _mount(boot, root / BOOT_ID, MS_BIND)
    os.chroot(root)
    os.chdir("/")


def _make_temporary(place: pathlib.Path, shared: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    place.chmod(0o1777)
    # The stand-in programs need the checkout and its Python, which may be below `/tmp`.
    needed = {path.parts[2] for path in (pathlib.Path(__file__).resolve(), pathlib.Path(sys.executable))
              if path.parts[1] == TEMPORARY}  # fmt: skip
    for entry in os.scandir(f"/{TEMPORARY}"):
        if entry.name in needed or (shared and entry.name.startswith(shared)):
            (place / entry.name).symlink_to(f"/{HOST}/{TEMPORARY}/{entry.name}")


def _binds(root: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    binds = []
    for entry in os.scandir("/"):
        name = entry.name
        if entry.is_symlink():
            if not os.path.lexists(root / name):
                (root / name).symlink_to(os.readlink(entry.path))
        elif name in (*LINKED, TEMPORARY):
            binds.append((entry.path, root / HOST / name))
        elif entry.is_dir() and name not in ("proc", VOLATILE, HOST):
            binds.append((entry.path, root / name))
    return binds


def _mount(source: str | os.PathLike, target: pathlib.Path, flags: int, kind: str = "none") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    if LIBC.mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}", str(target))
