#!/usr/bin/env python3
"""A worker whose executor hangs while its other threads go on."""
import signal

from frozen_thread import FrozenThread
from harness import Cluster, Folder, assert_recovered, main, newest_step, wait_for, weir
from test_recovery import Run, undisturbed


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
        assert newest_step(run.metrics) < 200  # it was in mid-run


def test_a_worker_that_hangs_obeys_an_order_to_unload_its_run_by_its_end():
    def cancel(cluster, worker):
        weir("cancel", cluster.json("runs")[0]["run"], "--coordinator", cluster.address)
        assert worker.child.poll() is None
    end_while_it_hangs(cancel)


def test_a_worker_that_hangs_can_be_stopped():
    end_while_it_hangs(lambda cluster, worker: worker.send(signal.SIGTERM))


def test_a_run_goes_on_while_a_worker_hangs_and_ends_in_the_same_bits():
    """Its steps are late, others compute what they lack; then it is given nothing more."""
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, servers=2, workers=2, is_patient=True) as cluster, \
            Run(folder, cluster) as run:
        run.wait_step(10)
        with FrozenThread(cluster.workers[0].child.pid, "executor 0"):
            step = newest_step(run.metrics)
            run.wait_step(step + 30)
        assert run.client.wait() == 0, run.client.output()[-2000:]
        assert_recovered(run.metrics, expected)


if __name__ == "__main__":
    main(globals())
