"""Runs that end early because their evaluations bring nothing better: at the version that the evaluations of a run that
went on say, and in the bits of a run of that many steps, on any cluster and whatever dies."""
import functools
import json

from harness import Cluster, Folder, done_event, main, newest_step, outcome, wait_for, weir
from test_hold import fleet as held_fleet
from test_recovery import EVERY, STEPS, kill, undisturbed, write_spec
from test_shares import Fleet
from test_sweep import Sweep, write_sweep

PATIENCE = 3
DELTA = 0.05
STOPPING = f"train.early_stopping={{metric: accuracy, patience: {PATIENCE}, min_delta: {DELTA}}}"


def keras_end(evaluations):
    """The version at which Keras's EarlyStopping (mode max) stops, and the one that was best: by its documentation."""
    best, best_step, wait = float("-inf"), None, 0
    for step, _, accuracy in evaluations:
        wait += 1
        if accuracy - DELTA > best:
            best, best_step, wait = accuracy, step, 0
        if wait >= PATIENCE:
            return step, best_step
    raise AssertionError("it goes on to its end: choose another patience")


def early():
    """(the version at which a run with STOPPING ends, the best one, the outcome of such a run)"""
    whole = undisturbed()
    end, best = keras_end(whole["evals"])
    assert EVERY < end < STEPS - EVERY, end
    return end, best, {"steps": whole["steps"][:end], "evals": [line for line in whole["evals"] if line[0] <= end]}


class Early(Fleet):
    def stop(self, name, *settings):
        return self.submit(name, STOPPING, *settings)

    def ends_early(self, name):
        end, best, expected = early()
        assert self.clients[name].wait() == 0, self.clients[name].output()[-2000:]
        found, status = outcome(self.metrics[name]), self.status(name)
        done = done_event(self.metrics[name])
        newest = {kind: {line[0]: line for line in found[kind]} for kind in expected}  # of all incarnations
        assert newest == {kind: {line[0]: line for line in expected[kind]} for kind in expected}
        assert done["steps"] == status["step"] == status["checkpoint_step"] == end, (done, status)
        assert status["state"] == "done" and status["steps"] == STEPS, status
        assert status["patience"]["last_step"] == end and status["patience"]["best_step"] == best, status
        reason = f"stopped early: accuracy was best at version {best} ("
        assert status["message"].startswith(reason) and done["reason"].startswith(reason), (status, done)
        assert f"and no better by more than {DELTA} in {PATIENCE} evaluations since" in done["reason"], done
        return done["weights_sha256"]


fleet = functools.partial(held_fleet, make=Early)


def weights():
    """Those of a run of its own that is to have just as many steps."""
    with Folder() as folder:
        weir("train", write_spec(folder), f"train.steps={early()[0]}", "--threads", 1, "--out", folder.file("out"))
        return done_event(folder.file("out/metrics.jsonl"))["weights_sha256"]


def test_a_run_ends_where_its_evaluations_say_on_any_cluster():
    expected = weights()
    for workers, servers in ((1, 1), (2, 1), (4, 3)):
        with fleet(workers, servers) as runs:
            run = runs.stop("some")
            assert runs.ends_early("some") == expected
            text = weir("status", run, "--coordinator", runs.cluster.address).stdout
            assert "state        done: stopped early: accuracy was best" in text, text
            assert f"patience     {PATIENCE} of {PATIENCE} evaluations without a better accuracy than " in text, text
            top = weir("top", "--once", "--coordinator", runs.cluster.address).stdout
            assert "stopped early: accuracy was best" in " ".join(top.split()), top
            assert "stopped early" in runs.clients["some"].output()


def test_deaths_do_not_change_where_a_run_ends():
    end = early()[0]
    with fleet(workers=2, servers=2) as runs:
        cluster = runs.cluster

        def worker_dies():
            kill(cluster.workers.pop(0))
            cluster.add_worker()

        def server_dies():
            kill(cluster.servers[0][0])
            cluster.restart_server(0)

        def coordinator_dies():
            kill(cluster.coordinator)
            cluster.start_coordinator()
        runs.gate.stop_at(2)
        runs.stop("some")
        deaths = (worker_dies, coordinator_dies, server_dies, coordinator_dies)
        steps = [end - (len(deaths) - i) * EVERY - 2 for i in range(len(deaths) - 1)] + [end - 2]
        for step, die in zip(steps, deaths):  # just before evaluated versions, the last of which ends the run
            runs.gate.stop_at(step)
            wait_for(lambda step=step: newest_step(runs.metrics["some"]) >= step, f"step {step}")
            die()
        runs.gate.open()
        assert runs.ends_early("some") == weights()


def test_a_run_of_a_private_cluster_says_why_it_ended():
    end = early()[0]
    with Folder() as folder:
        out = folder.file("out")
        said = weir("train", write_spec(folder), STOPPING, "--threads", 2, "--out", out).stdout
        assert f"steps      {end} of {STEPS}, stopped early: accuracy was best at version " in said, said
        assert done_event(out + "/metrics.jsonl")["weights_sha256"] == weights()
        store = ("small", "--store", "file://" + out + "/store")
        listed = json.loads(weir("checkpoints", *store, "--json").stdout)
        assert listed[-1]["step"] == end, listed
        weir("verify", *store)
        weir("export", *store, "-o", folder.file("again.onnx"))
        with open(folder.file("again.onnx"), "rb") as again, open(out + "/model.onnx", "rb") as model:
            assert again.read() == model.read()


