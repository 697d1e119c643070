#!/usr/bin/env python3
"""Runs test programs that speak TAP and counts: `N passed, N failed, N skipped`.

    run.py [--jobs=N] [--repeat=N] [--only="WORD..."] PROGRAM... [-- PROGRAM...]

Those after `--` only compute: they run beside the others, which wait and have deadlines, at a lower priority. A program
fails as a whole when it dies, runs out of time or prints fewer results than its plan announces.
--jobs: so many of the others at a time (1). --only: programs that have one of the words in their command. --repeat: so many
rounds; the first has all tests, the others have the timed ones (timed.py), and whatever failed in any is named at the end."""
import argparse
import collections
import concurrent.futures
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

from timed import timed_tests

LIMIT_SECONDS = float(os.environ.get("WEIR_TEST_LIMIT", "7200"))
RESULT = re.compile(r"^(not )?ok\b[ \d]*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


def run(command, prefix):
    """(passed, the names of what failed, what was skipped, output) of one program."""
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    try:
        done = subprocess.run(prefix + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, env=environment, timeout=LIMIT_SECONDS)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b"").decode(errors="replace"), "out of time"
    planned = passed = 0
    failed, skipped = [], []
    for line in output.splitlines():
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            planned += int(plan.group(1))
        elif result and "# skip" in line.lower():  # cmocka marks a skip "not ok"
            skipped.append(result.group(2))
        elif result and result.group(1):
            failed.append(result.group(2))
        elif result:
            passed += 1
    told = passed + len(failed) + len(skipped)
    if planned > told or planned == 0 or (status != 0 and not failed):
        output += f"\n# ended with {status} after {told} of {planned} results\n"
        failed += [f"(ended with {status})"] * max(planned - told, 1)
    return passed, failed, skipped, output


class Tally:
    """What all programs said so far; any thread."""

    def __init__(self):
        self.lock, self.passed, self.failed, self.skipped = threading.Lock(), 0, 0, 0
        self.rounds, self.failures = collections.Counter(), collections.Counter()

    def run(self, program, tests, prefix):
        """tests: of the program; none: all of them."""
        began = time.monotonic()
        passed, failed, skipped, output = run([*program.split(), *tests], prefix)
        with self.lock:
            self.rounds[program] += 1
            self.passed += passed
            self.skipped += len(skipped)
            self.failed += len(failed)
            self.failures.update({(program, name) for name in failed})  # a round counts once
            for what in skipped:
                print(f"    skipped: {what}")
            print(f"{'FAIL' if failed else 'ok':4} {program}: {passed} passed, {len(failed)} failed, {len(skipped)} skipped "
                  f"({time.monotonic() - began:.1f} s)", flush=True)
            if failed:
                print(output[-8000:], flush=True)

    def run_all(self, programs, prefix):
        """(program, tests) until the queue is empty; several threads may share it."""
        while True:
            try:
                self.run(*programs.get_nowait(), prefix)
            except queue.Empty:
                return

    def tell(self):
        """Every failure by name where programs ran more than once, and the counts; the exit status."""
        if max(self.rounds.values(), default=0) > 1:
            for (program, name), times in sorted(self.failures.items()):
                print(f"failed {times} of {self.rounds[program]}: {program}: {name}")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed or not self.passed + self.skipped else 0


def queue_of(programs):
    waiting = queue.SimpleQueue()
    for program in programs:
        waiting.put(program)
    return waiting


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--only", type=str.split, default=[])
    arguments, beside = sys.argv[1:], []
    if "--" in arguments:
        arguments, beside = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    options, programs = options.parse_known_args(arguments)

    def wanted(programs):
        return [(program, ()) for program in programs
                if not options.only or any(word in program for word in options.only)]
    first = wanted(programs)
    again = [(program, tests) for program, tests in ((program, timed_tests(program)) for program, _ in first)
             if tests is not None] if options.repeat > 1 else []
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="weir-rounds-") as kept, \
            concurrent.futures.ThreadPoolExecutor(options.jobs + 1) as pool:
        if options.repeat > 1:
            os.environ["WEIR_TEST_KEPT"] = kept
        work = queue_of(first + (options.repeat - 1) * again)
        threads = [pool.submit(tally.run_all, queue_of(wanted(beside)), ["nice"])]
        threads += [pool.submit(tally.run_all, work, []) for _ in range(options.jobs)]
        for thread in threads:
            thread.result()
    sys.exit(tally.tell())


if __name__ == "__main__":
    main()
