"""Runs that stand still where a test wants them to, however fast or slow the machine is, while all their processes go on."""
import mmap
import os
import struct
import time

from harness import program, wait_for

FOR_EVER = 1 << 63  # steps
PAUSE_SECONDS = 0.1


class Gate:
    """How many steps runs may make whose workers have its environment (tests/chaos/step_gate.c): what workers push of later
    ones stays with them. As many as they like until stop_at()."""

    def __init__(self, folder):
        library, path = program("tests/chaos/step_gate.so"), folder.file("gate", bytes(8))
        assert os.path.exists(library), f"{library} is not built: make tests"
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 8)
        sanitizer = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0")))
        self.variables = {"LD_PRELOAD": library, "WEIR_GATE": path, "ASAN_OPTIONS": sanitizer}
        self.open()

    @property
    def environment(self):
        """For `weir train`, say, whose workers inherit it. No other program heeds it."""
        return {**os.environ, **self.variables}

    def stop_at(self, step):
        """Runs make this step and no further one; one that stands at an earlier one goes on."""
        self.step = step
        struct.pack_into("Q", self.map, 0, step + 1)  # at once: workers read it meanwhile

    def open(self):
        self.stop_at(FOR_EVER - 1)

    def crawl(self, condition, what, steps=10, factor=1.5):
        """The first true value of condition(). From where it stands the run goes on by so many steps now and then, each
        time after a pause that is longer by this factor: for what only comes while it goes on, and before its end."""
        pause = PAUSE_SECONDS
        advance = time.monotonic() + pause

        def holds():
            nonlocal pause, advance
            value = condition()
            if not value and time.monotonic() > advance:
                self.stop_at(self.step + steps)
                pause *= factor
                advance = time.monotonic() + pause
            return value
        return wait_for(holds, what)