def test_a_run_that_gets_better_has_all_of_its_steps():
    with fleet() as runs:
        runs.submit("some", "train.early_stopping={patience: 1000}")
        runs.ends("some")
        assert "reason" not in done_event(runs.metrics["some"])
        assert runs.status("some")["message"] == ""


def test_a_run_that_is_paused_has_as_much_patience_left_as_before():
    end = early()[0]
    with fleet() as runs:
        runs.gate.stop_at(end - 2 * EVERY + 1)
        run = runs.stop("some", f"checkpoint.every_steps={STEPS}")  # one that came too late would put off the pause's
        at = ("--coordinator", runs.cluster.address)
        wait_for(lambda: newest_step(runs.metrics["some"]) >= end - 2 * EVERY + 1, "steps")
        weir("pause", run, *at)
        runs.gate.crawl(lambda: runs.status("some")["state"] == "paused", "the pause", steps=1, factor=3)
        assert runs.status("some")["step"] < end
        runs.gate.open()
        weir("resume", run, *at)
        assert runs.ends_early("some") == weights()


def test_a_fork_has_a_patience_of_its_own():
    end, _, _ = early()
    whole = undisturbed()["evals"]
    with fleet() as runs:
        run = runs.stop("some")
        runs.ends_early("some")
        at = ("--coordinator", runs.cluster.address)
        fork = weir("fork", f"{run}@{end}", *at).stdout.strip()
        weir("watch", fork, *at)
        status = runs.cluster.json("status", fork)
        assert status["step"] == keras_end([line for line in whole if line[0] >= end])[0], status
        fork = weir("fork", f"{run}@{end}", "train.early_stopping=null", *at).stdout.strip()
        weir("watch", fork, *at)
        status = runs.cluster.json("status", fork)
        assert status["step"] == STEPS and status["weights_sha256"] == undisturbed()["weights"], status


def write_impatient_sweep(folder):
    path = write_sweep(folder)
    with open(folder.file("spec-2-12.yaml")) as file:
        text = file.read()
    folder.file("spec-2-12.yaml", text.replace("\ntrain:\n", "\ntrain:\n  early_stopping: {patience: 1}\n"))
    return path


def test_a_trial_that_ends_early_keeps_its_values_on_any_cluster():
    found = []
    for workers, servers in ((1, 1), (3, 2)):
        with Folder() as folder, Cluster(folder, workers=workers, servers=servers) as cluster:
            sweep = Sweep(cluster, write_impatient_sweep(folder))
            info = sweep.ends()
            runs = [cluster.json("status", trial["run"]) for trial in info["trials"]]
            found.append((info["records"], [run["step"] for run in runs]))
            ended = [(trial, run) for trial, run in zip(info["trials"], runs) if run["patience"]["last_step"]]
            for trial, run in ended:
                assert run["state"] == "done" and run["step"] == run["patience"]["last_step"], run
                rungs = [rung for rung in (4, 8, 16)[:len(trial["results"])] if rung >= run["step"]]
                assert trial["results"][-len(rungs):] == [run["accuracy"]] * len(rungs), (trial, run)
            assert any(len(trial["results"]) == 3 and run["step"] < 16 for trial, run in ended), info["trials"]
            assert any(trial["state"] == "done" for trial in info["trials"]), info["trials"]
    assert found[0] == found[1]


def test_a_schedule_that_forks_trials_has_none_that_end_early():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        said = weir("sweep", write_impatient_sweep(folder), "schedule={name: pbt, rungs: [2, 4]}", "space=null",
                    "space={train.optimizer.lr: {log: [0.001, 0.5]}}", "--coordinator", cluster.address, status=2).stderr
        assert "spec: the run spec has train.early_stopping, and trials of this schedule are forked" in said, said


def test_keys_that_make_no_sense_are_named_with_their_line():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        with open(write_spec(folder)) as file:
            text = file.read()
        head, at = text[:text.index("\ntrain:") + 8], text.count("\n", 0, text.index("\ntrain:")) + 3
        for stopping, words in (
                ("{metric: auc}", "train.early_stopping.metric: 'auc' is not known (known: accuracy, loss and what "
                                  "eval.metrics names)"),
                ("{goal: best}", "train.early_stopping.goal: 'best' is neither min nor max"),
                ("{patience: 0}", "train.early_stopping.patience: must be from 1 to 1000000 evaluations"),
                ("{patience: -1}", "train.early_stopping.patience: "), ("{patience: 1.5}", "train.early_stopping.patience: "),
                ("{min_delta: -0.1}", "train.early_stopping.min_delta: must be from 0 to 1000000000"),
                ("{min_delta: .nan}", "train.early_stopping.min_delta: "),
                ("{mode: max}", "unknown key 'mode' in train.early_stopping: known are metric, goal, ")):
            spec = folder.file("bad.yaml", f"{head}  early_stopping: {stopping}\n{text[len(head):]}")
            for command in (("submit", "--coordinator", cluster.address), ("train", "--out", folder.file("out"), "--force")):
                said = weir(command[0], spec, *command[1:], status=2).stderr
                assert said.count("\n") == 1 and f"bad.yaml:{at}: {words}" in said, said
        said = weir("submit", folder.file("spec.yaml"), "data.eval=null", STOPPING, "eval=null", "--coordinator",
                    cluster.address, status=2).stderr
        assert "train.early_stopping: needs data.eval or data.split" in said, said


if __name__ == "__main__":
    main(globals())
