"""weir sweep: a search over the keys of a spec. Its log has the same bytes on any cluster and whatever dies."""
import csv
import io
import json
import math
import os
import re
import signal

from gate import Gate
from harness import Cluster, Folder, kept, main, program, wait_for, weir
from terminal import Terminal, columns

SWEEP = """name: search
spec: {spec}
objective: {{metric: {metric}}}
search: {{name: random, seed: 4}}
schedule: {schedule}
budget: {{trials: {trials}}}
concurrency: 3
space:
  train.optimizer.lr: {{log: [0.001, 0.5]}}
  train.optimizer.momentum: [0, 0.5, 0.9]
  train.batch: [24, 48]
"""
ASHA = "{name: asha, rungs: [4, 8, 16], eta: 2}"


def write_sweep(folder, schedule=ASHA, trials=6, metric="accuracy", more=""):
    folder.small_data(240, 48)
    spec = folder.small_spec(folder.model("mlp", "--hidden", 16, "--seed", 5), 2, 12, 6)
    return folder.file("sweep.yaml",
                       SWEEP.format(spec=os.path.basename(spec), schedule=schedule, trials=trials, metric=metric) + more)


class Sweep:
    """A sweep on a cluster. known: the id of one that is there already."""

    def __init__(self, cluster, path, *settings, known=None):
        self.cluster = cluster
        self.id = known or self.ask(path, *settings).stdout.strip()
        assert re.fullmatch("search-[0-9a-f]{6}", self.id), self.id

    def ask(self, *arguments, **options):
        return weir("sweep", *arguments, "--coordinator", self.cluster.address, **options)

    def info(self):
        return json.loads(self.ask("status", self.id, "--json").stdout)

    def outlives(self, *deaths):
        """Kills (records in the log, "coordinator", "server" or "worker") in turn, and starts another."""
        for count, victim in deaths:
            wait_for(lambda count=count: len(self.info()["records"]) >= count, f"{count} records")
            process = {"coordinator": self.cluster.coordinator, "server": self.cluster.servers[0][0],
                       "worker": self.cluster.workers[0]}[victim]
            process.send(signal.SIGKILL)
            if victim == "worker":
                self.cluster.add_worker()
                continue
            process.wait()
            self.cluster.start_coordinator() if victim == "coordinator" else self.cluster.restart_server(0)

    def ends(self):
        """Its log and its trials once it has ended."""
        self.ask("watch", self.id)
        return self.info()


def undisturbed(**options):
    """The log of the sweep on one worker and one server that nobody disturbs."""
    def run():
        with Folder() as folder, Cluster(folder) as cluster:
            return Sweep(cluster, write_sweep(folder, **options)).ends()["records"]
    return kept(f"sweep-{sorted(options.items())}", run)


def test_the_log_is_the_same_on_any_cluster():
    expected = undisturbed()
    for workers, servers in ((4, 1), (2, 3)):
        with Folder() as folder, Cluster(folder, workers=workers, servers=servers) as cluster:
            sweep = Sweep(cluster, write_sweep(folder))
            info = sweep.ends()
            assert info["records"] == expected
            assert info["end"] == "nothing is left to do" and info["begun"] == 6, info
            best = json.loads(sweep.ask("best", sweep.id, "--json").stdout)
            values = [trial["results"][-1] for trial in info["trials"] if len(trial["results"]) == 3]
            assert best["results"][-1] == max(values) == info["best_value"]
            sweep.ask("export", sweep.id, "-o", folder.file("best.onnx"))
            weir("inspect", folder.file("best.onnx"))


def test_trials_are_runs_that_end_in_the_bits_they_have_alone():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=4))
        info = sweep.ends()
        assert [trial["state"] for trial in info["trials"]] == ["done"] * 4
        for trial in info["trials"][:2]:
            status = cluster.json("status", trial["run"])
            assert (status["state"], status["sweep"], status["trial"]) == ("done", sweep.id, trial["number"])
            settings = [f"{value['path']}={value['value']}" for value in trial["values"]]
            spec = folder.file("spec-2-12.yaml")
            alone = weir("submit", spec, *settings, "--follow", "--metrics", folder.file(f"{trial['number']}.jsonl"),
                         "--coordinator", cluster.address).stdout.strip()
            assert cluster.json("status", alone)["weights_sha256"] == status["weights_sha256"]
            assert cluster.json("status", alone)["accuracy"] == trial["results"][0]
        listed = [run["run"] for run in cluster.json("runs")]
        assert alone in listed and not any(run.startswith(sweep.id) for run in listed), listed
        everything = [run["run"] for run in cluster.json("runs", "--all")]
        assert all(trial["run"] in everything for trial in info["trials"])


