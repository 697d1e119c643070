"""What a fork costs where its parent is held in a server's memory, beside a fork of an older checkpoint, which is read from
the store, in turns on the same server: from LoadRun to RunLoaded, bytes read and written, and the server's memory."""
import os
import re
import statistics

import rounds
from gate import Gate
from harness import Cluster, Folder, wait_for, weir

ROUNDS = 3 if os.environ.get("WEIR_BENCH_QUICK") else 9
HIDDEN = 4450  # 23.3 million weights: 280 MB with the two values that Adam keeps of each
OLD, HELD = 2, 4  # versions that are checkpoints
FROM_MEMORY, FROM_STORE = "from memory", "from the store"


class Bench:
    """A server, with a parent that is held at version HELD, and a worker for forks, which stand where they begin."""

    def __init__(self, folder, other):
        folder.small_data(120, 24)
        self.folder, self.gate, self.of_forks = folder, Gate(folder), Gate(other)
        with open(folder.small_spec(folder.model("mlp", "--hidden", f"{HIDDEN},{HIDDEN}"), 2, 1000, 1000)) as file:
            text = re.sub("optimizer: .*", "optimizer: {name: adam, lr: 0.001}", file.read())
        self.spec = folder.file("spec.yaml", text + "checkpoint: {every_steps: 1, keep: 100}\nworkers: {max: 1}\n")
        self.cluster = Cluster(folder, gate=self.gate)
        self.server = self.cluster.servers[0][0]

    def ask(self, *arguments):
        return weir(*arguments, "--coordinator", self.cluster.address).stdout.strip()

    def checkpoints(self):
        return [entry["step"] for entry in self.cluster.json("checkpoints", self.run)]

    def hold(self):
        self.gate.stop_at(OLD - 1)
        self.run = self.ask("submit", self.spec, f"train.hold={HELD}", f"eval.at=[{HELD}]")
        wait_for(lambda: OLD in self.checkpoints(), "a checkpoint")
        self.gate.open()
        wait_for(lambda: self.cluster.json("status", self.run)["state"] == "held" and HELD in self.checkpoints(), "the hold")
        self.cluster.workers[0].__exit__()
        self.cluster.gate = self.of_forks
        self.of_forks.stop_at(OLD - 1)
        self.cluster.add_worker()

    def said(self, event, run):
        """The fields of a line of the server's log."""
        line = next((line for line in self.server.output().splitlines() if f" {event} run={run} " in line), None)
        return line and dict(re.findall(r"(\w+)=(\S+)", line))

    def resident_mb(self):
        with open(f"/proc/{self.server.child.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024 / 1e6

    def stored_bytes(self):
        return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(self.folder.file("store/blocks"))
                   for name in names)

    def fork(self, step):
        """(its id, what it cost)."""
        before, stored = self.resident_mb(), self.stored_bytes()
        fork = self.ask("fork", f"{self.run}@{step}")
        loaded = wait_for(lambda: self.said("run_loaded", fork), "the fork")
        restored = self.said("run_restored", fork)
        return fork, {"ms": 1e3 * float(loaded["seconds"]), "adopted": int(restored["adopted"]),
                      "blocks": int(loaded["blocks"]), "read": int(restored["read_bytes"]) / 1e6,
                      "written": (self.stored_bytes() - stored) / 1e6, "memory": self.resident_mb() - before}

    def fork_and_end(self, step):
        fork, cost = self.fork(step)
        self.ask("cancel", fork)
        wait_for(lambda: self.said("run_unloaded", fork), "its end")
        return cost


def show(name, costs):
    times = [cost["ms"] for cost in costs]
    print(f"  {name}: {statistics.median(times):.1f} ms ({min(times):.1f} to {max(times):.1f}); {costs[0]['adopted']} of "
          f"{costs[0]['blocks']} blocks from memory, {costs[0]['read']:.0f} MB read, {costs[0]['written']:.0f} MB written; the "
          f"server has {statistics.median(cost['memory'] for cost in costs):.0f} MB more after it", flush=True)


def main():
    with Folder() as folder, Folder() as other:
        bench = Bench(folder, other)
        with bench.cluster:
            bench.hold()
            print(f"forks of a held run with 280 MB of weights and Adam's values on one server, files in the page cache; medians of "
                  f"{ROUNDS} of each, in turns, from LoadRun to RunLoaded")
            seen = rounds.alternate({FROM_MEMORY: lambda: bench.fork_and_end(HELD), FROM_STORE: lambda: bench.fork_and_end(OLD)},
                                    ROUNDS, control=FROM_MEMORY)
            assert all(cost["adopted"] == cost["blocks"] and cost["read"] == 0
                       for cost in seen[FROM_MEMORY] + seen[rounds.CONTROL]), seen
            assert all(cost["adopted"] == 0 for cost in seen[FROM_STORE]), seen
            for name, costs in seen.items():
                show(name, costs)
            print(f"  times from the store, by those from memory: {rounds.compare(seen, FROM_STORE, FROM_MEMORY, 'ms')}")
            before = bench.resident_mb()
            fork, _ = bench.fork(HELD)
            after = bench.resident_mb()
            bench.of_forks.stop_at(HELD)
            wait_for(lambda: bench.cluster.json("status", fork)["step"] == HELD + 1, "a step of the fork")
            print(f"  the server's memory: {before:.0f} MB before a fork from memory, {after:.0f} MB after it, "
                  f"{bench.resident_mb():.0f} MB after its first step")


if __name__ == "__main__":
    main()
