#!/usr/bin/env python3
"""The Debian package's units and settings name what the programs know. `make deb-check` tries the package itself."""
import glob
import os
import re
import shlex
import subprocess

from harness import PATIENCE, ROOT, main, program

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


if __name__ == "__main__":
    main(globals())
