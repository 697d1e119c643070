"""weir sweep extend and delete: a sweep that has ended goes on with a larger budget, and one that is over goes away."""
import os
import signal

from harness import Cluster, Folder, kept, main, wait_for, weir
from test_sweep import Sweep, assert_hold_is_refused, set_run, wait_for_run, write_sweep

PRIVATE = {**os.environ, "WEIR_COORDINATOR": ""}


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
            wait_for(lambda run=info["trials"][number]["run"]: cluster.json("status", run)["state"] in ("done", "cancelled"),
                     "the end of a trial that the sweep's end ended")


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


def test_holds_are_those_of_the_sweep_until_it_has_ended():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=4))
        first = sweep.ends()["trials"][0]["run"]
        cluster.workers[0].send(signal.SIGKILL)  # nothing goes on by itself
        sweep.ask("extend", sweep.id, "budget.trials=9")
        run = sweep.id + "-0004"
        wait_for_run(cluster, run)
        assert_hold_is_refused(cluster, sweep.id, run)
        fork = weir("fork", first, "train.hold=12", "train.steps=24", "--coordinator", cluster.address).stdout.strip()
        set_run(cluster, fork, "train.hold=null")  # it is nobody's trial
        sweep.ask("stop", sweep.id)
        wait_for(lambda: cluster.json("status", run)["state"] == "cancelled", "the end of a trial")
        weir("resume", run, "--coordinator", cluster.address)
        set_run(cluster, run, "train.hold=null")
        assert cluster.json("status", run)["hold"] == 0


def test_a_trial_that_people_took_past_its_rung_fails_once_its_sweep_goes_on():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=4))
        runs = [f"{sweep.id}-000{number}" for number in (0, 1)]
        for run in runs:
            wait_for_run(cluster, run)
        sweep.ask("stop", sweep.id)
        for run, hold in zip(runs, ("null", "12")):
            wait_for(lambda run=run: cluster.json("status", run)["state"] == "cancelled", "the end of a trial")
            weir("resume", run, "--coordinator", cluster.address)
            set_run(cluster, run, f"train.hold={hold}")
        cluster.add_worker()
        for run, state in zip(runs, ("done", "held")):
            wait_for(lambda run=run, state=state: cluster.json("status", run)["state"] == state, f"{run} {state}")
        info = extended(sweep, 5)
        assert info["end"] == "nothing is left to do" and info["failed"] == 2, info
        assert [(trial["state"], trial["failure"]) for trial in info["trials"][:2]] == \
            [("failed", "its run went past the rung")] * 2, info["trials"]


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


def private(path, out, *settings, **options):
    return weir("sweep", path, *settings, "--out", out, env=PRIVATE, **options)


def stored_log(out):
    """The bytes of each record."""
    sweeps = os.path.join(out, "store", "records", "sweeps")
    folder = os.path.join(sweeps, os.listdir(sweeps)[0], "log")
    log = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            log.append(file.read())
    return log


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_a_private_sweep_that_is_resumed_with_a_larger_budget_is_that_of_the_larger_budget():
    with Folder() as folder:
        path, grown, whole = write_sweep(folder), folder.file("grown"), folder.file("whole")
        one = ("concurrency=1", "search={name: tpe, seed: 2, n_startup_trials: 2}")  # every decision waits for all before it
        private(path, whole, *one, "budget.trials=7")
        private(path, grown, *one, "budget.trials=4")
        before = stored_log(grown)
        shown = private(path, grown, *one, "budget.trials=7", "--resume").stdout
        log = stored_log(grown)
        assert log[:len(before)] == before
        assert log[:len(before) - 1] + log[len(before) + 1:] == stored_log(whole)  # without its end, and the extension
        assert read(os.path.join(grown, "trials.jsonl")) == read(os.path.join(whole, "trials.jsonl"))
        assert read(os.path.join(grown, "best.onnx")) == read(os.path.join(whole, "best.onnx"))
        again = private(path, grown, *one, "budget.trials=7", "--resume").stdout
        assert stored_log(grown) == log and again.split("best: ")[1] == shown.split("best: ")[1]


