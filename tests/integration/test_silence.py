"""Packets vanish, as when a cable is unplugged: nobody is told. Every run ends in the undisturbed run's bits.

The processes are on machines of their own, in network namespaces that this program makes; where it may not, its tests are
skipped. Links are slow, so that a run lasts for what is to be seen, and where that takes long it stands before its end. Prints the rows of the table in docs/RELIABILITY.md."""
import os
import signal
import threading
import time

import network
from gate import Gate
from harness import Cluster, Folder, assert_recovered, main, newest_step, outcome, read_metrics, wait_for, weir
from test_recovery import STEPS, Run

os.environ["WEIR_SHM"] = "off"  # all that is computed goes through the network
PACE_MBIT, SLOW_MBIT, HOLD_SECONDS, FROZEN_SECONDS = 2, 50, 8, 8


class Watch:
    """When each step became known to a client that follows the run."""

    def __init__(self, metrics):
        self.metrics, self.came, self.is_over = metrics, [], False
        threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        while not self.is_over:
            steps = [event for event in read_metrics(self.metrics) if event["event"] == "step"]
            now = time.monotonic()
            self.came += [(now, event["step"]) for event in steps[len(self.came):]]
            time.sleep(0.05)

    def has_seen(self, step):
        return any(seen >= step for _, seen in self.came)

    def tell(self, what, began, ended=None):
        """The row of a fault of that time: how long nobody was told of a step, and how many steps were computed again."""
        times = [began] + [when for when, _ in self.came if began < when < (ended + 1 if ended else when + 1)]
        gap = max(range(1, len(times)), key=lambda at: times[at] - times[at - 1])
        before = [step for when, step in self.came if when < times[gap]]
        after = next(step for when, step in self.came if when >= times[gap])
        print(f"# | {what} | {times[gap] - times[gap - 1]:.1f} s | {max(before) + 1 - after} | 0 | equal |", flush=True)


class Silence:
    """Two servers and two workers on machines of their own, and a run that a slow network paces."""

    def __init__(self, folder, **options):
        self.network = network.Network(5)
        try:
            self.start(folder, **options)
        except Exception:
            self.network.__exit__()
            raise

    def start(self, folder, **options):
        self.coordinator, *servers, first, second = self.network.machines
        self.servers, self.workers = servers, [first, second]
        self.cluster = Cluster(folder, servers=0, workers=0, listen=f"{self.coordinator.address}:0",
                               preexec_fn=self.coordinator.enter, gate=Gate(folder), **options)
        for machine in servers:
            machine.limit(PACE_MBIT)
            self.cluster.servers.append(self.cluster.start_server(listen=f"{machine.address}:0", preexec_fn=machine.enter))
            self.cluster.all_join()
        for machine in self.workers:
            self.cluster.add_worker(preexec_fn=machine.enter)
        self.cluster.all_join()
        self.run = Run(folder, self.cluster, stop=10)
        self.watch = Watch(self.run.metrics)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.watch.is_over = True
        self.run.__exit__()
        self.cluster.__exit__()
        self.network.__exit__()

    def cut(self, *ways):
        """In the middle of the run. Until then, nothing is missed on a link that is merely slow."""
        self.run.wait_step(10)
        self.run.wait_checkpoint()
        self.run.go(STEPS - 10)
        assert not self.alarms(), self.alarms()
        began = time.monotonic()
        for one, other in ways:
            self.network.cut(one, other)
        return began

    def goes_on(self):
        """Waits for a step more, of the last ten, too."""
        seen = newest_step(self.run.metrics)
        self.run.cluster.gate.crawl(lambda: self.watch.has_seen(seen + 1), "a step", steps=1)

    def mend(self, way, is_found, what):
        """The way is whole again, and in use once that is so."""
        began = time.monotonic()
        self.network.mend(*way)
        self.run.wait(is_found, what)
        print(f"# {what}: {time.monotonic() - began:.1f} s after packets came through", flush=True)

    def alarms(self):
        return [line for worker in self.cluster.workers for line in worker.output().splitlines()
                if " servers_unreached " in line]

    def row(self, worker):
        """What the coordinator says of a worker; {} while it misses it."""
        return next((row for row in self.cluster.json("workers") if row["pid"] == worker.child.pid), {})

    def said(self, text):
        return text in self.cluster.coordinator.output()

    def end(self):
        for machine in self.servers:
            machine.limit(None)
        self.run.end()

    def end_and_tell(self, what, began):
        self.end()
        self.watch.tell(what, began)


