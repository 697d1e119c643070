#!/usr/bin/env python3
"""`make bench`: what training, the data plane and checkpoints reach on this machine, each beside its alternative in
the same run. With names of parts, only those: training, engine, optimizers, data, data-plane, checkpoints, collective,
groups, turns, starts, fork, crowd, shares, coordinator, dashboard, tls, straggler, memory, recompute, pipeline, precision, forms;
only by their names loops, redis, waiting, modes, compression, late, late-accuracy, async-accuracy, bf16-accuracy, search, trials, tune,
sweep-stop, external, stage-memory, stage-death and large
(`make bench LARGE=1`).

Machines are noisy: rounds alternate between the sides (rounds.py), and medians and ratios are what to quote. PyTorch's side
runs where `make parity` has installed it."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
import checkpoints  # noqa: E402
import compression  # noqa: E402
import crowd  # noqa: E402
import ddp  # noqa: E402
import examples  # noqa: E402
import external  # noqa: E402
import fork  # noqa: E402
import groups  # noqa: E402
import late  # noqa: E402
import loops  # noqa: E402
import memory  # noqa: E402
import modes  # noqa: E402
import paint  # noqa: E402
import pipeline  # noqa: E402
import precision  # noqa: E402
import shares  # noqa: E402
import stage_death  # noqa: E402
import stage_memory  # noqa: E402
import starts  # noqa: E402
import straggler  # noqa: E402
import sweep_stop  # noqa: E402
import tls  # noqa: E402
import trials  # noqa: E402
import tune  # noqa: E402
import turns  # noqa: E402
import waiting  # noqa: E402
from harness import program  # noqa: E402

SEARCH_PYTHON = os.path.join(ROOT, "build", "search", "bin", "python")
PARITY_PYTHON = os.path.join(ROOT, "build", "parity", "bin", "python")


def bench_data_plane():
    subprocess.run([program("tests/bench/rpc_bench")], check=True)


def bench_beside_torch(part, script, ours, *arguments):
    if not os.path.exists(PARITY_PYTHON):
        print(f"{part}: left out: `make parity` installs the PyTorch that it is compared with")
        return
    sys.stdout.flush()
    subprocess.run([PARITY_PYTHON, os.path.join(ROOT, "tests", "bench", script), program(f"tests/bench/{ours}"),
                    *arguments], check=True)


def bench_engine():
    bench_beside_torch("engine", "peer_engine.py", "engine_bench")


def bench_optimizers():
    bench_beside_torch("optimizers", "peer_optimizers.py", "optimizer_bench")


def bench_data():
    bench_beside_torch("data", "peer_data.py", "data_bench")


def bench_collective():
    bench_beside_torch("collective", "peer_collective.py", "collective_bench")


def bench_recompute():
    bench_beside_torch("recompute", "peer_recompute.py", "engine_bench", program("weir"))


def bench_forms():
    bench_beside_torch("forms", "peer_forms.py", "engine_bench", program("weir"))


def bench_pipeline():
    pipeline.bench(PARITY_PYTHON if os.path.exists(PARITY_PYTHON) else None)


def bench_search():
    misses = 0
    for script, ours in (("peer_table.py", "table_bench"), ("peer_search.py", "search_bench")):
        sys.stdout.flush()
        misses += subprocess.run([SEARCH_PYTHON, os.path.join(ROOT, "tests", "bench", script), program("tests/bench/" + ours)],
                                 check=False).returncode != 0
    if misses:
        sys.exit("search: a searcher is worse than its margin, or a script has failed")


def bench_coordinator():
    for name in ("coordinator_bench", "fleet_bench", "overview_bench"):
        subprocess.run([program("tests/bench/" + name)], check=True)


PARTS = {"training": ddp.main, "engine": bench_engine, "optimizers": bench_optimizers, "data": bench_data,
         "data-plane": bench_data_plane, "checkpoints": checkpoints.main, "collective": bench_collective,
         "groups": groups.main, "turns": turns.main, "starts": starts.main, "fork": fork.main, "crowd": crowd.main,
         "shares": shares.main,
         "coordinator": bench_coordinator, "dashboard": paint.main, "tls": tls.main,
         "straggler": straggler.main, "memory": memory.main, "recompute": bench_recompute, "pipeline": bench_pipeline,
         "precision": precision.main, "forms": bench_forms,
         "search": bench_search, "sweep-stop": sweep_stop.main, "trials": trials.main,
         "tune": tune.main, "waiting": waiting.main, "modes": modes.main, "compression": compression.main,
         "loops": loops.main, "late": late.main, "late-accuracy": late.accuracies, "async-accuracy": late.async_accuracies, "bf16-accuracy": examples.main,
         "external": external.main, "stage-memory": stage_memory.main, "stage-death": stage_death.main,
         "redis": checkpoints.redis_alone, "large": checkpoints.bench_large}


def main():
    if unknown := [name for name in sys.argv[1:] if name not in PARTS]:
        sys.exit(f"bench: PARTS: '{unknown[0]}' is not known (known: {', '.join(sorted(PARTS))})")
    for name in sys.argv[1:] or ("training", "engine", "optimizers", "data", "data-plane", "checkpoints",
                                "collective", "groups", "turns", "starts", "fork", "crowd", "shares", "coordinator", "dashboard", "tls",
                                "straggler", "memory", "recompute", "pipeline", "precision", "forms"):
        PARTS[name]()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
