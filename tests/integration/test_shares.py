"""Runs that share the workers of a cluster: who has how many, by priority and weight, and that no bit depends on it."""
import contextlib
import os
import signal

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, assert_recovered, main, newest_step, program, wait_for, weir)
from terminal import Terminal, columns
from test_recovery import kill, undisturbed, write_spec

STANDS, PREEMPTIONS = 20, 6
PRIORITY_KEYS = "priority, workers.min, workers.max, workers.weight, workers.require and train.hold can"


class Fleet:
    """A cluster with a gate, and runs of one spec on it that are followed. write: writes the spec and its data; expected:
    what is the outcome of a run that has the cluster for itself."""

    def __init__(self, folder, workers, stop, servers=1, write=write_spec, expected=undisturbed, is_patient=True):
        self.folder, self.clients, self.metrics, self.expected = folder, {}, {}, expected
        with open(write(folder)) as file:  # once: workers read the data meanwhile
            self.text = file.read()
        self.cluster = Cluster(folder, servers, workers, gate=Gate(folder), is_patient=is_patient)
        self.gate = self.cluster.gate
        self.gate.stop_at(stop)

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *error):
        for client in self.clients.values():
            client.__exit__()
        self.cluster.__exit__(*error)

    def submit(self, name, *settings):
        at = ("--coordinator", self.cluster.address)
        spec = self.folder.file(name + ".yaml", self.text.replace("name: small", f"name: {name}"))
        run = weir("submit", spec, *settings, *at).stdout.strip()
        self.metrics[name] = self.folder.file(run + ".jsonl")
        client = self.clients[name] = Process(program("weir"), "watch", run, "--metrics", self.metrics[name], *at)
        wait_for(lambda: run in client.output(), "the client's first word: from then on it outlasts a coordinator")
        return run

    def set(self, *arguments, **options):
        return weir("set", *arguments, "--coordinator", self.cluster.address, **options)

    def status(self, name):
        return self.cluster.json("status", name)

    def has(self, **workers):
        """Waits until each run computes with so many."""
        wait_for(lambda: all(self.status(name)["workers"] == count for name, count in workers.items()), str(workers))

    def evens_out(self, name, workers):
        """Waits until the run computes with so many: others let go of theirs only after a step that they complete."""
        self.gate.crawl(lambda: self.status(name)["workers"] == workers, f"{workers} workers of {name}", steps=1)

    def ends(self, *names):
        for name in names:
            assert self.clients[name].wait() == 0, self.clients[name].output()[-2000:]
            assert_recovered(self.metrics[name], self.expected())


@contextlib.contextmanager
def fleet(workers, stop=20, servers=1):
    with Folder() as folder, Fleet(folder, workers, stop, servers) as runs:
        yield runs


def test_a_run_beside_another_has_half_of_the_workers():
    with fleet(workers=2) as runs:
        runs.submit("first")
        runs.has(first=2)
        runs.submit("second")
        runs.has(first=1, second=1)
        runs.gate.open()
        runs.ends("first", "second")


def test_shares_follow_the_weights_that_are_set():
    with fleet(workers=4) as runs:
        runs.submit("first")
        runs.submit("second")
        runs.evens_out("second", 2)
        runs.set("second", "workers.weight=3")
        runs.evens_out("second", 3)
        runs.set("first", "workers.max=4", "workers.weight=1000")
        runs.evens_out("first", 3)
        runs.set("first", "workers.max=1")
        runs.evens_out("second", 3)
        runs.gate.open()
        runs.ends("first", "second")


def test_a_higher_priority_gets_its_minimum_and_gives_it_back():
    with fleet(workers=2) as runs:
        runs.submit("low")
        runs.has(low=2)
        high = runs.submit("high", "priority=5", "workers.min=2")
        runs.has(high=2, low=0)
        told = f"waiting for workers: 0 of 1; {high} has 2"
        wait_for(lambda: (low := runs.status("low"))["state"] == "running" and low["message"] == told, told)
        runs.gate.open()
        runs.ends("high", "low")


def test_a_gang_has_its_minimum_while_a_big_run_trains():
    with fleet(workers=3) as runs:
        runs.submit("big")
        runs.has(big=3)
        runs.submit("gang", "workers.min=2")
        runs.has(big=1, gang=2)
        assert runs.status("big")["state"] == "running"
        runs.gate.open()
        runs.ends("big", "gang")


def test_a_run_that_is_preempted_again_and_again_completes_a_step_each_time():
    """Each that comes has fewer steps than the gate lets runs make, and so it ends where the other stands."""
    with fleet(workers=1, stop=STANDS) as runs:
        low = runs.submit("low")
        wait_for(lambda: runs.status("low")["step"] == STANDS + 1, "steps")
        for number in range(PREEMPTIONS):
            high = f"high-{number}"
            runs.submit(high, "priority=5", "train.steps=10")
            if number > 0:  # the worker is back at the other run, which has not made a step with it
                status = runs.status(high)
                assert (status["state"], status["message"]) == ("queued", f"waiting for workers: 0 of 1; {low} is to give up 1"), status
                runs.gate.stop_at(STANDS + number)
            assert runs.clients[high].wait() == 0, runs.clients[high].output()[-2000:]
            assert runs.status("low")["step"] == STANDS + 1 + number
            runs.has(low=1)
        runs.gate.open()
        runs.ends("low")


