"""Kills the coordinator, a server, a worker or the client at every record of a sweep's log, starts it again, and looks: the
log is byte for byte that of an undisturbed sweep, and its trials have come to the same weights.

usage: sweep_deaths.py [SEEDS]        (50 unless given)

A seed chooses the sweep's kind and who dies at which record. The coordinator dies at the very record: before the file store
renames it into place, or after, with nothing done of what it says. The others die as soon as it is in the store. One line a
seed: the time it took and who died how often. Exit status 1 if one failed; what its processes said is kept then."""
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from crash_points import CALLS, Shim
from harness import BUILD, PATIENCE, Cluster, Folder, Process, kept, program
from test_sweep import Sweep, write_sweep

RENAME = CALLS.index("rename")
LOOK_SECONDS = 0.005
# The settings of a sweep of each kind.
KINDS = {
    "asha": ("schedule={name: asha, rungs: [2, 4, 8], eta: 2}", "search={name: random, seed: 4}", "budget={trials: 5}"),
    "pbt": ("schedule={name: pbt, rungs: [2, 4, 6]}", "search={name: random, seed: 6}", "budget={trials: 3}",
            "space={train.optimizer.lr: {log: [0.001, 0.5]}, train.optimizer.momentum: [0, 0.5, 0.9]}"),
    "halving": ("schedule={name: halving, rungs: [2, 6], eta: 2}", "search={name: sobol, seed: 2}", "budget={trials: 5}"),
    "hyperband": ("schedule={name: hyperband, rungs: [2, 4], eta: 2}", "search={name: bohb, seed: 1}", "budget={trials: 5}"),
    "none": ("schedule={name: none, rungs: [3, 6]}", "search={name: tpe, seed: 3, n_startup_trials: 2}", "budget={trials: 4}"),
    "asha, repeats": ("schedule={name: asha, rungs: [2, 6], eta: 2}", "search={name: tpe, seed: 5, n_startup_trials: 2}",
                      "budget={trials: 4}", "repeats=2", "concurrency=2"),
    "pbt, repeats": ("schedule={name: pbt, rungs: [2, 4, 6]}", "search={name: random, seed: 6}", "budget={trials: 3}",
                     "space={train.optimizer.lr: {log: [0.001, 0.5]}, train.optimizer.momentum: [0, 0.5, 0.9]}", "repeats=2",
                     "concurrency=2"),
    "objectives": ("schedule={name: none, rungs: [3, 6]}", "search={name: tpe, seed: 7, n_startup_trials: 2}",
                   "budget={trials: 4}", "objective=[{metric: accuracy}, {metric: loss}]"),
    "objectives, repeats": ("schedule={name: none}", "search={name: tpe, seed: 8, n_startup_trials: 2}", "budget={trials: 3}",
                            "objective=[{metric: loss}, {metric: accuracy}]", "repeats=3", "concurrency=2"),
}
VICTIMS = ("coordinator before", "coordinator after", "server", "worker", "client")