def test_others_compute_for_a_worker_whose_packets_to_a_server_vanish():
    with Folder() as folder, Silence(folder, is_patient=True) as silence:
        run, (first, second) = silence.run, silence.cluster.workers
        way = silence.workers[0], silence.servers[1]
        began = silence.cut(way)
        run.wait(lambda: silence.row(first).get("state") == "cut-off", "the worker's being cut off")
        assert "no answer within" in silence.row(first)["message"], silence.row(first)
        assert silence.row(second)["microbatches"] == 4
        silence.goes_on()
        silence.mend(way, lambda: silence.said("from=cut-off to="), "the worker's being back")
        silence.end_and_tell("a worker and a server", began)
        assert run.incarnation() == 0, "nothing was rolled back"


def test_a_server_to_which_all_workers_packets_vanish_is_done_without():
    with Folder() as folder, Silence(folder) as silence:
        began = silence.cut(*[(machine, silence.servers[1]) for machine in silence.workers])
        silence.run.wait_step(10, incarnation=1)
        silence.end_and_tell("all workers and a server", began)
        assert silence.said("no worker reaches all servers")


def test_a_server_that_the_coordinator_alone_does_not_hear_is_kept():
    faults = []
    with Folder() as folder, Silence(folder, is_patient=False) as silence:
        for number, machine in enumerate(silence.servers):
            way, told = (machine, silence.coordinator), f"server-{number + 1} ({silence.cluster.servers[number][1]})"
            began = silence.cut(way)
            silence.run.wait(lambda told=told: f"{told} is not heard of, but workers reach it" in
                             silence.run.status()["message"], "word of the server that workers reach")
            time.sleep(HOLD_SECONDS)  # longer than a run waits for a server that is lost
            assert silence.run.status()["incarnation"] == 0
            silence.mend(way, lambda: silence.run.status()["message"] == "", "the server's being heard of")
            silence.goes_on()
            faults.append((began, time.monotonic()))
        assert silence.cluster.coordinator.output().count(" server_kept ") >= 2
        silence.end()
        for began, ended in faults:
            silence.watch.tell(f"a server and the coordinator, for {ended - began:.0f} s", began, ended)
        assert silence.run.incarnation() == 0, "nothing was rolled back"


def test_others_compute_for_a_worker_that_the_coordinator_does_not_hear():
    with Folder() as folder, Silence(folder, is_patient=True) as silence:
        run, (first, second) = silence.run, silence.cluster.workers
        way = silence.workers[0], silence.coordinator
        began = silence.cut(way)
        run.wait(lambda: len(silence.cluster.json("workers")) == 1, "the worker's being missed")
        run.wait(lambda: silence.row(second).get("microbatches") == 4, "the other's having all work")
        silence.mend(way, lambda: len(silence.cluster.json("workers")) == 2, "the worker's being heard of")
        run.wait(lambda: silence.row(first).get("microbatches") == 2, "the worker's having work again")
        assert not silence.alarms(), silence.alarms()
        silence.end_and_tell("a worker and the coordinator", began)
        assert run.incarnation() == 0, "nothing was rolled back"


def test_a_worker_that_was_frozen_raises_no_alarm():
    with Folder() as folder, Silence(folder, is_patient=True) as silence:
        run, (first, second) = silence.run, silence.cluster.workers
        began = silence.cut()
        first.send(signal.SIGSTOP)
        run.wait(lambda: len(silence.cluster.json("workers")) == 1, "the worker's being missed")
        time.sleep(FROZEN_SECONDS)  # longer than a server may be silent
        first.send(signal.SIGCONT)
        run.wait(lambda: len(silence.cluster.json("workers")) == 2 and silence.row(first).get("microbatches") == 2,
                 "the worker's having work again")
        assert silence.row(second)["state"] == "ready" and not silence.alarms(), silence.alarms()
        silence.end_and_tell("a worker that is frozen, and thawed", began)


def test_a_slow_link_with_megabytes_on_their_way_is_no_silence():
    with Folder() as folder, network.Network(4) as net:
        coordinator, server, *workers = net.machines
        folder.small_data(480, 24)
        spec = folder.small_spec(folder.model("mlp", "--hidden", "4096", "--seed", "3"), 2, 6, 3)
        weir("train", spec, "--threads", 1, "--out", folder.file("out"))
        metrics = folder.file("metrics.jsonl")
        with Cluster(folder, servers=0, workers=0, is_patient=True, listen=f"{coordinator.address}:0",
                     preexec_fn=coordinator.enter) as cluster:
            cluster.start_server(listen=f"{server.address}:0", preexec_fn=server.enter)
            for machine in workers:
                machine.limit(SLOW_MBIT)
                cluster.add_worker(preexec_fn=machine.enter)
            wait_for(lambda: len(cluster.json("workers")) == 2, "the workers")
            weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            assert_recovered(metrics, outcome(folder.file("out/metrics.jsonl")))
            for worker in cluster.workers:
                assert " servers_unreached " not in worker.output(), worker.output()[-2000:]
            assert "cut-off" not in cluster.coordinator.output()


if __name__ == "__main__":
    network.enter()
    main(globals())
