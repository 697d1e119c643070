"""Runs that compute on one worker at the same time, each with some of its executors, and no bit depends on it."""
import contextlib
import signal

from harness import Folder, main, wait_for
from test_recovery import kill
from test_shares import Fleet
from test_turns import CRAWL, undisturbed, write_spec

THREADS = 4


class Seats(Fleet):
    def __init__(self, folder, servers):
        super().__init__(folder, 0, 20, servers, write_spec, undisturbed)
        self.cluster.add_worker(THREADS)

    def seats(self):
        """Of all workers together: how many executors each run is dealt."""
        dealt = {}
        for worker in self.cluster.json("workers"):
            for seat in worker.get("seats", []):
                name = seat["run"].rpartition("-")[0]
                dealt[name] = dealt.get(name, 0) + (seat["executors"] if seat["state"] == "ready" else 0)
        return dealt

    def deals(self, **executors):
        wait_for(lambda: self.seats() == executors, f"{executors}, not {self.seats()}")

    def both_step(self, *names):
        """Each of them makes a step from where it is."""
        before = {name: self.status(name)["step"] for name in names}
        self.gate.crawl(lambda: all(self.status(name)["step"] > before[name] for name in names), f"steps of {names}", **CRAWL)


@contextlib.contextmanager
def fleet(servers=1):
    with Folder() as folder, Seats(folder, servers) as runs:
        yield runs


def test_two_runs_compute_on_one_worker_at_the_same_time():
    with fleet() as runs:
        runs.submit("first")
        runs.deals(first=4)
        runs.submit("second")
        runs.deals(first=2, second=2)
        runs.both_step("first", "second")
        assert runs.status("first")["message"] == runs.status("second")["message"] == ""
        runs.set("second", "workers.weight=3")
        runs.deals(first=1, second=3)
        runs.both_step("first", "second")
        runs.gate.open()
        runs.ends("first", "second")


def test_a_higher_priority_takes_the_worker_of_both_and_gives_it_back():
    with fleet() as runs:
        runs.submit("first")
        runs.submit("second")
        runs.deals(first=2, second=2)
        runs.submit("high", "priority=5", "train.microbatches=4", "train.steps=40")
        runs.gate.crawl(lambda: runs.seats() == {"high": 4}, "the worker for the higher priority", **CRAWL)
        runs.gate.open()
        runs.ends("first", "second")


def test_members_die_while_two_runs_compute_on_one_worker():
    with fleet(servers=2) as runs:
        cluster = runs.cluster
        runs.submit("first")
        runs.submit("second")
        runs.deals(first=2, second=2)
        kill(cluster.coordinator)
        cluster.start_coordinator()
        runs.deals(first=2, second=2)
        runs.both_step("first", "second")
        kill(cluster.servers[0][0])
        cluster.restart_server(0)
        runs.deals(first=2, second=2)
        runs.both_step("first", "second")
        cluster.workers[0].send(signal.SIGKILL)
        cluster.add_worker(THREADS)
        runs.deals(first=2, second=2)
        runs.both_step("first", "second")
        runs.gate.open()
        runs.ends("first", "second")


if __name__ == "__main__":
    main(globals())