def test_deaths_change_nothing_of_the_log():
    expected = undisturbed(trials=8)
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=8))
        sweep.outlives((2, "coordinator"), (4, "worker"), (7, "server"), (10, "coordinator"), (13, "coordinator"))
        assert sweep.ends()["records"] == expected


def batch_of(trial):
    return next(int(value["value"]) for value in trial["values"] if value["path"] == "train.batch")


def assert_steps(cluster, sweep, step_of):
    """Of runs that no coordinator left: else what one says of its step is as old as its record, and the log knows more."""
    for trial in sweep["trials"]:
        assert cluster.json("status", trial["run"])["step"] == step_of(trial), trial


def test_rungs_in_samples_are_steps_of_each_trials_batch():
    rungs = "schedule={name: asha, rungs: [96, 192, 384], eta: 2, unit: samples}"

    def step_of(trial):
        return (96, 192, 384)[len(trial["results"]) - 1] // batch_of(trial)
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        path = write_sweep(folder)
        undisturbed = Sweep(cluster, path, rungs).ends()
        assert_steps(cluster, undisturbed, step_of)
        sweep = Sweep(cluster, path, rungs)
        sweep.outlives((5, "coordinator"))
        info = sweep.ends()
        assert info["records"] == undisturbed["records"]
        rows = {int(row["trial"]): row for row in csv.DictReader(io.StringIO(sweep.ask("status", sweep.id, "--csv").stdout))}
        batches = set()
        for trial in info["trials"]:
            assert int(rows[trial["number"]]["step"]) == step_of(trial), trial
            assert (rows[trial["number"]]["accuracy@96"], trial["batch"]) != ("", 0)
            batches.add(batch_of(trial))
        assert batches == {24, 48}
        assert "ACCURACY@96" in sweep.ask("status", sweep.id).stdout


def test_rungs_in_epochs_are_the_same_samples_of_any_batch():
    rungs = "schedule={name: asha, rungs: [1, 2, 4], eta: 2, unit: epochs}"
    settings = (rungs, "space={train.optimizer.lr: {log: [0.001, 0.5]}, train.batch: [36, 72]}", "budget={trials: 6, steps: 14}")

    def step_of(trial):
        return (1, 2, 4)[len(trial["results"]) - 1] * 240 // batch_of(trial)
    with Folder() as folder, Cluster(folder) as cluster:
        undisturbed = Sweep(cluster, write_sweep(folder), *settings).ends()
        assert_steps(cluster, undisturbed, step_of)
    expected = undisturbed["records"]
    with Folder() as folder, Cluster(folder, workers=2, servers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder), *settings)
        sweep.outlives((3, "coordinator"), (8, "coordinator"))
        info = sweep.ends()
        assert info["records"] == expected
        assert all(record["result"]["train_samples"] == 240 for record in expected if "result" in record), expected
        rows = {int(row["trial"]): row for row in csv.DictReader(io.StringIO(sweep.ask("status", sweep.id, "--csv").stdout))}
        batches = set()
        for trial in info["trials"]:
            assert int(rows[trial["number"]]["step"]) == step_of(trial), trial
            batches.add(batch_of(trial))
        assert batches == {36, 72}
        # The best one's spec by hand ends in its weights.
        best = info["trials"][info["best"]]
        alone = weir("submit", folder.file("spec-2-12.yaml"), "train.steps=null", "train.epochs=4",
                     *[f"{value['path']}={value['value']}" for value in best["values"]],
                     "--follow", "--coordinator", cluster.address).stdout.strip()
        assert len(best["results"]) == 3
        assert cluster.json("status", alone)["weights_sha256"] == cluster.json("status", best["run"])["weights_sha256"]


