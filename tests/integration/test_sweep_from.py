"""A sweep whose searcher learns of the trials of sweeps before it, which may be gone since."""
import signal

from harness import Cluster, Folder, main, wait_for, weir
from test_sweep import Sweep, write_sweep

LATER = ("search={name: tpe, seed: 3, n_startup_trials: 2}", "budget.trials=5",
         "space={train.optimizer.lr: {log: [0.001, 0.5]}, train.optimizer.momentum: [0, 0.5, 0.9], train.batch: [24, 48]}")


def delete(sweep):
    def is_done():
        try:
            return sweep.ask("delete", sweep.id)
        except AssertionError as why:
            assert "are ending: try again" in str(why), why
            return False
    wait_for(is_done, "the end of its runs")


def later_log(before_the_end=lambda cluster, earlier, sweep: None, **cluster_options):
    """The log of a sweep that learns of another one."""
    with Folder() as folder, Cluster(folder, **cluster_options) as cluster:
        path = write_sweep(folder)
        earlier = Sweep(cluster, path)
        n_over = len(earlier.ends()["trials"])
        sweep = Sweep(cluster, path, *LATER, f"from=[{earlier.id[:-2]}]")  # a prefix
        before_the_end(cluster, earlier, sweep)
        info = sweep.ends()
        assert info["earlier"] == n_over == len(info["records"][0]["earlier"]["trials"]), info["records"][0]
        assert info["spec"]["from"] == [earlier.id]
        shown = sweep.ask("status", sweep.id).stdout.splitlines()[0]
        assert shown.endswith(f"it has learned from {n_over} trials of other sweeps"), shown
        return info["records"]


def test_the_log_is_the_same_on_any_cluster_and_when_the_other_sweep_is_gone():
    def bereave(cluster, earlier, sweep):
        wait_for(lambda: len(sweep.info()["records"]) >= 4, "4 records")
        delete(earlier)
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
    assert later_log() == later_log(bereave, workers=2, servers=2)


def test_a_sweep_that_is_not_there_or_says_nothing_is_refused():
    with Folder() as folder, Cluster(folder) as cluster:
        path = write_sweep(folder, schedule="{name: none}", trials=2)
        earlier = Sweep(cluster, path)
        earlier.ends()
        for settings, text in ((("from=[nobody]",), "from=[nobody]: from: no sweep 'nobody'"),
                               ((f"from=[{earlier.id}, {earlier.id[:-1]}]",), f"from: '{earlier.id}' is there twice"),
                               ((f"from=[{earlier.id}]", "objective={metric: loss}"), f"'{earlier.id}' is accuracy, max"),
                               ((f"from=[{earlier.id}]", "space={train.optimizer.lr: {log: [1e-9, 1e-8]}}"),
                                f"sweep '{earlier.id}' has no trial that is over"),
                               ((f"from=[{earlier.id}]", "search={name: sobol}"), "'sobol' does not learn")):
            error = weir("sweep", path, *LATER, *settings, "--coordinator", cluster.address, status=2).stderr
            assert error.count("\n") == 1 and text in error, error
        assert sum(line.startswith("search-") for line in earlier.ask("status").stdout.splitlines()) == 1
        error = weir("sweep", path, *LATER, "from=[nobody]", "--out", folder.file("out"), status=2).stderr
        assert error.count("\n") == 1 and "from: a private cluster has no other sweeps" in error, error


if __name__ == "__main__":
    main(globals())