def test_members_die_while_runs_share_them():
    with fleet(workers=2, servers=2) as runs:
        cluster = runs.cluster
        runs.submit("low")
        wait_for(lambda: newest_step(runs.metrics["low"]) >= 15, "steps")
        runs.submit("high", "priority=5", "workers.min=2")
        runs.has(high=2, low=0)
        kill(cluster.coordinator)
        cluster.start_coordinator()
        runs.evens_out("high", 2)  # one that comes back late has work again after the next step
        runs.has(high=2, low=0)
        kill(cluster.servers[0][0])
        cluster.restart_server(0)
        cluster.workers[0].send(signal.SIGKILL)
        runs.gate.stop_at(40)
        cluster.add_worker()
        wait_for(lambda: newest_step(runs.metrics["high"]) >= 40, "steps of the one that goes on")
        runs.gate.open()
        runs.ends("high", "low")


def test_a_worker_that_drains_has_no_work_whoever_coordinates():
    with fleet(workers=2) as runs:
        cluster = runs.cluster
        at = ("--coordinator", cluster.address)

        def states():
            return sorted(row["state"] for row in cluster.json("workers"))
        runs.submit("some")
        runs.has(some=2)
        assert "worker-1 (" in weir("drain", "worker-1", *at).stdout
        runs.has(some=1)
        assert states() == ["draining", "ready"]
        assert "no worker 'worker-9' is here" in weir("drain", "worker-9", *at, status=2).stderr
        assert "server-1 is the last server" in weir("drain", "server-1", *at, status=2).stderr
        kill(cluster.coordinator)
        cluster.start_coordinator()
        wait_for(lambda: states() == ["draining", "ready"], "both workers")
        cluster.workers[0].send(signal.SIGTERM)
        cluster.workers[1].send(signal.SIGTERM)
        cluster.add_worker()
        runs.gate.open()
        runs.ends("some")
        assert cluster.workers[0].wait() == 0 and cluster.workers[1].wait() == 0


def top_on_a_terminal(cluster, until):
    """What `weir top` has drawn when that was there; it ends by Ctrl-C."""
    with Terminal(20, 60, program("weir"), "top", "--coordinator", cluster.address) as top:
        top.shows(until)
        top.process.send_signal(signal.SIGINT)
        return top.ends()


def test_top_shows_who_has_the_workers_and_who_waits():
    with fleet(workers=2) as runs:
        first = runs.submit("first", "workers.max=2")
        runs.has(first=2)
        runs.submit("gang", "workers.min=3", "workers.weight=2.5")
        runs.submit("low", "priority=-1", "workers.min=3")
        lines = weir("top", "--coordinator", runs.cluster.address).stdout.splitlines()
        assert lines[0] == "workers 2, executors 2: 2 with runs, 0 idle"
        assert lines[1].startswith("servers 1 with ") and lines[1].endswith(" of weights; runs: 1 begun, 2 queued")
        assert lines[3].split()[:6] == ["RUN", "STATE", "PRIORITY", "WEIGHT", "WORKERS", "EXECUTORS"]
        rows = [" ".join(line.split()) for line in lines[4:]]
        assert rows[0].startswith(f"{first} running 0 1 2/2 2 ")
        assert " queued, 1. 0 2.5 0/0 0 " in rows[1] and rows[1].endswith(f"waiting for workers: 1 of 3; {first} has 2")
        assert rows[2].startswith("low-") and " queued, 2. -1 1 " in rows[2]
        drawn = top_on_a_terminal(runs.cluster, "queued, 2.")
        assert f"\n    waiting for workers: 1 of 3; {first} has 2" in drawn.replace("\r", ""), "below its run"
        assert "\033[H\033[J" in drawn and columns(drawn) <= 60 + 8, "cut to the terminal, and the clock over it"


def test_settings_that_cannot_be_are_refused():
    with fleet(workers=1, stop=10) as runs:
        runs.submit("some")

        def refusal(*settings):
            return runs.set("some", *settings, status=2).stderr
        assert "train.optimizer.lr: this cannot be set on a run that is there: " + PRIORITY_KEYS in refusal(
            "train.optimizer.lr=1")
        assert "did you mean 'priority'?" in refusal("pritority=1")
        assert "priority: a value is missing" in refusal("priority")
        assert "priority: must be from -1000 to 1000" in refusal("priority=1001")
        assert "workers.max: is below workers.min" in refusal("workers.min=3", "workers.max=2")
        assert "workers.weight: must be from 0.001 to 1000" in refusal("workers.weight=0")
        assert "workers.min=few: " in refusal("workers.min=few")
        assert "no run" in runs.set("other", "priority=1", status=2).stderr
        assert "argument is missing" in runs.set("some", status=2).stderr
        runs.set("some", "priority=-3", "workers.max=null")
        weir("cancel", "some", "--coordinator", runs.cluster.address)
        wait_for(lambda: runs.status("some")["state"] == "cancelled", "the end")
        assert "was cancelled: there is nothing to set" in refusal("priority=1")


if __name__ == "__main__":
    main(globals())
