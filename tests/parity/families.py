#!/usr/bin/env python3
"""Architecture families of Hugging Face transformers and timm (families_cases.py), each exported by either exporter of
PyTorch, is inspected, and trained 4 steps beside PyTorch in float32 and float64 (families_train.py):

    python tests/parity/families.py build/weir [FAMILY...] [--exporter old] [--again] [--table docs/FAMILIES.md]

A line for each. What was tried before with the same --results is not tried again, unless it is named or --again is
given. Exits 1 if one that the exporter wrote is refused or is not where PyTorch is. Needs
tests/parity/requirements.txt."""
import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback

import families_cases
import families_table

EXPORTERS = ("new", "old")
LIMIT_SECONDS = 1500  # for one family
ROW = "{:<13} {:<26} {:<4} {:<9} {:>9} {:>9} {:>6} {:>5}  {}"


def all_families():
    rows = [("transformers", kind, name, row) for kind, cases in families_cases.TRANSFORMERS.items()
            for name, row in cases.items()]
    return rows + [("timm", "image", name, row) for name, row in families_cases.TIMM.items()]


def in_child(program, folder, family, exporter):
    """Runs it in a process of its own, so that neither a crash nor an endless loop ends the others."""
    import families_train  # here: the libraries are imported once, before the first fork

    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        path = os.path.join(folder, "result")
        try:
            sys.stderr = open(os.devnull, "w")
            result = families_train.try_family(program, folder, family, exporter)
        except BaseException:
            result = {"state": "broken", "reason": traceback.format_exc()}
        with open(path + ".part", "w") as file:
            json.dump(result, file)
        os.rename(path + ".part", path)
        os._exit(0)
    return child


def wait_for(child):
    """Whether it ended by itself in time."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def try_one(program, family, exporter):
    begin = time.monotonic()
    result = {"library": family[0], "kind": family[1], "family": family[2], "exporter": exporter}
    with tempfile.TemporaryDirectory() as folder:
        ended = wait_for(in_child(program, folder, family, exporter))
        try:
            with open(os.path.join(folder, "result")) as file:
                result |= json.load(file)
        except FileNotFoundError:
            result |= {"state": "exporter", "reason": "it crashed" if ended else f"no end after {LIMIT_SECONDS} s"}
    weights = result.get("weights", (float("nan"),) * 2)
    print(ROW.format(family[0], f"{family[2]} ({family[1]})", exporter, result["state"], f"{weights[0]:.1e}",
                     f"{weights[1]:.1e}", f"{result.get('times', float('nan')):.1f}",
                     f"{time.monotonic() - begin:.0f} s", result.get("reason", "")), flush=True)
    return result


def read_results(path):
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        results = [json.loads(line) for line in file]
    return {(entry["library"], entry["kind"], entry["family"], entry["exporter"]): entry for entry in results}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="the program")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--exporter", choices=EXPORTERS)
    parser.add_argument("--library", choices=("transformers", "timm"))
    parser.add_argument("--again", action="store_true", help="also what was tried before")
    parser.add_argument("--results", default="build/families.jsonl", help="a line of JSON for each that was tried")
    parser.add_argument("--table", help="writes the table of all results there")
    options = parser.parse_args()
    known = {family[2] for family in all_families()}
    if unknown := set(options.families) - known:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    results, tried = read_results(options.results), []
    for exporter in EXPORTERS:
        for family in all_families():
            if (options.exporter in (None, exporter) and options.library in (None, family[0]) and
                    (family[2] in options.families or not options.families)):
                key = (*family[:3], exporter)
                if options.families or options.again or key not in results:
                    results[key] = try_one(options.weir, family, exporter)
                    with open(options.results, "a") as file:
                        file.write(json.dumps(results[key]) + "\n")
                tried.append(results[key])
    if options.table:
        families_table.write(options.table, list(results.values()))
    print(families_table.summary(tried))
    sys.exit(any(result["state"] not in ("trains", "random", "gradient", "exporter", "pytorch") for result in tried))


if __name__ == "__main__":
    main()
