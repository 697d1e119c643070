#!/usr/bin/env python3
"""Runs test programs that speak TAP, one after the other, and counts: `N passed, N failed, N skipped`.

Those after `--` only compute: they run beside the others, which wait and have deadlines, at a lower priority. A program
fails as a whole when it dies, runs out of time or prints fewer results than its plan announces."""
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import time

LIMIT_SECONDS = float(os.environ.get("WEIR_TEST_LIMIT", "900"))
RESULT = re.compile(r"^(not )?ok\b[ \d]*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


def run(command, prefix):
    """(passed, failed, what was skipped, output) of one program."""
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    try:
        done = subprocess.run(prefix + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, env=environment, timeout=LIMIT_SECONDS)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b"").decode(errors="replace"), "out of time"
    planned = passed = failed = 0
    skipped = []
    for line in output.splitlines():
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            planned += int(plan.group(1))
        elif result and "# skip" in line.lower():  # cmocka marks a skip "not ok"
            skipped.append(result.group(2))
        elif result and result.group(1):
            failed += 1
        elif result:
            passed += 1
    missing = planned - passed - failed - len(skipped)
    if missing > 0 or planned == 0 or (status != 0 and failed == 0):
        failed += max(missing, 1)
        output += f"\n# ended with {status} after {passed + failed + len(skipped)} of {planned} results\n"
    return passed, failed, skipped, output


def run_all(programs, prefix, counts, lock):
    for program in programs:
        began = time.monotonic()
        passed, failed, skipped, output = run(program.split(), prefix)
        with lock:
            counts[:] = counts[0] + passed, counts[1] + failed, counts[2] + len(skipped)
            for what in skipped:
                print(f"    skipped: {what}")
            print(f"{'FAIL' if failed else 'ok':4} {program}: {passed} passed, {failed} failed, {len(skipped)} skipped "
                  f"({time.monotonic() - began:.1f} s)", flush=True)
            if failed:
                print(output[-8000:], flush=True)


def main():
    programs, beside = sys.argv[1:], []
    if "--" in programs:
        programs, beside = programs[:programs.index("--")], programs[programs.index("--") + 1:]
    counts, lock = [0, 0, 0], threading.Lock()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        other = pool.submit(run_all, beside, ["nice"], counts, lock)
        run_all(programs, [], counts, lock)
        other.result()
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    sys.exit(1 if counts[1] or not counts[0] + counts[2] else 0)


if __name__ == "__main__":
    main()
