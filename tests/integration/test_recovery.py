"""Servers and coordinators die in mid-run, and the run ends in the same bits as if nobody had.

The model has batch norm and dropout, the optimizer two slots and a momentum that is a product over all steps, and each
checkpoint falls on an evaluation: whatever a roll-back could forget would show in the weights, or in a step's loss. What
happens to a run happens in its middle: it goes no further than to a step that the test names (gate.py)."""
import contextlib
import ctypes
import os
import signal
import time

from gate import Gate
from harness import (Cluster, Folder, Process, assert_recovered, children_of, kept, main, newest_step, outcome, program,
                     read_metrics, wait_for, weir)

STEPS, EVERY = 120, 5
# The group cuts the model into four blocks, for up to three servers.
OPTIMIZER = ("{name: sgd, lr: 0.05, momentum: 0.9}", "{name: nadam, lr: 0.004, momentum_decay: 0.1, "
             "groups: [{params: ['fc2*'], weight_decay: 0.01}]}")
MODEL = ("mlp", "--hidden", "28,16", "--batch-norm", "--dropout", "0.25", "--seed", "3")


def write_spec(folder, every=EVERY, more=""):
    """A spec, its model and its data. Checkpoints change nothing of the result, and `more` of it should not."""
    folder.small_data(480, 24)
    path = folder.small_spec(folder.model(*MODEL), 4, STEPS, EVERY)
    with open(path) as file:
        text = file.read().replace(*OPTIMIZER).replace("batch: 48\n", "batch: 24\n")
    assert OPTIMIZER[1] in text and "batch: 24" in text
    return folder.file("spec.yaml", text + f"checkpoint: {{every_steps: {every}, keep: 2}}\n" + more)


def undisturbed():
    """The outcome of a run of its own that nobody disturbs."""
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("recovery", train)


class Run:
    """A run on a cluster, followed by a client that stays. stop: the step at which it stands still until go() or held()."""

    def __init__(self, folder, cluster, every=EVERY, stop=None, more=""):
        self.cluster, self.metrics = cluster, folder.file("metrics.jsonl")
        self.go(stop)
        self.client = Process(program("weir"), "submit", write_spec(folder, every, more), "--follow", "--metrics",
                              self.metrics, "--coordinator", cluster.address)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.__exit__()

    def steps(self):
        return [event for event in read_metrics(self.metrics) if event["event"] == "step"]

    def incarnation(self):
        return max((event.get("incarnation", 0) for event in self.steps()), default=0)

    def before_its_end(self, condition, what):
        """The condition; AssertionError when the run ends without it."""
        def holds():
            is_over = self.client.child.poll() is not None
            value = condition()
            assert value or not is_over, f"before {what}: {self.client.output()[-2000:]}"
            return value
        return holds

    def wait(self, condition, what):
        return wait_for(self.before_its_end(condition, what), what)

    def wait_step(self, step, incarnation=0):
        self.wait(lambda: any(event["step"] >= step and event.get("incarnation", 0) >= incarnation
                              for event in reversed(self.steps())), f"step {step} of incarnation {incarnation}")

    @contextlib.contextmanager
    def held(self, then=None):
        """While the run stands still where it was to stop. After that it goes on: to the step `then`, or to its end. If it had
        to crawl so far that it might be there already, it goes further."""
        self.wait_step(self.cluster.gate.step)
        yield
        assert self.incarnation() or newest_step(self.metrics) <= self.cluster.gate.step, "it did not stand still"
        self.go(None if then is None else max(then, self.cluster.gate.step + EVERY))

    def go(self, then=None):
        if then is not None:
            self.cluster.gate.stop_at(then)
        elif self.cluster.gate:
            self.cluster.gate.open()

    def crawl(self, condition, what):
        """As wait(), for what only comes while a run goes on that stands still otherwise."""
        return self.cluster.gate.crawl(self.before_its_end(condition, what), what, EVERY)

    def wait_checkpoint(self, step=EVERY):
        """One of at least `step` is committed. Training does not wait for the store, so there may be fewer; and the one
        that is ordered is of a step to come, so a run that stands still goes on as far as it takes."""
        wait = self.crawl if self.cluster.gate else self.wait
        wait(lambda: self.status()["checkpoint_step"] >= step, f"a checkpoint of step {step}")

    def status(self):
        return self.cluster.json("status", "small")

    def end(self):
        self.go()
        assert self.client.wait() == 0, self.client.output()[-3000:]
        assert_recovered(self.metrics, undisturbed())


