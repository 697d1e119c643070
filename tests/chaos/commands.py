"""Lets three people give commands at random to a cluster whose coordinator, servers and workers are killed and started again:
they submit runs and sweeps, pause, resume, hold, fork, stop, cancel, verify, export and delete whatever is there. Then it
looks at what each command said, and compares every run and every sweep with an undisturbed one.

usage: commands.py [SEED...]        (1 2 3 unless given)

A seed fixes what each person does next; what is there by then depends on the machine. One line a seed: how many commands of
each kind were carried out and refused. Ends by itself; exit status 1 if a run or a sweep ended otherwise than undisturbed, a
command said what it must not, or a process died that nobody killed. What the processes said is kept then, and its place is
told."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import BUILD, PATIENCE, Cluster, Folder, outcome, program, wait_for, weir
from test_sweep import write_sweep

STEPS, PEOPLE, LIVE_RUNS_MAX, LIVE_SWEEPS_MAX = 3000, 3, 5, 2
STORM_SECONDS, LOOK_SECONDS = 60, 1
OVER = ("done", "failed", "cancelled", "stopped")
RUNS = {
    "sync": (),
    "ssp": ("train.mode=ssp", "train.staleness=2"),
    "local": ("train.mode=local", "train.local.replicas=2", "train.local.inner_steps=5", "train.local.outer.lr=0.7"),
    "bf16": ("train.compression.weights=bf16",),
}
SWEEPS = {
    "asha": ("schedule={name: asha, rungs: [20, 60, 180], eta: 2}", "budget={trials: 8}"),
    "pbt": ("schedule={name: pbt, rungs: [40, 80, 120]}", "budget={trials: 4}",
            "space={train.optimizer.lr: {log: [0.001, 0.5]}, train.optimizer.momentum: [0, 0.5, 0.9]}"),
    "tpe": ("schedule={name: none, rungs: [60, 120]}", "search={name: tpe, seed: 5, n_startup_trials: 2}", "budget={trials: 6}",
            "repeats=2"),
}
# What none of these commands may be refused with: that something is lost or damaged, or that it is our fault.
WRONG = re.compile(r"damaged|no such block|no record of it|internal|check failed|sanitizer", re.IGNORECASE)
UNREACHED = 3
# Why a fork that waits for a step may fail: its parent never comes to it, or was past it.
IN_VAIN = re.compile("has not made step|had passed step|was deleted")


class Storm:
    """A cluster, and what people do with it."""

    def __init__(self, folder, seed, specs):
        self.folder, self.seed, (self.spec, self.sweep_spec) = folder, seed, specs
        self.cluster = Cluster(folder, 2, 2, store="file://" + folder.file(f"store-{seed}"))
        self.killed, self.counts, self.faults, self.stopped = set(), Counter(), [], set()
        self.lock, self.lives, self.is_led, self.is_over = threading.Lock(), 0, True, False

    # Commands

    def ask(self, *arguments):
        """What it printed, or None: it was refused, or nobody led."""
        life, was_led = self.lives, self.is_led
        done = subprocess.run([program("weir"), *map(str, arguments), "--coordinator", self.cluster.address], text=True,
                              capture_output=True, timeout=PATIENCE * 3, check=False)
        is_alone = not was_led or not self.is_led or life != self.lives  # for a while no coordinator led
        is_excused = done.returncode == UNREACHED and (is_alone or "try again" in done.stderr)
        with self.lock:
            self.counts[f"{arguments[0]} {'carried out' if done.returncode == 0 else 'refused'}"] += 1
            if done.returncode not in (0, 2) and not is_excused or WRONG.search(done.stderr):
                self.faults.append(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout if done.returncode == 0 else None

    def rows(self, *arguments):
        answer = self.ask(*arguments, "--json")
        return json.loads(answer) if answer else []

    def part(self, sweep, name):
        """Its trials, or the records of its log."""
        answer = self.ask("sweep", "status", sweep, "--json")
        return json.loads(answer)[name] if answer else []

    def submit(self, chooser):
        name = chooser.choice(list(RUNS))
        hold = (f"train.hold={chooser.randrange(10, STEPS, 10)}",) if chooser.random() < 0.4 else ()
        self.ask("submit", self.spec, *RUNS[name], f"name={name}", *hold)

    def sweep(self, chooser):
        name = chooser.choice(list(SWEEPS))
        self.ask("sweep", self.sweep_spec, *SWEEPS[name], f"name={name}")

    def treat_run(self, chooser, row):
        run = row["run"]
        commands = [("pause", run), ("resume", run), ("verify", run), ("status", run), ("logs", run), ("checkpoints", run),
                    ("set", run, f"priority={chooser.randrange(3)}", f"workers.max={chooser.randrange(1, 4)}"),
                    ("set", run, f"train.hold={chooser.choice(('null', chooser.randrange(10, STEPS, 10)))}"),
                    ("fork", run + chooser.choice(("", f"@{chooser.randrange(1, STEPS)}"))),
                    ("export", run, "-o", self.folder.file(f"{threading.get_ident()}.safetensors"))]
        if chooser.random() < 0.3:  # or little would be left
            commands = [("cancel", run), ("stop", run), ("gc",), ("gc", run)]
        steps = [checkpoint["step"] for checkpoint in self.rows("checkpoints", run)] if chooser.random() < 0.1 else []
        self.ask(*(("resume", run, "--step", chooser.choice(steps)) if steps else chooser.choice(commands)))

    def treat_sweep(self, chooser, row):
        sweep = row["sweep"]
        trials = [trial["run"] for trial in self.part(sweep, "trials") if trial["run"]]
        commands = [("sweep", "extend", sweep, "budget.trials=12"), ("sweep", "best", sweep), ("sweep", "importance", sweep),
                    ("sweep", "export", sweep, "-o", self.folder.file(f"{threading.get_ident()}.safetensors")),
                    *((command, chooser.choice(trials)) for command in ("pause", "resume", "verify", "export", "status") if trials)]
        if chooser.random() < 0.1:
            commands = [("sweep", "stop", sweep), ("sweep", "delete", sweep)]
        command = chooser.choice(commands)
        if command[1] == "stop":
            self.stopped.add(sweep)
        self.ask(*command)

    def act(self, chooser):
        runs, sweeps = self.rows("runs"), self.rows("sweep", "status")
        live = [row for row in runs if row["state"] not in OVER]
        if chooser.random() < 0.15 and len(live) < LIVE_RUNS_MAX:
            self.submit(chooser)
        elif chooser.random() < 0.1 and sum(not row["end"] for row in sweeps) < LIVE_SWEEPS_MAX:
            self.sweep(chooser)
        elif sweeps and chooser.random() < 0.3:
            self.treat_sweep(chooser, chooser.choice(sweeps))
        elif runs:
            self.treat_run(chooser, chooser.choice(live if live and chooser.random() < 0.8 else runs))

    # Deaths

    def kill(self, process):
        self.killed.add(process)
        process.send(signal.SIGKILL)
        process.wait()

    def strike(self, chooser):
        victim = chooser.choice(("coordinator", "server", "worker", "worker"))
        self.counts[victim + " killed"] += 1
        if victim == "coordinator":
            self.is_led = False
            self.lives += 1
            self.kill(self.cluster.coordinator)
            time.sleep(chooser.choice((0, 2)))
            self.cluster.start_coordinator()
            self.is_led = True
        elif victim == "server":
            number = chooser.randrange(len(self.cluster.servers))
            self.kill(self.cluster.servers[number][0])
            time.sleep(chooser.choice((0, 1, 5)))  # the last: longer than a run waits for it
            self.cluster.restart_server(number)
        else:
            self.kill(self.cluster.workers.pop(chooser.randrange(len(self.cluster.workers))))
            self.cluster.add_worker()

    # The whole

    def repeat(self, number, what, pause_seconds):
        """As one of those who act at the same time."""
        chooser = random.Random(f"{self.seed} {number}")
        try:
            while not self.is_over:
                what(chooser)
                time.sleep(chooser.random() * pause_seconds)
        except Exception as fault:  # pylint: disable=broad-except  # told, whatever it is
            self.faults.append(f"{type(fault).__name__}: {fault}")

    def rage(self):
        people = [threading.Thread(target=self.repeat, args=(number, self.act, 0.3)) for number in range(PEOPLE)]
        people.append(threading.Thread(target=self.repeat, args=(PEOPLE, self.strike, 8)))
        for thread in people:
            thread.start()
        time.sleep(STORM_SECONDS)
        self.is_over = True
        for thread in people:
            thread.join()

    def is_calm(self):
        """Whatever waits for a person goes on."""
        time.sleep(LOOK_SECONDS)
        runs, sweeps = self.rows("runs"), self.rows("sweep", "status")
        trials = [trial for row in sweeps if not row["end"] for trial in self.part(row["sweep"], "trials")]
        for row in runs + [trial for trial in trials if trial["run"] and trial["state"] not in OVER]:
            if row in trials or row["state"] == "paused":
                self.ask("resume", row["run"])
            elif row["state"] == "held":
                self.ask("set", row["run"], "train.hold=null")
        return all(row["state"] in OVER for row in runs) and all(row["end"] for row in sweeps)

    def check(self, calm):
        for row in self.rows("runs"):
            if row["state"] == "done" and row["weights_sha256"] != calm[row["name"].split("-")[0]]:
                self.faults.append(f"{row['run']} ended in {row['weights_sha256']}")
            elif row["state"] == "failed" and not IN_VAIN.search(row["message"]):
                self.faults.append(f"{row['run']} has failed: {row['message']}")
            self.ask("verify", row["run"])
        for row in self.rows("sweep", "status"):
            records, expected = self.part(row["sweep"], "records"), calm[row["name"]]
            n = next((at for at, record in enumerate(records) if "extension" in record), len(expected))
            if row["sweep"] not in self.stopped and records[:n] != expected[:n]:
                self.faults.append(f"the log of {row['sweep']} is another: {records}\n{expected}")
        for process in self.cluster.processes:
            if process.child.poll() is not None and process not in self.killed:
                self.faults.append(f"{process.child.args[0]} died: {process.output()[-1000:]}")

    def keep(self):
        os.makedirs(BUILD, exist_ok=True)
        place = tempfile.mkdtemp(prefix=f"commands-{self.seed}-", dir=BUILD)
        for number, process in enumerate(self.cluster.processes):
            with open(os.path.join(place, f"{number}-{os.path.basename(process.child.args[0])}.log"), "w") as file:
                file.write(process.output())
        return place


def write_spec(folder):
    path = folder.small_spec(folder.model("mlp", "--hidden", "512,64", "--seed", "3"), 4, STEPS, 10)
    with open(path, "a") as file:
        file.write("checkpoint: {every_steps: 10, keep: 1}\n")
    return path


def train_calmly(folder, spec):
    """The weights of each kind of run."""
    weights = {}
    for name, settings in RUNS.items():
        weir("train", spec, *settings, f"name={name}", "--threads", 1, "--out", folder.file(name))
        weights[name] = outcome(folder.file(f"{name}/metrics.jsonl"))["weights"]
    return weights


def search_calmly(folder, spec):
    """The log of each kind of sweep."""
    logs = {}
    with Cluster(folder) as cluster:
        for name, settings in SWEEPS.items():
            sweep = weir("sweep", spec, *settings, f"name={name}", "--coordinator", cluster.address).stdout.strip()
            weir("sweep", "watch", sweep, "--coordinator", cluster.address)
            logs[name] = cluster.json("sweep", "status", sweep)["records"]
    return logs


def main():
    seeds = [int(seed) for seed in sys.argv[1:]] or [1, 2, 3]
    failed = 0
    with Folder() as folder:
        sweep = write_sweep(folder)
        specs = write_spec(folder), sweep  # of one model: that of the runs
        calm = {**train_calmly(folder, specs[0]), **search_calmly(folder, specs[1])}
        for seed in seeds:
            began, storm = time.monotonic(), Storm(folder, seed, specs)
            try:
                storm.rage()
                wait_for(storm.is_calm, "all runs and sweeps to end")
                storm.check(calm)
            except Exception as fault:  # pylint: disable=broad-except  # told, whatever it is
                storm.faults.append(f"{type(fault).__name__}: {fault}")
            place = storm.keep() if storm.faults else None
            storm.cluster.__exit__()
            failed += place is not None
            print(f"{'FAIL' if place else 'ok  '} seed {seed} ({time.monotonic() - began:.1f} s): "
                  f"{', '.join(f'{count} {what}' for what, count in sorted(storm.counts.items()))}", flush=True)
            if place:
                print("\n".join([*storm.faults, f"what the processes said: {place}"]), flush=True)
    print(f"{len(seeds) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