def test_trials_that_fail_are_results():
    with Folder() as folder, Cluster(folder) as cluster:
        points = "points: [{train.optimizer.lr: 1e30, train.optimizer.momentum: 0, train.batch: 24}]\n"
        path = write_sweep(folder, schedule="{name: none}", trials=3, metric="loss", more=points)
        sweep = Sweep(cluster, path, "space={train.optimizer.lr: {log: [0.001, 1e30]}, train.batch: [24, 48], "
                                     "train.optimizer.momentum: [0, 0.5, 0.9]}")
        info = sweep.ends()
        first = info["trials"][0]
        assert first["state"] == "failed" and first["failure"] in ("its training diverges", "its value is not finite"), first
        assert info["failed"] >= 1 and info["best"] != 0


def wait_for_run(cluster, run):
    wait_for(lambda: run in [row["run"] for row in cluster.json("runs", "--all")], f"run {run}")


def set_run(cluster, run, *settings, **options):
    return weir("set", run, *settings, "--coordinator", cluster.address, **options)


def assert_hold_is_refused(cluster, sweep, run):
    for hold in ("null", "16", "2"):
        said = set_run(cluster, run, "workers.max=2", f"train.hold={hold}", status=2).stderr
        assert said == (f"weir: {cluster.address}: train.hold: run '{run}' is a trial of sweep '{sweep}', which alone says "
                        f"how far its trials go: 'weir fork {run}' begins a run of your own from it, 'weir sweep stop "
                        f"{sweep}' ends the sweep\n"), said


def test_the_hold_of_a_trial_is_set_by_its_sweep_alone():
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True) as cluster:
        sweep = Sweep(cluster, write_sweep(folder))
        run = sweep.id + "-0000"
        wait_for_run(cluster, run)
        assert_hold_is_refused(cluster, sweep.id, run)
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
        wait_for_run(cluster, run)
        assert_hold_is_refused(cluster, sweep.id, run)
        set_run(cluster, run, "priority=1", "workers.max=1")
        like = weir("submit", folder.file("spec-2-12.yaml"), "--coordinator", cluster.address, f"name={run}",
                    "train.hold=6").stdout.strip()
        assert like.startswith(run + "-"), like
        set_run(cluster, like, "train.hold=null")
        repeated = Sweep(cluster, folder.file("sweep.yaml"), "repeats=2")
        wait_for_run(cluster, repeated.id + "-0000-1")
        assert_hold_is_refused(cluster, repeated.id, repeated.id + "-0000-1")
        repeated.ask("stop", repeated.id)
        cluster.add_worker()
        assert sweep.ends()["records"] == expected


def test_a_trial_that_is_paused_is_shown_so():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True) as cluster:
        sweep = Sweep(cluster, write_sweep(folder))
        run = sweep.id + "-0001"

        def states():
            return [line.split()[:2] for line in sweep.ask("status", sweep.id).stdout.splitlines()[2:]]
        wait_for_run(cluster, run)
        weir("pause", run, "--coordinator", cluster.address)
        wait_for(lambda: states() == [["0", "running"], ["1", "paused"], ["2", "running"]], "a paused trial")
        weir("resume", run, "--coordinator", cluster.address)
        wait_for(lambda: states() == [["0", "running"], ["1", "running"], ["2", "running"]], "trials that run")


def test_a_sweep_is_stopped():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=500))
        wait_for(lambda: any(trial["state"] == "done" for trial in sweep.info()["trials"]), "a result")
        sweep.ask("stop", sweep.id)
        info = sweep.ends()
        assert info["end"] == "it was stopped" and info["running"] == 0
        wait_for(lambda: all(row["state"] in ("cancelled", "done") for row in cluster.json("runs", "--all")),
                 "the end of its trials")  # of which the last may not have begun
        wait_for(lambda: all(worker["state"] == "idle" for worker in cluster.json("workers")), "idle workers")
        assert sweep.id in sweep.ask("status").stdout


def test_a_trial_that_is_stopped_frees_its_worker_before_its_step_ends():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        cluster.gate.stop_at(3)  # what the worker computes of the next step never arrives
        cluster.add_worker()
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=500), "concurrency=1")
        run = sweep.id + "-0000"
        wait_for(lambda: (run, 4) in [(entry["run"], entry["step"]) for entry in cluster.json("runs", "--all")],
                 "a trial within a step")
        sweep.ask("stop", sweep.id)
        weir("submit", folder.file("spec-2-12.yaml"), "train.steps=3", "--follow", "--coordinator", cluster.address)
        assert cluster.json("status", run)["step"] == 4  # the other run had the worker meanwhile