@contextlib.contextmanager
def gated(servers, workers, stop, every=EVERY, is_patient=False):
    """A cluster and a run on it that stands still at the step `stop`."""
    with Folder() as folder, Cluster(folder, servers, workers, is_patient=is_patient, gate=Gate(folder)) as cluster, \
            Run(folder, cluster, every, stop) as run:
        yield cluster, run


def kill(*processes):
    """Returns when."""
    began = time.monotonic()
    for process in processes:
        process.send(signal.SIGKILL)
    for process in processes:
        process.wait()
    return began


def swap(one, other):
    """Two paths, at once: servers write there meanwhile."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, one.encode(), here, other.encode(), exchange) != 0:
        raise OSError(ctypes.get_errno(), "renameat2", one)


def tell(what, began):
    print(f"# {what}: {time.monotonic() - began:.1f} s from the kill to the next step", flush=True)


def parameter_servers(training):
    """pids of those that a `weir train` has started."""
    found = []
    for pid in children_of(training.child.pid, "weir-server"):
        with open(f"/proc/{pid}/cmdline") as command:
            if "--role=parameters" in command.read():
                found.append(pid)
    return found


def kill_all(cluster):
    """All processes but the client."""
    began = kill(*[server for server, _ in cluster.servers], *cluster.workers, cluster.coordinator)
    cluster.workers = []
    return began


def test_a_killed_server_is_restarted_by_the_launcher_and_nothing_changes():
    with Folder() as folder:
        gate, metrics = Gate(folder), folder.file("metrics.jsonl")
        gate.stop_at(60)
        with Process(program("weir"), "train", write_spec(folder), "--workers", 2, "--servers", 2, "--threads", 1,
                     "--out", folder.file("out"), "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 30, "step 30")
            began = time.monotonic()
            os.kill(parameter_servers(training)[0], signal.SIGKILL)
            gate.open()
            wait_for(lambda: any("incarnation" in event for event in read_metrics(metrics)), "a step thereafter")
            tell("a server, restarted by weir train", began)
            assert training.wait() == 0, training.output()[-3000:]
        assert_recovered(metrics, undisturbed())


def test_the_server_that_remains_takes_all_blocks():
    with gated(servers=2, workers=2, stop=60) as (cluster, run):
        run.wait_step(30)
        began = kill(cluster.servers[0][0])
        run.go()
        run.wait_step(0, incarnation=1)
        tell("a server, not restarted", began)
        run.end()
        wait_for(lambda: len(cluster.json("servers")) == 1, "the one server, should it have been missed")


def test_both_servers_die_and_come_back():
    with gated(servers=2, workers=2, stop=30) as (cluster, run):
        with run.held():
            run.wait_checkpoint(10)
            began = kill(*[server for server, _ in cluster.servers])
        cluster.restart_server(0)
        cluster.restart_server(1)
        run.wait_step(10, incarnation=1)
        tell("both servers, restarted", began)
        run.end()
        again = [event["step"] for event in run.steps() if "incarnation" in event]
        assert min(again) >= 10, "it went on from a checkpoint, not from the start"


def test_a_coordinator_that_is_restarted_loses_no_step():
    with gated(servers=2, workers=2, stop=60, is_patient=True) as (cluster, run):
        run.wait_step(30)
        began = kill(cluster.coordinator)
        seen = newest_step(run.metrics)
        cluster.start_coordinator()
        run.go()
        run.wait_step(seen + 1)
        tell("the coordinator, restarted", began)
        run.end()
        assert run.incarnation() == 0, "nothing was rolled back"


def test_a_coordinator_and_a_server_die_at_once():
    with gated(servers=2, workers=2, stop=60) as (cluster, run):
        run.wait_step(30)
        began = kill(cluster.servers[1][0], cluster.coordinator)
        run.go()
        cluster.start_coordinator()
        cluster.restart_server(1)
        run.wait_step(0, incarnation=1)
        tell("the coordinator and a server, restarted", began)
        run.end()


def test_after_everything_died_the_run_goes_on_with_fewer():
    with gated(servers=2, workers=2, stop=30) as (cluster, run):
        for step, servers, then in ((30, 2, 60), (60, 1, None)):
            incarnation = run.incarnation()
            with run.held(then):
                run.wait_checkpoint(step // 2)
                began = kill_all(cluster)
            cluster.start_coordinator()
            for number in range(servers):
                cluster.restart_server(number)
            del cluster.servers[servers:]
            for _ in range(3 - servers):
                cluster.add_worker()
            run.wait_step(step // 2, incarnation=incarnation + 1)
            tell(f"everything, restarted with {servers} of 2 servers", began)
        run.end()


def test_a_run_that_was_paused_on_two_servers_goes_on_with_three_then_with_one():
    with gated(servers=2, workers=2, stop=25, is_patient=True) as (cluster, run):
        at = ("--coordinator", cluster.address)

        def pause(then):
            with run.held(then):
                weir("pause", "small", *at)
                run.crawl(lambda: run.status()["state"] == "paused", "the pause")
        pause(then=50)
        cluster.add_server()
        wait_for(lambda: len(cluster.json("servers")) == 3, "the third server")
        weir("resume", "small", *at)
        run.wait_step(50, incarnation=1)
        blocks = [server["blocks"] for server in cluster.json("servers")]
        assert len(blocks) == 3 and all(blocks), blocks
        pause(then=None)
        for server, _ in cluster.servers[:2]:
            server.send(signal.SIGTERM)
            assert server.wait() == 0, server.output()[-2000:]
        weir("resume", "small", *at)
        run.end()
        assert run.incarnation() >= 2


def test_a_server_dies_while_the_last_checkpoint_is_written():
    with gated(servers=2, workers=2, stop=STEPS // 2) as (cluster, run):
        blocks, aside = cluster.folder.file("store/blocks"), cluster.folder.file("aside", "in the way of whoever writes\n")
        with run.held():
            run.wait_checkpoint()
            swap(blocks, aside)
        run.wait(lambda: run.status()["state"] == "finishing", "the end of training")
        run.wait_step(STEPS - 1)
        kill(cluster.servers[0][0])
        swap(blocks, aside)
        cluster.restart_server(0)
        run.end()
        assert run.incarnation() > 0, "the last version was lost with the server"


def test_a_server_dies_before_the_first_checkpoint():
    with gated(servers=2, workers=2, stop=60, every=STEPS) as (cluster, run):
        run.wait_step(15)
        kill(cluster.servers[0][0])
        run.go()
        cluster.restart_server(0)
        run.end()
        assert next(event["step"] for event in run.steps() if "incarnation" in event) == 0


def test_a_server_dies_during_the_roll_back_for_another():
    with gated(servers=2, workers=2, stop=30) as (cluster, run):
        with run.held(then=60):
            kill(cluster.servers[0][0])
            cluster.restart_server(0)
            run.wait(lambda: " roll_back " in cluster.coordinator.output(), "the roll-back")
            kill(cluster.servers[1][0])
            cluster.restart_server(1)
        with run.held():
            kill(cluster.servers[0][0])
        cluster.restart_server(0)
        run.end()
        assert cluster.coordinator.output().count(" roll_back ") >= 2


if __name__ == "__main__":
    main(globals())
