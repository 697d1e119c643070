#!/usr/bin/env python3
"""The hot loops of workers and servers take as many instructions as tests/bench/loops.csv says."""
import os
import sys

from harness import ROOT, main

sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import loops  # noqa: E402

SLACK = 1.05  # where things lie in memory shows by less


def test_no_loop_takes_other_than_its_checked_in_number_of_instructions():
    """Fewer ones, too, are to be written down: a loop that is slow again would not be noticed else."""
    loops.check_machine()
    counts, table = loops.count(), loops.table()
    assert list(counts) == list(table), f"loops: {sorted(counts.keys() ^ table.keys())}: tests/bench/loops.py --write"
    wrong = {name: (table[name], round(instructions, 4)) for name, instructions in counts.items()
             if not 1 / SLACK < instructions / table[name] < SLACK}
    assert not wrong, (f"instructions by element, checked in and counted: {wrong}; if that is what you want: "
                       "tests/bench/loops.py --write")


if __name__ == "__main__":
    main(globals())