def test_a_stop_that_was_answered_outlives_the_coordinator():
    with Folder() as folder, Cluster(folder) as cluster:
        for _ in range(3):
            sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=500))
            wait_for(lambda: sweep.info()["trials"], "a trial")
            sweep.ask("stop", sweep.id)
            cluster.coordinator.send(signal.SIGKILL)
            cluster.coordinator.wait()
            cluster.start_coordinator()
            assert sweep.info()["end"] == "it was stopped"


def test_results_are_decided_upon_as_they_come_where_the_order_is_arrival():
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        path = write_sweep(folder)
        assert "order: arrival: the trials depend on" in weir("sweep", path, "order=arrival", "--dry-run").stdout
        sweep = Sweep(cluster, path, "order=arrival")
        wait_for(lambda: len(sweep.info()["records"]) >= 5, "5 records")
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
        info = sweep.ends()
        assert info["end"] == "nothing is left to do" and info["begun"] == 6 and info["has_best"], info
        results = [record["result"] for record in info["records"] if "result" in record]
        assert len(results) == sum(len(trial["results"]) for trial in info["trials"])


def test_trials_that_do_not_meet_the_constraint_have_failed():
    with Folder() as folder, Cluster(folder) as cluster:
        path = write_sweep(folder, schedule="{name: none}", trials=4)
        losses = {trial["number"]: cluster.json("status", trial["run"])["eval_loss"]
                  for trial in Sweep(cluster, path).ends()["trials"]}
        bound = sorted(losses.values())[1]
        info = Sweep(cluster, path, f"constraint={{metric: loss, max: {bound + 1e-9}}}").ends()
        for trial in info["trials"]:
            fits = losses[trial["number"]] <= bound
            assert (trial["state"], trial["failure"]) == \
                (("done", "") if fits else ("failed", "it does not meet the constraint: above max")), trial
        assert info["failed"] == 2 and losses[info["best"]] <= bound


def test_a_terminal_shows_it_live():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=500))
        watch = program("weir"), "sweep", "watch", sweep.id, "--coordinator", cluster.address
        with Terminal(30, 90, *watch) as wide, Terminal(30, 90, *watch, TERM="dumb") as dumb, \
                Terminal(12, 40, *watch, NO_COLOR="1") as narrow:
            wide.shows("best ", "accuracy 0.", " running", "ON THE WAY", "/500 trials", "\033[32m", "▕")
            narrow.shows("best accuracy 0.", "/500 trials")
            dumb.shows("trial 0  step 4  accuracy 0.")
            wide.resize(10, 30)

            def is_drawn_anew():
                wide.take()
                frame = wide.text().rpartition("\033[J")[0].rpartition("\033[J")[2]
                return "best " in frame and columns(frame) < 30
            wait_for(is_drawn_anew, "a view of the terminal's new width")
            sweep.ask("stop", sweep.id)
            for shown in (wide.ends(), narrow.ends(), dumb.ends()):
                assert f"{sweep.id}: ended, it was stopped" in shown and "TRIAL  STATE" in shown
        drawn = narrow.text().rpartition("\033[J")[0]
        assert columns(drawn) < 40 and not re.search("\033\\[[0-9;]*m", drawn)
        assert "\033" not in dumb.text()


def test_its_table_says_what_varies_and_csv_has_it_all():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder))
        info = sweep.ends()
        lines = sweep.ask("status", sweep.id).stdout.splitlines()
        assert lines[2].split() == ["TRIAL", "STATE", "ACCURACY@4", "@8", "@16", "lr", "momentum", "batch"], lines[2]
        rows = list(csv.DictReader(io.StringIO(sweep.ask("status", sweep.id, "--csv").stdout)))
        assert [row["trial"] for row in rows] == [line.split()[0] for line in lines[3:]]
        assert rows[0]["trial"] == str(info["best"]) and math.isclose(float(rows[0]["accuracy"]), info["best_value"])
        for row in rows:
            trial = info["trials"][int(row["trial"])]
            assert (row["run"], row["state"], row["failure"]) == (trial["run"], trial["state"], "")
            results = [row[f"accuracy@{step}"] for step in (4, 8, 16)]
            assert all(math.isclose(float(a), b) for a, b in zip(results, trial["results"]))
            assert [text != "" for text in results] == [at < len(trial["results"]) for at in range(3)]
            assert all(row[value["path"]] == value["value"] for value in trial["values"])
        assert "step   16\naccuracy  " in sweep.ask("best", sweep.id).stdout
        assert "choose one" in sweep.ask("status", sweep.id, "--csv", "--json", status=2).stderr
        assert "name one" in sweep.ask("status", "--csv", status=2).stderr


