"""What a trial of a sweep takes that trains next to nothing: one step of 12 samples of an MLP of 12,730 weights and one
evaluation, on a worker of one thread. With the store in the memory of one server, and in files, whose syncs are counted
and timed; and the same run submitted by itself, one after the other."""
import os
import statistics
import sys
import time

from harness import Cluster, Folder, Process, own_address, program, start_announced, weir

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from crash_points import CALLS, NEVER, Shim  # noqa: E402

IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
TRIALS, ROUNDS, COUNTED, SUBMITS, SYNCS = (40, 1, 10, 5, 100) if IS_QUICK else (200, 5, 50, 50, 500)
CONCURRENCY = (1, 4)
SWEEP = """name: empty
spec: {spec}
objective: {{metric: accuracy}}
search: {{name: random}}
budget: {{trials: {trials}}}
concurrency: {concurrency}
space: {{train.optimizer.lr: {{log: [0.001, 0.1]}}}}
"""


class Inputs:
    def __init__(self, folder):
        folder.small_data(240, 24)
        self.folder, self.spec = folder, folder.small_spec(folder.model("mlp", "--hidden", 16, "--seed", 5), 1, 1, 1)

    def sweep(self, trials, concurrency):
        return self.folder.file("sweep.yaml", SWEEP.format(spec=self.spec, trials=trials, concurrency=concurrency))


class InMemory:
    """A server that is the coordinator too, its store in its memory, and a worker; as much of a Cluster as is used here."""

    def __init__(self):
        self.server, self.address = start_announced(program("weir-server"), "--role=all", "--listen", own_address(), "--store",
                                                    "memory://")
        self.worker = Process(program("weir-worker"), "--coordinator", self.address, "--threads", 1)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.worker.__exit__()
        self.server.__exit__()


def trial_ms(cluster, path, trials):
    """Of each trial, from the sweep's submission to its end; the client asks three times a second."""
    at = ("--coordinator", cluster.address)
    begin = time.monotonic()
    sweep = weir("sweep", path, *at).stdout.strip()
    weir("sweep", "watch", sweep, *at)
    return 1e3 * (time.monotonic() - begin) / trials


def submit_ms(cluster, spec):
    """Of a run, from its submission to its end, which the client is told as it comes."""
    begin = time.monotonic()
    weir("submit", spec, "--follow", "--coordinator", cluster.address)
    return 1e3 * (time.monotonic() - begin)


def count_syncs(inputs, folder, roles):
    """Syncs a trial, by the processes of these roles: they are counted, before and after, in place of being done."""
    store = folder.file("counted")
    shims = {role: Shim(Place(folder, role), NEVER[1], store, call=NEVER[0]) for role in roles}
    with Cluster(folder, servers=0, workers=1, store="file://" + store,
                 env={**os.environ, **shims["coordinator"].variables}) as cluster:
        cluster.add_server(env={**os.environ, **shims["server"].variables})
        trial_ms(cluster, inputs.sweep(1, 1), 1)
        before = {role: shim.steps_by_call[CALLS.index("sync")] for role, shim in shims.items()}
        trial_ms(cluster, inputs.sweep(COUNTED, 1), COUNTED)
        return {role: (shim.steps_by_call[CALLS.index("sync")] - before[role]) / 2 / COUNTED for role, shim in shims.items()}


class Place:
    """Where a shim keeps its state."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name

    def file(self, name):
        return self.folder.file(f"{self.name}-{name}")


def sync_ms(folder):
    """Of a file of 100 bytes, written, synced and renamed, with its folder synced."""
    begin = time.monotonic()
    directory = os.open(folder.path, os.O_RDONLY)
    for _ in range(SYNCS):
        with open(folder.file("synced.tmp"), "wb") as file:
            file.write(bytes(100))
            file.flush()
            os.fsync(file.fileno())
        os.rename(folder.file("synced.tmp"), folder.file("synced"))
        os.fsync(directory)
    os.close(directory)
    return 1e3 * (time.monotonic() - begin) / SYNCS / 2


def show(name, times, unit):
    print(f"  {name}: {statistics.median(times):.1f} ms {unit} ({min(times):.1f} to {max(times):.1f})", flush=True)


def main():
    with Folder() as folder:
        inputs = Inputs(folder)
        print(f"trials of one step: sweeps of {TRIALS}, {ROUNDS} of each in turns, medians", flush=True)
        times = {}
        for number in range(ROUNDS):
            for concurrency in CONCURRENCY:
                path = inputs.sweep(TRIALS, concurrency)
                with InMemory() as cluster:
                    times.setdefault(f"memory://, concurrency {concurrency}", []).append(trial_ms(cluster, path, TRIALS))
                with Cluster(folder, store="file://" + folder.file(f"store-{number}-{concurrency}")) as cluster:
                    times.setdefault(f"file://, concurrency {concurrency}", []).append(trial_ms(cluster, path, TRIALS))
        for name, rounds in times.items():
            show(name, rounds, "a trial")
        with InMemory() as cluster:
            show(f"memory://, `weir submit --follow`, {SUBMITS} runs", [submit_ms(cluster, inputs.spec) for _ in range(SUBMITS)],
                 "a run")
        syncs = count_syncs(inputs, folder, ("coordinator", "server"))
        print(f"  file://: syncs a trial: {syncs['coordinator']:.1f} by the coordinator, {syncs['server']:.1f} by the server; a "
              f"sync takes {sync_ms(folder):.2f} ms here")


if __name__ == "__main__":
    main()