class Site:
    """A sweep on a cluster, and the client that watches it. plan: who dies at each record of its log."""

    def __init__(self, folder, kind, plan=(), servers=1, workers=1):
        self.folder, self.plan, self.lives, self.counts, self.client = folder, plan, 0, Counter(), None
        # deaths of the coordinator that are to come
        self.planned = {record: victim for record, victim in enumerate(plan) if victim.startswith("coordinator")}
        self.store = folder.file(f"store-{random.getrandbits(64):016x}")
        self.below = os.path.join(self.store, "records", "sweeps")
        self.cluster = Cluster(folder, servers, workers, store="file://" + self.store, env=self.next_life(-2))
        self.sweep = self.submitted(write_sweep(folder), KINDS[kind])
        self.below = os.path.join(self.below, self.sweep.id, "log")

    def submitted(self, path, settings):
        """The sweep. A coordinator that dies at its first records may not have said to the client that it took it."""
        try:
            return Sweep(self.cluster, path, *settings)
        except AssertionError:
            if not self.shim.is_dead:
                raise
        return Sweep(self.cluster, path, known=os.listdir(self.below)[0])

    def records(self):
        """How many are in the store, which has a folder for them only while there are some."""
        try:
            return len(os.listdir(self.below))
        except FileNotFoundError:
            return 0

    def outcome(self):
        """The log's bytes, and the weights of the trials that came to their end."""
        log = {}
        for name in sorted(os.listdir(self.below)):
            with open(os.path.join(self.below, name), "rb") as file:
                log[name] = file.read().hex()
        info = self.sweep.info()
        runs = [trial["run"] + (f"-{repeat}" if repeat else "") for trial in info["trials"] if trial["state"] == "done"
                for repeat in range(info["spec"].get("repeats", 1))]
        weights = {run.removeprefix(self.sweep.id): self.cluster.json("status", run)["weights_sha256"] for run in runs}
        return {"log": log, "weights": weights}

    def watch(self):
        if self.client:
            self.client.__exit__()
        self.client = Process(program("weir"), "sweep", "watch", self.sweep.id, "--coordinator", self.cluster.address)

    # ---- deaths ----

    def file(self, name):
        return self.folder.file(f"{os.path.basename(self.store)}-{name}-{self.lives}")

    def next_life(self, first):
        """The environment of a coordinator that writes the log from this record on (-2: from the two that stand before it), and
        dies at the next one at which it is to."""
        self.lives += 1
        due = [record for record, victim in self.planned.items() if record >= first]
        at = 2 * (due[0] - first) + (2 if self.planned.pop(due[0]).endswith("after") else 1) if due else 0
        self.shim = Shim(self, at, self.below, call=RENAME)
        return {**os.environ, **self.shim.variables}

    def kill(self, process):
        process.send(signal.SIGKILL)
        process.wait()

    def strike(self, victim, chooser):
        if not victim.startswith("coordinator"):
            self.counts[victim] += 1
        if victim == "worker":
            self.kill(self.cluster.workers.pop(chooser.randrange(len(self.cluster.workers))))
            self.cluster.add_worker()
        elif victim == "server":
            number = chooser.randrange(len(self.cluster.servers))
            self.kill(self.cluster.servers[number][0])
            self.cluster.restart_server(number)
        elif victim == "client":
            self.kill(self.client)
            self.watch()

    def restart_coordinator(self):
        """Which may die before it has said that it is there."""
        assert self.shim.is_dead, f"the coordinator ended:\n{self.cluster.coordinator.output()[-1500:]}"
        self.counts["coordinator"] += 1
        environment = self.next_life(self.records())
        try:
            self.cluster.start_coordinator(env=environment)
        except AssertionError:
            if not self.shim.is_dead:
                raise

    def rage(self, chooser):
        """Until the client says that the sweep has ended."""
        begin, seen, known = time.monotonic(), 0, None
        self.watch()
        while (status := self.client.child.poll()) != 0:
            assert status in (None, 3), f"weir sweep watch ended with {status}:\n{self.client.output()[-1500:]}"
            if status == 3:  # it found nobody for long
                self.watch()
            while self.cluster.coordinator.child.poll() is not None:
                self.restart_coordinator()
            for victim in self.plan[seen:self.records()]:
                self.strike(victim, chooser)
                seen += 1
            if known != (known := (seen, self.lives)):  # it goes on
                begin = time.monotonic()
            assert time.monotonic() < begin + PATIENCE, "the sweep does not end"
            time.sleep(LOOK_SECONDS)

    def keep_logs(self, name):
        place = os.path.join(BUILD, "sweep-deaths", name)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        for number, process in enumerate([*self.cluster.processes, self.client]):
            with open(os.path.join(place, f"{number:03d}.log"), "w") as file:
                file.write(f"{' '.join(map(str, process.child.args))}\nstatus {process.child.poll()}\n{process.output()}")
        return place

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.client:
            self.client.__exit__()
        self.cluster.__exit__()


def undisturbed(folder, kind):
    def run():
        with Site(folder, kind) as site:
            site.sweep.ends()
            return site.outcome()
    return kept(f"sweep-deaths-{kind}", run)


def try_seed(folder, seed):
    """Who died how often, in words."""
    kind = list(KINDS)[seed % len(KINDS)]
    expected, chooser = undisturbed(folder, kind), random.Random(seed)
    plan = [chooser.choice(VICTIMS) for _ in expected["log"]]
    with Site(folder, kind, plan, servers=chooser.choice((1, 2)), workers=chooser.choice((1, 2))) as site:
        try:
            site.rage(chooser)
            outcome = site.outcome()
            for what in ("log", "weights"):
                difference = set(outcome[what].items()) ^ set(expected[what].items())
                assert not difference, f"{what} beside those of the undisturbed sweep: {sorted(difference)}"
        except AssertionError as why:
            raise AssertionError(f"seed {seed}, {kind}: {why}\nits logs: {site.keep_logs(str(seed))}") from why
        return f"{kind}, {len(plan)} records: " + ", ".join(f"{count} {who}" for who, count in sorted(site.counts.items()))


def try_seeds(seeds, say):
    """Whether all went well; say is told what happened, line by line."""
    failures = 0
    with Folder() as folder:
        for seed in seeds:
            began = time.monotonic()
            try:
                say(f"ok   sweep seed {seed} ({try_seed(folder, seed)}; {time.monotonic() - began:.1f} s)")
            except AssertionError as why:
                failures += 1
                for line in f"FAIL {why}".splitlines():
                    say(line)
    return not failures


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    sys.exit(0 if try_seeds(range(seeds), lambda line: print(line, flush=True)) else 1)


if __name__ == "__main__":
    main()