def test_importance_ranks_the_keys_of_the_space():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, trials=9))
        sweep.ends()
        asked = json.loads(sweep.ask("importance", sweep.id, "--json").stdout)
        shares = [dimension["importance"] for dimension in asked["dimensions"]]
        assert (asked["metric"], asked["step"], asked["trials"]) == ("accuracy", 4, 9), asked
        assert shares == sorted(shares, reverse=True) and 0 <= min(shares) and sum(shares) <= 1
        assert math.isclose(sum(shares) + asked["together"], 1, abs_tol=1e-5)
        lines = sweep.ask("importance", sweep.id).stdout.splitlines()
        assert [line.split()[0] for line in lines[2:5]] == [dimension["path"] for dimension in asked["dimensions"]]
        assert "--step 5: it is none of the sweep's rungs" in sweep.ask("importance", sweep.id, "--step", 5, status=2).stderr
        assert "it takes 8" in sweep.ask("importance", sweep.id, "--step", 16, status=2).stderr


def test_without_a_cluster_it_has_its_own():
    with Folder() as folder:
        path, out = write_sweep(folder), folder.file("out")
        shown = weir("sweep", path, "--out", out, "--workers", 2, env={**os.environ, "WEIR_COORDINATOR": ""}).stdout
        assert "best: trial" in shown, shown
        with open(os.path.join(out, "trials.jsonl")) as file:
            trials = [json.loads(line) for line in file]
        assert [trial["trial"] for trial in trials] == list(range(6))
        assert all(set(trial["values"]) == {"train.optimizer.lr", "train.optimizer.momentum", "train.batch"}
                   for trial in trials)
        weir("inspect", os.path.join(out, "best.onnx"))
        again = weir("train", os.path.join(out, "best.yaml"), "--out", folder.file("again"))
        assert again.stdout
        weir("sweep", path, "--out", out, status=2)
        resumed = weir("sweep", path, "--out", out, "--resume", env={**os.environ, "WEIR_COORDINATOR": ""}).stdout
        assert resumed.split("best: ")[1].splitlines()[0] == shown.split("best: ")[1].splitlines()[0]


def test_bad_input_is_refused_before_anything_starts():
    with Folder() as folder:
        path = write_sweep(folder)
        for setting, text in (("search.name=ranom", "search.name"), ("concurrency=0", "concurrency"),
                              ("objective.metric=f1", "objective.metric"), ("spec=none.yaml", "none.yaml"),
                              ("space={train.optimizer.lr: [a]}", "space.train.optimizer.lr: with"),
                              ("schedule={name: asha}", "schedule.rungs"), ("budget=null", "budget"),
                              ("order=random", "known: virtual, arrival"), ("constraint={max: 1}", "constraint.metric"),
                              ("constraint={metric: f1, max: 1}", "constraint.metric"),
                              ("constraint={metric: loss}", "constraint: give min, max or both"),
                              ("objective=[{metric: loss}, {metric: accuracy}]",
                               "schedule.name: 'asha' ranks trials by one objective")):
            error = weir("sweep", path, setting, "--out", folder.file("out"), status=2).stderr
            assert error.count("\n") == 1 and text in error, error
        assert not os.path.exists(folder.file("out"))
        assert "did you mean 'status'?" in weir("sweep", "statsu", "x", status=2).stderr
        assert "weir sweep best SWEEP" in weir("sweep", "best", status=2).stderr
        assert "none.yaml: No such file" in weir("sweep", "none.yaml", status=2).stderr
        shown = weir("sweep", path, "--dry-run").stdout
        assert "at most 6 executors help" in shown and shown.count("train.optimizer.lr=") == 3, shown
        with open(path, "a") as file:
            file.write("order: random\n")
        lines = sum(1 for _ in open(path))
        assert f"sweep.yaml:{lines}: order: " in weir("sweep", path, "--dry-run", status=2).stderr


if __name__ == "__main__":
    main(globals())
