"""Runs that stand still where a test wants them to, however fast or slow the machine is, while all their processes go on."""
import mmap
import os
import struct
import time

from harness import program, wait_for

FOR_EVER = 1 << 63  # steps
PAUSE_SECONDS = 0.1
SIZE, HELD, TORN = 24, 8, 16  # of the file; where workers say there which step's push they hold back; where they are told which block's


class Gate:
    """How many steps runs may make whose workers have its environment (tests/chaos/step_gate.c): what workers push of later
    ones stays with them. As many as they like until stop_at()."""

    def __init__(self, folder):
        library, path = program("tests/chaos/step_gate.so"), folder.file("gate", bytes(SIZE))
        assert os.path.exists(library), f"{library} is not built: make tests"
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), SIZE)
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
        struct.pack_into("Q", self.map, HELD, 0)

    def tear(self, block):
        """Wherever the run stands from now on, all but this block, and those whose parts come in the same calls, have made one
        step more."""
        struct.pack_into("Q", self.map, TORN, block + 1)

    def is_reached(self):
        """Whether a worker is there that holds back what comes after the step."""
        return struct.unpack_from("Q", self.map, HELD)[0] > self.step

    def open(self):
        self.stop_at(FOR_EVER - 1)

    def crawl(self, condition, what, steps=10, factor=1.5):
        """The first true value of condition(). From where it stands the run goes on by so many steps now and then, each
        time after a pause that is longer by this factor, and not before it stands there: for what only comes while it goes
        on, and before its end."""
        pause = PAUSE_SECONDS
        advance = time.monotonic() + pause

        def holds():
            nonlocal pause, advance
            value = condition()
            if not value and time.monotonic() > advance and self.is_reached():
                self.stop_at(self.step + steps)
                pause *= factor
                advance = time.monotonic() + pause
            return value
        return wait_for(holds, what)
