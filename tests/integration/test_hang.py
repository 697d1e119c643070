#!/usr/bin/env python3
"""A worker whose executor hangs while its other threads go on."""
import signal

from frozen_thread import FrozenThread
from harness import Cluster, Folder, Process, main, newest_step, program, read_metrics, wait_for, weir
from test_recovery import MODEL

FOR_EVER = 1000000  # steps: a thread can only be stopped in a run that goes on; then the run is cancelled


class Run:
    """An endless run, followed by a client. more: of its spec, which should not change the result."""

    def __init__(self, folder, cluster, more=""):
        folder.small_data(480, 24)
        spec = folder.small_spec(folder.model(*MODEL), 4, FOR_EVER, FOR_EVER)
        with open(spec, "a") as file:
            file.write(more)
        self.spec, self.metrics = spec, folder.file("metrics.jsonl")
        self.client = Process(program("weir"), "submit", spec, "--follow", "--metrics", self.metrics, "--coordinator",
                              cluster.address)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.__exit__()

    def wait_step(self, step):
        wait_for(lambda: newest_step(self.metrics) >= step, f"step {step}")


def losses(metrics, steps):
    return [event["loss"] for event in read_metrics(metrics) if event["event"] == "step"][:steps]


def undisturbed(folder, steps):
    """The losses of a run of so many steps that nobody disturbs."""
    spec = folder.small_spec(folder.model(*MODEL), 4, steps, FOR_EVER)
    weir("train", spec, "--threads", 1, "--out", folder.file("calm"))
    return losses(folder.file("calm/metrics.jsonl"), steps)


def end_while_it_hangs(send_away):
    """A worker that hangs in a run, and is sent away, ends by itself and says why."""
    with Folder() as folder, Cluster(folder, is_patient=True) as cluster, Run(folder, cluster) as run:
        run.wait_step(1)
        worker = cluster.workers[0]
        with FrozenThread(worker.child.pid, "executor 0") as frozen:
            send_away(cluster, worker)
            status = wait_for(lambda: frozen.reaped(worker), "the end of the worker")
        assert status == 1, status
        assert " hung run=" in worker.output(), worker.output()[-2000:]


def test_a_worker_that_hangs_obeys_an_order_to_unload_its_run_by_its_end():
    def cancel(cluster, worker):
        weir("cancel", cluster.json("runs")[0]["run"], "--coordinator", cluster.address)
    end_while_it_hangs(cancel)


def test_a_worker_that_hangs_can_be_stopped():
    end_while_it_hangs(lambda cluster, worker: worker.send(signal.SIGTERM))


def test_a_run_goes_on_while_a_worker_hangs_and_ends_in_the_same_bits():
    """Its steps are late, others compute what they lack; then it is given nothing more."""
    with Folder() as folder, Cluster(folder, servers=2, workers=2, is_patient=True) as cluster, \
            Run(folder, cluster) as run:
        run.wait_step(10)
        with FrozenThread(cluster.workers[0].child.pid, "executor 0"):
            run.wait_step(newest_step(run.metrics) + 30)
        steps = newest_step(run.metrics) + 20
        run.wait_step(steps)
        weir("cancel", "small", "--coordinator", cluster.address)
        assert run.client.wait() == 1, run.client.output()[-2000:]
        assert losses(run.metrics, steps) == undisturbed(folder, steps)


if __name__ == "__main__":
    main(globals())