def test_a_private_sweep_of_trials_side_by_side_goes_on_behind_what_it_had():
    with Folder() as folder:
        path, out = write_sweep(folder, trials=4), folder.file("out")
        private(path, out, "budget.seconds=0.001", status=1)  # which pass before any result
        before = stored_log(out)
        error = private(path, out, "budget.seconds=0.001", "budget.trials=5", "--resume", status=2).stderr
        assert error.count("\n") == 1 and "have passed: raise them, too" in error, error
        assert "trial 4" in private(path, out, "budget.seconds=3600", "budget.trials=5", "--resume").stdout
        log = stored_log(out)
        assert log[:len(before)] == before and len(log) > len(before) + 5


def test_a_private_sweep_is_resumed_with_no_other_spec():
    with Folder() as folder:
        path, out, spec = write_sweep(folder, schedule="{name: none}", trials=2), folder.file("out"), folder.file("spec-2-12.yaml")
        private(path, out)
        log, lines = stored_log(out), read(path).decode().splitlines()
        space = "train.optimizer.momentum: [0, 0.5, 0.9], train.batch: [24, 48]"
        for setting, text in (("search={name: sobol, seed: 4}", "search.name is 'sobol' and was 'random'"),
                              ("concurrency=2", "concurrency is 2 and was 3"),
                              ("objective={metric: loss}", "objective.metric is 'loss' and was 'accuracy'"),
                              (f"space={{train.optimizer.lr: {{log: [0.01, 0.5]}}, {space}}}",
                               "space.train.optimizer.lr.log[0] is 0.01 and was 0.001"),
                              (f"space={{{space}}}", "space.train.optimizer.lr is not given and was"),
                              (f"space={{{space}, train.optimizer.lr: {{log: [0.001, 0.5]}}}}",
                               "space.train.optimizer.momentum is entry 1, where train.optimizer.lr was"),
                              ("budget.trials=1", "budget.trials is 1 and was 2: a budget can only be raised"),
                              ("budget={seconds: 90}", "budget.trials is not given and was 2"),
                              ("budget.seconds=90", "budget.seconds is 90 and was not given")):
            error = private(path, out, setting, "--resume", status=2)
            assert error.stderr.count("\n") == 1 and text in error.stderr and not error.stdout, error.stderr
        number = next(at for at, line in enumerate(lines, 1) if line.startswith("concurrency"))
        folder.file("other.yaml", "\n".join(lines).replace("concurrency: 3", "concurrency: 1") + "\n")
        error = private(folder.file("other.yaml"), out, "--resume", status=2).stderr
        assert f"other.yaml:{number}: concurrency is 1 and was 3" in error, error
        text = read(spec).decode()
        folder.file("spec-2-12.yaml", text.replace("seed: 3", "seed: 4"))
        error = private(path, out, "--resume", status=2).stderr
        assert error.count("\n") == 1 and "spec-2-12.yaml:" in error and "train.seed is 4 and was 3" in error, error
        folder.file("spec-2-12.yaml", text)
        folder.model("mlp", "--hidden", 16, "--seed", 6)
        assert "the model is another one" in private(path, out, "--resume", status=2).stderr
        assert stored_log(out) == log


def test_extend_says_how_a_private_sweep_is_extended():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        for address, status in ((cluster.address, 2), ("127.0.0.1:1", 3)):
            error = weir("sweep", "extend", "search-012345", "budget.trials=9", "--coordinator", address, status=status).stderr
            assert error.count("\n") == 1 and "weir sweep SPEC budget.trials=120 --resume" in error, error


def test_a_sweep_that_is_over_is_deleted_with_its_runs():
    with Folder() as folder, Cluster(folder) as cluster:
        path = write_sweep(folder, trials=500)  # once: workers read the data meanwhile
        sweep = Sweep(cluster, path)
        error = sweep.ask("delete", sweep.id, status=2).stderr
        assert "is not over" in error and "weir sweep stop" in error, error
        wait_for(lambda: sweep.info()["has_best"], "a result")
        other = Sweep(cluster, path, "schedule={name: none}", "budget.trials=2")
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
