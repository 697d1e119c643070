#!/usr/bin/env python3
"""Runs test programs that speak TAP and counts: `N passed, N failed, N skipped`.

    run.py [--jobs=N] [--repeat=N] [--only="WORD..."] PROGRAM... [-- PROGRAM...]

Those after `--` only compute: they run beside the others, which wait and have deadlines, at a lower priority. A program
fails as a whole when it dies, runs out of time or prints fewer results than its plan announces.
--jobs: so many of the others at a time (1). --only: programs that have one of the words in their command. --repeat: so many
rounds; the first has all tests, or with --timed the timed ones (timed.py), which the others have; whatever failed in any is
named at the end. From the second round on, what took longest comes first: so no core is idle at the end. Of each program is
said how long it took, and how much CPU time it and all that it started and waited for. The folders of
tests in Python are in memory where there is room: that a disk keeps the files of a store costs a seventh of the CPU time."""
import argparse
import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from timed import timed_tests

MEMORY, MEMORY_BYTES = "/dev/shm", 4 << 30
LIMIT_SECONDS = float(os.environ.get("WEIR_TEST_LIMIT", "7200"))
RESULT = re.compile(r"^(not )?ok\b[ \d]*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


def run(command, prefix):
    """(passed, the names of what failed, what was skipped, output, CPU seconds) of one program."""
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(prefix + command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 env=environment)
        clock = threading.Timer(LIMIT_SECONDS, os.kill, (child.pid, signal.SIGKILL))
        clock.start()
        _, status, usage = os.wait4(child.pid, 0)
        is_late = not clock.is_alive()
        clock.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        output, status = log.read().decode(errors="replace"), "out of time" if is_late else child.returncode
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
    return passed, failed, skipped, output, usage.ru_utime + usage.ru_stime


class Work:
    """What is still to be run: (program, tests) of round after round; any thread."""

    def __init__(self, *rounds):
        self.lock, self.seconds = threading.Lock(), {}  # by program: of its last run
        self.left = [(number, program, tests) for number, programs in enumerate(rounds) for program, tests in programs]

    def take(self):
        """Of the first round that has any left; None when there are none."""
        with self.lock:
            if not self.left:
                return None
            first = min(self.left, key=lambda run: (run[0], -self.seconds.get(run[1], 0)))
            self.left.remove(first)
            return first[1:]

    def took(self, program, seconds):
        with self.lock:
            self.seconds[program] = seconds


class Tally:
    """What all programs said so far; any thread."""

    def __init__(self):
        self.lock, self.passed, self.failed, self.skipped, self.cpu_seconds = threading.Lock(), 0, 0, 0, 0
        self.rounds, self.failures = collections.Counter(), collections.Counter()

    def run(self, program, tests, prefix):
        """tests: of the program; none: all of them. Returns the seconds that it took."""
        began = time.monotonic()
        passed, failed, skipped, output, cpu_seconds = run([*program.split(), *tests], prefix)
        seconds = time.monotonic() - began
        with self.lock:
            self.rounds[program] += 1
            self.passed += passed
            self.skipped += len(skipped)
            self.failed += len(failed)
            self.failures.update({(program, name) for name in failed})  # a round counts once
            for what in skipped:
                print(f"    skipped: {what}")
            print(f"{'FAIL' if failed else 'ok':4} {program}: {passed} passed, {len(failed)} failed, {len(skipped)} skipped "
                  f"({seconds:.1f} s, {cpu_seconds:.1f} s of CPU)", flush=True)
            if failed:
                print(output[-8000:], flush=True)
            self.cpu_seconds += cpu_seconds
        return seconds

    def run_all(self, work, prefix):
        """Until there is none left; several threads may share it."""
        while (taken := work.take()) is not None:
            work.took(taken[0], self.run(*taken, prefix))

    def tell(self):
        """Every failure by name where programs ran more than once, and the counts; the exit status."""
        if max(self.rounds.values(), default=0) > 1:
            for (program, name), times in sorted(self.failures.items()):
                print(f"failed {times} of {self.rounds[program]}: {program}: {name}")
        print(f"{self.cpu_seconds / 60:.1f} minutes of CPU")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed or not self.passed + self.skipped else 0


def has_room_in_memory():
    try:
        room = os.statvfs(MEMORY)
        with open("/proc/meminfo") as lines:
            available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return False
    return not room.f_flag & os.ST_NOEXEC and min(room.f_bavail * room.f_frsize, available) > MEMORY_BYTES


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--timed", action="store_true")
    options.add_argument("--only", type=str.split, default=[])
    arguments, beside = sys.argv[1:], []
    if "--" in arguments:
        arguments, beside = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    options, programs = options.parse_known_args(arguments)

    def wanted(programs):
        return [(program, ()) for program in programs
                if not options.only or any(word in program for word in options.only)]
    first, beside = wanted(programs), wanted(beside)
    again = [(program, tests) for program, tests in ((program, timed_tests(program)) for program, _ in first)
             if tests is not None] if options.repeat > 1 or options.timed else []
    if options.timed:
        first, beside = again, []
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="weir-rounds-") as kept, \
            concurrent.futures.ThreadPoolExecutor(options.jobs + 1) as pool:
        if options.repeat > 1:
            os.environ["WEIR_TEST_KEPT"] = kept
        if has_room_in_memory():
            os.environ.setdefault("WEIR_TEST_FOLDERS", MEMORY)
        work = Work(first, *(options.repeat - 1) * [again])
        threads = [pool.submit(tally.run_all, Work(beside), ["nice"])]
        threads += [pool.submit(tally.run_all, work, []) for _ in range(options.jobs)]
        for thread in threads:
            thread.result()
    sys.exit(tally.tell())


if __name__ == "__main__":
    main()
