#!/usr/bin/env python3
"""The Debian package's units and settings name what the programs know. `make deb-check` tries the package itself."""
import contextlib
import glob
import os
import re
import shlex
import signal
import socket
import subprocess

from harness import PATIENCE, ROOT, Folder, Process, main, own_address, program

PACKAGE = os.path.join(ROOT, "docker", "debian")


def settings():
    """{variable: value} of /etc/default/weir, those in comments included."""
    with open(os.path.join(PACKAGE, "weir.default")) as file:
        return {name: shlex.split(value) for name, value in re.findall(r"^(?:#   )?([A-Z_]+)=(.*)$", file.read(), re.M)}


def commands():
    """{unit: words of its ExecStart}"""
    found = {}
    for path in glob.glob(os.path.join(PACKAGE, "*.service")):
        with open(path) as file:
            found[os.path.basename(path)] = re.search(r"^ExecStart=(.*)$", file.read(), re.M).group(1).split()
    return found


def test_the_command_of_every_unit_and_every_option_in_a_comment_is_known():
    known = settings()
    assert len(commands()) == 3
    for unit, (path, *words) in commands().items():
        arguments = []
        for word in words:
            whole = re.fullmatch(r"\$([A-Z_]+)", word)
            value = re.sub(r"\$\{([A-Z_]+)\}", lambda found: " ".join(known[found.group(1)]), word).replace("%i", "7071")
            arguments += known[whole.group(1)] if whole else [value]
        done = subprocess.run([program(os.path.basename(path)), *arguments, "--version"], capture_output=True, text=True, check=False,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and done.stdout.startswith("weir"), (unit, arguments, done.stderr)


def test_every_setting_is_read_by_a_unit_or_by_a_program():
    with open(os.path.join(PACKAGE, "weir.default")) as file:
        named = set(re.findall(r"^([A-Z_]+)=", file.read(), re.M))
    units = " ".join(" ".join(words) for words in commands().values())
    pages = "".join(subprocess.run([program(name), "--help"], capture_output=True, text=True, check=True).stdout
                    for name in ("weir-server", "weir-worker"))
    assert {"WEIR_STORE", "COORDINATOR_OPTIONS"} <= named
    for name in named:
        assert re.search(rf"\${{?{name}\b", units) or re.search(rf"^  {name}\b", pages, re.M), name


def test_every_unit_is_told_when_its_program_serves_and_when_it_stops():
    """As systemd listens with Type=notify."""
    for path in glob.glob(os.path.join(PACKAGE, "*.service")):
        with open(path) as file:
            assert re.search("^Type=notify$", file.read(), re.M), path
    with Folder() as folder, contextlib.ExitStack() as stack:
        address, environments, managers = own_address(), {}, {}
        for role in ("coordinator", "server", "worker"):
            managers[role] = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            managers[role].settimeout(PATIENCE)
            managers[role].bind(folder.file(role))
            environments[role] = {**os.environ, "NOTIFY_SOCKET": folder.file(role), "WEIR_STORE": "file://" + folder.file("store"),
                                  "WEIR_COORDINATOR": address, "WEIR_DATA_ROOT": folder.path}

        def told(role, line):
            while line not in managers[role].recv(4096).decode().splitlines():
                pass
        commands = {"worker": (program("weir-worker"), "--threads", "1"),
                    "server": (program("weir-server"), "--role=parameters", "--listen", "127.0.0.1:0"),
                    "coordinator": (program("weir-server"), "--role=coordinator", "--listen", address)}
        started = {}
        for role, command in commands.items():  # a worker and a server that look for a coordinator do what they are there for
            started[role] = stack.enter_context(Process(*command, env=environments[role]))
            told(role, "READY=1")
        told("worker", "STATUS=is worker-1")
        for role, process in started.items():
            process.send(signal.SIGTERM)
            told(role, "STOPPING=1")
            assert process.wait() == 0, process.output()


if __name__ == "__main__":
    main(globals())
