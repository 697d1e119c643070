"""Programs on a terminal."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios

from harness import wait_for


def columns(text):
    """Of the widest line, without what moves the cursor and what colours."""
    plain = re.sub("\033\\[[0-9;]*[A-Za-z]", "", text)
    return max(len(line) for line in re.split("[\r\n]+", plain))


class Terminal:
    """What a program draws on a terminal that the test has in its hands."""

    def __init__(self, lines, columns, *command, **environment):
        self.controller, terminal = pty.openpty()
        self.resize(lines, columns)
        self.drawn = bytearray()
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal,
                                        env={key: value for key, value in environment.items() if value is not None})
        os.close(terminal)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self.controller)

    def resize(self, lines, columns):
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def take(self):
        """What has come since the last time; None: nothing will come any more."""
        if not select.select([self.controller], [], [], 0.1)[0]:
            return ""
        try:
            new = os.read(self.controller, 65536)
        except OSError:  # nobody has it open at the other end
            return None
        self.drawn.extend(new)
        return new.decode(errors="replace")

    def text(self):
        return self.drawn.decode(errors="replace")

    def shows(self, *words):
        def all_there():
            self.take()
            return all(word in self.text() for word in words)
        wait_for(all_there, f"{words} on the terminal")

    def ends(self):
        """All that it has drawn, once the program has ended well."""
        def is_over():
            return self.take() is None
        wait_for(is_over, "the end of the program")
        assert self.process.wait() == 0, self.text()
        return self.text()
