#!/usr/bin/env python3
"""Instructions of the hot loops, by element, as valgrind counts them: the same on any machine and however busy it is.

`make bench PARTS=loops` prints them beside tests/bench/loops.csv, which has what they were; tests/bench/loops.py --write
writes that file anew."""
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from harness import BUILD, Skip, program  # noqa: E402

TABLE = os.path.join(HERE, "loops.csv")
PART = re.compile(r"^desc: Trigger: Client Request: (\S+)$.*?^totals: (\d+)$", re.MULTILINE | re.DOTALL)


def check_machine():
    """Raises Skip where nothing can be counted."""
    if "san-" in BUILD:
        raise Skip("instructions are counted of the plain build")
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    with open("/proc/cpuinfo") as lines:
        if " avx2 " not in lines.read():
            raise Skip("this CPU has no AVX2, of which the counts are")


def count():
    """Instructions by loop, of one element each, in the order of loops_bench.c."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/part", program("tests/bench/loops_bench")],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        parts = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as part:
                parts.update(PART.findall(part.read()))
    return {name: int(parts[name]) / int(elems) for name, elems in map(str.split, done.stdout.splitlines())}


def table():
    with open(TABLE) as file:
        return {row["loop"]: float(row["instructions"]) for row in csv.DictReader(file)}


def write(counts):
    with open(TABLE, "w") as file:
        file.write("loop,instructions\n")
        file.writelines(f"{name},{instructions:.4g}\n" for name, instructions in counts.items())


def main():
    check_machine()
    before = table()
    print("instructions by element (of models: by sample), and times those of tests/bench/loops.csv")
    for name, instructions in count().items():
        ratio = f"{instructions / before[name]:.3f}" if name in before else "new"
        print(f"  {name:24} {instructions:12.4g} {ratio:>8}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write(count())
    else:
        main()
