#!/usr/bin/env python3
"""Runs the commands of docs/FIRST_RUN.md in a fresh Debian, as somebody does who has just got the package, and puts what they print
in place of what the page has. `make first-run` builds the package first. Commands are the lines of the page's console blocks that
begin with "$ ", with the lines behind them that begin with "> ". Needs root, Debian's mirror and PyPI."""
import atexit
import glob
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from engine import base_image, end_with_parent, remove  # noqa: E402
from harness import BUILD  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "FIRST_RUN.md")
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
COUNT = re.compile(r"(?<=<!-- counted -->\n).*?(?=\n\n)", re.DOTALL)
LETTERS_A_MINUTE = 200  # of somebody who types forty words a minute
LINES_MAX, FIRST, LAST = 24, 5, 13  # of a longer output the page has the first and the last lines
COMMAND_SECONDS = 1800
PROMPT = re.compile("\x1e(\\d+)\x1e")  # the shell's, with the exit status of the command before
SHELL = ("env", "-i", "HOME=/home/ann", "USER=ann", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=dumb", "PS1=\x1e$?\x1e",
         "PS2=", "bash", "--norc", "--noediting")
NETWORK = ("/etc/resolv.conf", "/etc/pip.conf", "/usr/local/share/ca-certificates")  # what this machine knows of its network


class Debian:
    """The smallest Debian with sudo, and a shell of its user `ann`, whose folder has the package."""

    def __init__(self):
        self.folder, self.name = tempfile.mkdtemp(prefix="weir-first-run-", dir=BUILD), f"weir-first-run-{os.getpid()}"
        self.root, self.shell = os.path.join(self.folder, "debian"), None
        atexit.register(self.end)
        os.mkdir(self.root)
        subprocess.run(["tar", "-C", self.root, "-xf", base_image()], check=True)
        for path in filter(os.path.exists, NETWORK):
            shutil.copytree(path, self.root + path, dirs_exist_ok=True) if os.path.isdir(path) else shutil.copy(path, self.root + path)
        self.prepare("apt-get", "update")
        self.prepare("apt-get", "install", "-y", "--no-install-recommends", "sudo", "ca-certificates")
        self.prepare("useradd", "--create-home", "ann")
        self.write("etc/sudoers.d/ann", "ann ALL=(ALL) NOPASSWD: ALL\n")
        self.write("etc/hosts", "127.0.0.1 localhost debian\n")
        package, = glob.glob(os.path.join(BUILD, "weir_*.deb"))
        shutil.copy(package, os.path.join(self.root, "home/ann/weir.deb"))
        self.controller, terminal = pty.openpty()
        self.shell = subprocess.Popen(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=interactive", "--machine", self.name,
                                       "--hostname=debian", "-D", self.root, "--user=ann", "--chdir=/home/ann", *SHELL], stdin=terminal,
                                      stdout=terminal, stderr=terminal, start_new_session=True, preexec_fn=end_with_parent,
                                      env={**os.environ, "SYSTEMD_NSPAWN_TMPFS_TMP": "0"})  # /tmp is of the disk, as it usually is
        os.close(terminal)
        self.read()
        self.run("stty -echo columns 120")

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w") as file:
            file.write(text)

    def prepare(self, *command):
        subprocess.run(["chroot", self.root, *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def read(self):
        """What comes until the shell's prompt, and the exit status in that."""
        drawn, until = b"", time.monotonic() + COMMAND_SECONDS
        while not (prompt := PROMPT.search(drawn.decode(errors="replace"))):
            assert select.select([self.controller], [], [], max(0, until - time.monotonic()))[0], drawn
            drawn += os.read(self.controller, 65536)
        return drawn.decode()[:prompt.start()], int(prompt.group(1))

    def run(self, command):
        """The lines that it leaves on the terminal."""
        os.write(self.controller, (command + "\n").encode())
        drawn, status = self.read()
        assert status == 0, f"{command}: exit {status}\n{drawn}"
        return [left(line) for line in drawn.replace("\r\n", "\n").split("\n")][:-1]

    def end(self):
        if self.shell and self.shell.poll() is None:
            self.shell.terminate()
            self.shell.wait()
        remove(self.folder)
        shutil.rmtree(os.path.join("/run/systemd/nspawn/propagate", self.name), ignore_errors=True)


def left(line):
    """What is left of a line that was written over."""
    return next((part.rstrip() for part in reversed(line.split("\r")) if part.strip()), "")


def commands_of(block):
    """The commands, with the lines that each goes on in."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith(">"):
            found[-1] += "\n" + line[2:]
    return found


def shown(command, lines):
    if len(lines) > LINES_MAX:
        lines = [*lines[:FIRST], f"[... {len(lines) - FIRST - LAST} lines]", *lines[-LAST:]]
    typed = "$ " + command.replace("\n", "\n> ").replace("> \n", ">\n")
    return "".join(line + "\n" for line in (typed, *lines))


def main():
    with open(PAGE) as file:
        text = file.read()
    debian, letters, began = Debian(), 0, time.monotonic()

    def run_again(block):
        nonlocal letters
        blocks = []
        for command in commands_of(block.group()):
            print("$", command, flush=True)
            letters += len(command) + 1
            blocks.append(shown(command, debian.run(command)))
        return "".join(blocks)

    text = BLOCK.sub(run_again, text)
    minutes = (time.monotonic() - began) / 60
    counted = (f"{letters} characters were typed: {letters / LETTERS_A_MINUTE:.1f} minutes for somebody who types forty words a minute. The machine\n"
               f"worked for {minutes:.1f} minutes.")
    with open(PAGE, "w") as file:
        file.write(COUNT.sub(counted, text))


if __name__ == "__main__":
    main()
