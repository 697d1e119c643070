"""weir sweep with repeats: a trial is several runs of other seeds and of one split, and its result is their mean."""
import math

from harness import Cluster, Folder, main, wait_for, weir
from test_sweep import Sweep, write_sweep
from test_sweep_from import delete

SETTINGS = ("repeats=2", "concurrency=2", "budget.trials=4")


def write_split(folder, **options):
    """A sweep whose trials are evaluated on a part of their training data."""
    path = write_sweep(folder, **options)
    name = folder.file("spec-2-12.yaml")
    with open(name) as file:
        lines = [line for line in file if not line.startswith("  eval:")]
    folder.file("spec-2-12.yaml", "".join(lines).replace("data:\n", "data:\n  split: [0.8, 0.2]\n"))
    return path


def settings_of(trial):
    return [f"{value['path']}={value['value']}" for value in trial["values"]]


def test_results_are_means_and_the_log_is_the_same_whatever_dies():
    with Folder() as folder, Cluster(folder) as cluster:
        path = write_split(folder)
        info = Sweep(cluster, path, *SETTINGS).ends()
        expected = info["records"]
        results = [record["result"] for record in expected if "result" in record]
        assert len(results) > 4 and info["end"] == "nothing is left to do", info
        for result in results:
            first, second = (float(repeat["value"]) for repeat in result["repeats"])
            assert float(result["value"]) == (first + second) / 2, result
    with Folder() as folder, Cluster(folder, servers=2, workers=3) as cluster:
        sweep = Sweep(cluster, write_split(folder), *SETTINGS)
        sweep.outlives((2, "coordinator"), (4, "worker"), (6, "server"), (8, "coordinator"))
        assert sweep.ends()["records"] == expected


def test_repeats_end_in_the_bits_of_runs_of_other_seeds_and_one_split():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_split(folder, schedule="{name: none}"), *SETTINGS, "budget.trials=1")
        info = sweep.ends()
        trial, (result,) = info["trials"][0], (record["result"] for record in info["records"] if "result" in record)
        for repeat, seed in ((0, 3), (1, 4)):  # 3 is the run spec's
            status = cluster.json("status", trial["run"] + (f"-{repeat}" if repeat else ""))
            assert (status["state"], status["sweep"], status["trial"]) == ("done", sweep.id, 0)
            alone = weir("submit", folder.file("spec-2-12.yaml"), *settings_of(trial), f"train.seed={seed}",
                         "data.split_seed=3", "--follow", "--coordinator", cluster.address).stdout.strip()
            alone = cluster.json("status", alone)
            assert alone["weights_sha256"] == status["weights_sha256"]
            assert alone["accuracy"] == status["accuracy"]
            assert math.isclose(status["accuracy"], float(result["repeats"][repeat]["value"]), rel_tol=1e-6)
        delete(sweep)
        assert not any(run["run"].startswith(sweep.id) for run in cluster.json("runs", "--all"))


def test_a_repeat_that_fails_fails_its_trial_and_the_sweep_goes_on():
    with Folder() as folder, Cluster(folder) as cluster:
        points = "points: [{train.optimizer.lr: 1e30, train.optimizer.momentum: 0, train.batch: 24}]\n"
        path = write_split(folder, schedule="{name: none}", metric="loss", more=points)
        sweep = Sweep(cluster, path, *SETTINGS, "space={train.optimizer.lr: {log: [0.001, 1e30]}, "
                                                "train.batch: [24, 48], train.optimizer.momentum: [0, 0.5, 0.9]}")
        info = sweep.ends()
        assert info["trials"][0]["state"] == "failed" and len(info["trials"]) == 4, info
        assert info["trials"][0]["failure"] in ("its training diverges", "its value is not finite"), info
        wait_for(lambda: all(run["state"] in ("failed", "cancelled", "done") for run in cluster.json("runs", "--all")),
                 "the end of all runs")


def test_what_does_not_go_with_repeats_is_refused_by_line():
    with Folder() as folder:
        path = write_split(folder)
        with open(path, "a") as file:
            file.write("repeats: 3\n")
        lines = sum(1 for _ in open(path))
        said = weir("sweep", path, "concurrency=86", "--dry-run", status=2).stderr
        assert f"sweep.yaml:{lines}: repeats: 3 times concurrency, 86, are more than 256 runs" in said, said
        shown = weir("sweep", path, "--dry-run").stdout
        assert "3 trials at a time, each of 3 runs, of 2 microbatches each: at most 18 executors help" in shown, shown


if __name__ == "__main__":
    main(globals())
