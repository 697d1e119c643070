"""Kills a writer of checkpoints at every step of changing the store, and looks at what is left.

usage: store_crash.py [--store URL] [--points N]

For each step N of an undisturbed life (crash_point.c counts them): a fresh place, a writer that dies at its Nth step,
a check by a fresh process, a second writer that dies somewhere, a check, and a third that lives. Two kinds: `kill`, and
on files `power`, which besides loses or garbles by seed what was not synced (power_loss.py). After each check:
  - the newest checkpoint that was acknowledged is there, and every older one whose deletion had not begun;
  - none is there that was acknowledged as deleted, or that nobody wrote;
  - every block and record that can be seen is whole, every checkpoint complete;
  - a sweep leaves the checkpoints' blocks, and nothing else;
  - the term is not lower than one that was acknowledged.
Without --store: files, below /dev/shm where there is one (what a power cut loses is modelled: no disk is needed). With
it: that redis, in a prefix for each point. --points: a sample of that many steps of each kind; all unless given. Prints
a line for each failure, and one with figures. Exit status 1 if a point failed."""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from urllib.parse import urlsplit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from crash_points import Shim
from harness import PATIENCE, program
from power_loss import lose_power

KEPT = 2
SIGKILLED = -9


class Place:
    """A fresh store: a folder, or a prefix of a redis; and the state of the preloaded library for each life."""

    def __init__(self, base):
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path, self.lives = os.path.realpath(tempfile.mkdtemp(prefix="weir-crash-", dir=shm)), 0
        self.below, self.port = "", 0
        if base is None:
            self.below = os.path.join(self.path, "disk")
            os.mkdir(self.below)
            self.url = f"file://{self.below}/store"
        else:
            self.url = f"{base}{'&' if '?' in base else '?'}prefix=crash{random.getrandbits(64):016x}"
            self.port = urlsplit(base).port or 6379

    def file(self, name):
        return os.path.join(self.path, f"{name}-{self.lives}")

    def shim(self, at, has_power):
        self.lives += 1
        shim = Shim(self, at, self.below, self.port, has_power)
        if has_power:
            shim.adopt()
        return shim

    def rests(self):
        """Files of writes that were cut short."""
        return os.listdir(os.path.join(self.below, "store", "tmp")) if self.below else []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.path)


def run(place, what, before=()):
    """(exit status, lines) of a store_crash process."""
    done = subprocess.run([*before, program("tests/chaos/store_crash"), what, place.url], capture_output=True,
                          text=True, errors="replace", timeout=PATIENCE)
    return done.returncode, done.stdout.splitlines() + done.stderr.splitlines()


def numbers(lines, word):
    return [int(line.split()[1]) for line in lines if line.startswith(word + " ")]


class Story:
    """What a store's writers were told, over several lives."""

    def __init__(self, place, kind, chooser, tally):
        self.place, self.kind, self.chooser, self.tally = place, kind, chooser, tally
        self.committed, self.deleted, self.term = set(), set(), 0

    def live(self, at):
        """The writer dies at that step, if it comes to it; at 0 it does not."""
        shim = self.place.shim(at, self.kind == "power")
        status, lines = run(self.place, "write", shim.command)
        self.committed |= set(numbers(lines, "committed"))
        self.deleted |= set(numbers(lines, "deleted"))
        self.term = max([self.term, *numbers(lines, "term")])
        if shim.is_dead:
            self.tally["lives cut short"] += 1
            assert status == SIGKILLED, f"the writer ended with {status}: {lines[-3:]}"
            if self.kind == "power":
                self.tally += lose_power(self.place.below, shim.path, self.chooser, may_garble=True)
        else:
            assert status == 0 and lines[-1:] == ["end"], f"the writer ended with {status}: {lines[-3:]}"

    def check(self):
        status, lines = run(self.place, "check")
        assert status == 0, f"the check ended with {status}: {lines[-3:]}"
        there, newest = set(numbers(lines, "checkpoint")), max(self.committed, default=0)
        due = {step for step in self.committed - self.deleted if step > newest - KEPT}
        assert due <= there, f"of the checkpoints {sorted(due)} only {sorted(there & due)} are left"
        assert not there & self.deleted, f"deleted checkpoints are back: {sorted(there & self.deleted)}"
        unknown = {step for step in there - self.committed if step != newest + 1}
        assert not unknown, f"checkpoints that nobody wrote: {sorted(unknown)}"
        term = max(numbers(lines, "term"), default=0)
        assert term in (self.term, self.term + 1), f"the term is {term}, {self.term} was acknowledged"
        assert not self.place.rests(), f"the sweep left {self.place.rests()}"
        self.committed, self.term = self.committed | there, term


def count_steps(base):
    """Those of a first life and of the next one, which finds what it left."""
    counts = []
    with Place(base) as place:
        for _ in range(2):
            shim = place.shim(0, False)
            status, lines = run(place, "write", shim.command)
            assert status == 0 and lines[-1:] == ["end"], f"an undisturbed writer failed: {lines[-3:]}"
            counts.append(shim.steps)
    return counts


def try_point(base, kind, step, steps, tally):
    chooser = random.Random(f"{kind} {step}")
    with Place(base) as place:
        story = Story(place, kind, chooser, tally)
        for at in (step, chooser.randint(1, steps[1]), 0):
            story.live(at)
            story.check()
        assert len(story.committed - story.deleted) >= KEPT, "the last life wrote too little"


def try_all(base, kinds, points=None):
    """(what happened, counted; failures as text)"""
    steps = count_steps(base)
    tally, failures = Counter(), []
    for kind in kinds:
        chosen = range(1, steps[0] + 1)
        for step in chosen if points is None else sorted(random.Random(kind).sample(chosen, points)):
            tally["points"] += 1
            try:
                try_point(base, kind, step, steps, tally)
            except AssertionError as wrong:
                failures.append(f"{kind} at step {step} of {steps[0]}: {wrong}")
    return tally, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", metavar="URL")
    parser.add_argument("--points", type=int)
    options = parser.parse_args()
    began = time.monotonic()
    kinds = ["kill"] if options.store else ["kill", "power"]
    tally, failures = try_all(options.store, kinds, options.points)
    for failure in failures:
        print(f"store_crash: {failure}")
    figures = ", ".join(f"{count} {what}" for what, count in tally.items())
    print(f"store_crash: {' and '.join(kinds)}: {figures}, {len(failures)} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
