#!/usr/bin/env python3
"""Runs test programs that speak TAP, one after the other, and counts: `N passed, N failed, N skipped`.

A program fails as a whole when it dies, runs out of time or prints fewer results than its plan announces."""
import os
import re
import subprocess
import sys
import time

LIMIT_SECONDS = float(os.environ.get("WEIR_TEST_LIMIT", "900"))
RESULT = re.compile(r"^(not )?ok\b[ \d]*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


def run(command):
    """(passed, failed, skipped, output) of one program."""
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env=environment, timeout=LIMIT_SECONDS)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b"").decode(errors="replace"), "out of time"
    planned = passed = failed = skipped = 0
    for line in output.splitlines():
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            planned += int(plan.group(1))
        elif result and "# skip" in line.lower():  # cmocka marks a skip "not ok"
            skipped += 1
            print(f"    skipped: {result.group(2)}")
        elif result and result.group(1):
            failed += 1
        elif result:
            passed += 1
    missing = planned - passed - failed - skipped
    if missing > 0 or planned == 0 or (status != 0 and failed == 0):
        failed += max(missing, 1)
        output += f"\n# ended with {status} after {passed + failed + skipped} of {planned} results\n"
    return passed, failed, skipped, output


def main():
    totals = [0, 0, 0]
    for program in sys.argv[1:]:
        began = time.monotonic()
        *counts, output = run(program.split())
        totals = [total + count for total, count in zip(totals, counts)]
        state = "FAIL" if counts[1] else "ok"
        print(f"{state:4} {program}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped "
              f"({time.monotonic() - began:.1f} s)", flush=True)
        if counts[1]:
            print(output[-8000:], flush=True)
    print("%d passed, %d failed, %d skipped" % tuple(totals))
    sys.exit(1 if totals[1] or not totals[0] + totals[2] else 0)


if __name__ == "__main__":
    main()
