"""weir sweep extend and delete: a sweep that has ended goes on with a larger budget, and one that is over goes away."""
import os
import signal

from harness import Cluster, Folder, kept, main, wait_for
from test_sweep import Sweep, write_sweep


def extended(sweep, trials):
    """Its log and its trials when the larger budget is used up."""
    sweep.ask("extend", sweep.id, f"budget.trials={trials}")
    return sweep.ends()


def undisturbed():
    """The log on one worker and one server that nobody disturbs."""
    def run():
        with Folder() as folder, Cluster(folder) as cluster:
            sweep = Sweep(cluster, write_sweep(folder, trials=4))
            sweep.ends()
            return extended(sweep, 9)["records"]
    return kept("sweep-extended", run)


def test_an_ended_sweep_goes_on_with_a_larger_budget():
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, workers=2, servers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=4))
        before = sweep.ends()
        assert (before["begun"], before["records"]) == (4, expected[:len(before["records"])])
        info = extended(sweep, 9)
        assert info["records"] == expected
        assert info["begun"] == 9 and info["end"] == "nothing is left to do", info
        assert info["spec"]["budget"]["trials"] == 9
        went_on = [new["number"] for old, new in zip(before["trials"], info["trials"])
                   if old["state"] == "stopped" and len(new["results"]) > len(old["results"])]
        assert went_on, "no trial that had waited went on"
        for number in went_on:
            assert cluster.json("status", info["trials"][number]["run"])["state"] in ("done", "cancelled")


def test_an_extension_outlives_deaths():
    expected = undisturbed()
    at = next(number for number, record in enumerate(expected) if "extension" in record)
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=4))
        sweep.ends()
        sweep.ask("extend", sweep.id, "budget.trials=9")
        for count in (at + 1, at + 4, at + 8):
            wait_for(lambda count=count: len(sweep.info()["records"]) >= count, f"{count} records")
            cluster.coordinator.send(signal.SIGKILL)
            cluster.coordinator.wait()
            cluster.start_coordinator()
        assert sweep.ends()["records"] == expected


def test_a_running_sweep_is_extended():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=3))
        info = extended(sweep, 5)
        assert info["begun"] == 5 and [trial["state"] for trial in info["trials"]] == ["done"] * 5


def test_a_budget_that_is_not_larger_is_refused():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=3))
        for setting, text in (("budget.trials=3", "budget.trials: 3 is not above the 3"),
                              ("budget.steps=900", "budget.steps: the sweep has no such bound"),
                              ("budget.trials=x", "'budget.trials=x' is none of"), ("concurrency=4", "is none of")):
            error = sweep.ask("extend", sweep.id, setting, status=2).stderr
            assert error.count("\n") == 1 and text in error, error


def test_a_sweep_whose_seconds_have_passed_needs_new_ones():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=500), "budget.seconds=0.001")
        wait_for(lambda: sweep.info().get("end") == "budget.seconds have passed", "the end")
        error = sweep.ask("extend", sweep.id, "budget.trials=501", status=2).stderr
        assert error.count("\n") == 1 and f"the budget.seconds of sweep '{sweep.id}' have passed" in error, error
        sweep.ask("extend", sweep.id, "budget.trials=501", "budget.seconds=3600")
        wait_for(lambda: sweep.info()["has_best"], "a result")
        sweep.ask("stop", sweep.id)


def test_a_sweep_that_is_over_is_deleted_with_its_runs():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=500))
        error = sweep.ask("delete", sweep.id, status=2).stderr
        assert "is not over" in error and "weir sweep stop" in error, error
        wait_for(lambda: sweep.info()["has_best"], "a result")
        other = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=2))
        sweep.ask("stop", sweep.id)
        trials = [trial["run"] for trial in sweep.ends()["trials"]]

        def delete():
            try:
                sweep.ask("delete", sweep.id)
            except AssertionError as why:
                assert "are ending: try again" in str(why), why
                return False
            return True
        wait_for(delete, "the end of its runs")
        assert "no sweep" in sweep.ask("status", sweep.id, status=2).stderr
        assert not set(trials) & {run["run"] for run in cluster.json("runs", "--all")}
        records = os.path.join(folder.path, "store", "records")
        for room in ("sweeps", "runs"):
            assert not [name for name in os.listdir(os.path.join(records, room)) if name.startswith(sweep.id)
                        for _, _, files in os.walk(os.path.join(records, room, name)) if files]
        assert [trial["state"] for trial in other.ends()["trials"]] == ["done"] * 2
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
        assert "no sweep" in sweep.ask("status", sweep.id, status=2).stderr
        assert other.info()["begun"] == 2


if __name__ == "__main__":
    main(globals())
