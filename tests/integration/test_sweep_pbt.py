"""Population based training: trials are replaced by forks of better ones, in the memory of servers, with one log on any
cluster and whatever dies."""
import json
import os
import re

from harness import Cluster, Folder, kept, main, wait_for, weir
from test_sweep import Sweep

STEPS, INTERVAL, POPULATION = 16, 4, 4
SWEEP = f"""name: search
spec: spec-2-{STEPS}.yaml
objective: {{metric: loss}}
search: {{name: random, seed: 5}}
schedule: {{name: pbt, interval: {INTERVAL}, perturb: [0.5, 2]}}
budget: {{trials: {POPULATION}}}
concurrency: 3
space:
  train.optimizer.lr: {{log: [0.001, 0.5]}}
  train.optimizer.momentum: [0, 0.5, 0.9]
"""


def write_sweep(folder):
    folder.small_data(240, 48)
    folder.small_spec(folder.model("mlp", "--hidden", 16, "--seed", 5), 2, STEPS, STEPS)
    return folder.file("sweep.yaml", SWEEP)


def undisturbed():
    """The log on one worker and one server that nobody disturbs."""
    def run():
        with Folder() as folder, Cluster(folder) as cluster:
            return Sweep(cluster, write_sweep(folder)).ends()["records"]
    return kept("sweep-pbt", run)


def forks_of(info):
    return [trial for trial in info["trials"] if trial.get("has_parent")]


def settings_of(trial):
    return [f"{value['path']}={value['value']}" for value in trial["values"]]


def test_the_log_is_the_same_on_any_cluster():
    expected = undisturbed()
    assert sum("fork" in record for record in expected) == STEPS // INTERVAL - 1, expected
    for workers, servers in ((4, 1), (2, 3)):
        with Folder() as folder, Cluster(folder, workers=workers, servers=servers) as cluster:
            info = Sweep(cluster, write_sweep(folder)).ends()
            assert info["records"] == expected
            states = [trial["state"] for trial in info["trials"]]
            assert states.count("done") == POPULATION and states.count("stopped") == len(states) - POPULATION, states


def test_a_trial_that_is_forked_ends_in_the_bits_of_a_fork_by_hand():
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        path = write_sweep(folder)
        info = Sweep(cluster, path).ends()

        def ask(*arguments):
            return weir(*arguments, "--coordinator", cluster.address).stdout.strip()

        def by_hand(trial, hold=None):
            """A run of its own that goes the trial's way, to a hold or to its end."""
            rungs = list(range(INTERVAL, STEPS, INTERVAL))
            settings = settings_of(trial) + ([f"train.hold={hold}"] if hold else [])
            if not trial.get("has_parent"):
                run = ask("submit", folder.file(f"spec-2-{STEPS}.yaml"), *settings, f"eval.at={rungs}")
            else:
                step = rungs[trial["parent_rung"]]
                run = ask("fork", f"{by_hand(info['trials'][trial['parent']], step)}@{step}", *settings)
            wait_for(lambda: cluster.json("checkpoints", run)[-1:] and
                     cluster.json("checkpoints", run)[-1]["step"] == (hold or STEPS), "the run's checkpoint")
            return run
        forks = [trial for trial in forks_of(info) if trial["state"] == "done"]
        assert forks
        for trial in forks:
            run = cluster.json("status", trial["run"])
            parent = info["trials"][trial["parent"]]
            assert (run["parent"], run["parent_step"]) == (parent["run"], INTERVAL * (trial["parent_rung"] + 1)), run
            assert (run["sweep"], run["trial"]) == (info["sweep"], trial["number"])
            alone = by_hand(trial)
            alone = wait_for(lambda: (status := cluster.json("status", alone))["state"] == "done" and status, "its end")
            assert alone["weights_sha256"] == run["weights_sha256"]
            assert alone["eval_loss"] == trial["results"][-1]
            assert trial["results"][:trial["parent_rung"] + 1] == parent["results"][:trial["parent_rung"] + 1]


def test_an_exploit_reads_and_writes_no_block():
    with Folder() as folder, Cluster(folder, workers=2, servers=2, is_patient=True) as cluster:
        info = Sweep(cluster, write_sweep(folder)).ends()
        forks = forks_of(info)
        assert len(forks) == STEPS // INTERVAL - 1
        for trial in forks:
            step = INTERVAL * (trial["parent_rung"] + 1)
            line = re.compile(rf" run_restored run={trial['run']} step={step} parent=\S+ adopted=(\d+) read=(\d+) ")
            restored = [line.findall(server.output()) for server, _ in cluster.servers]
            assert all(len(found) == 1 and int(found[0][0]) > 0 and found[0][1] == "0" for found in restored), restored
            base = [entry for entry in cluster.json("checkpoints", trial["run"]) if entry["step"] == step]
            assert base and not base[0].get("written_bytes"), base


def test_with_repeats_each_run_goes_on_from_the_same_repeat_of_its_parent():
    settings = ("repeats=2", "schedule={name: pbt, rungs: [4, 8, 12]}", "concurrency=2")
    with Folder() as folder, Cluster(folder) as cluster:
        info = Sweep(cluster, write_sweep(folder), *settings).ends()
        expected = info["records"]
        forks = [trial for trial in forks_of(info) if trial["state"] == "done"]
        assert forks
        for trial in forks:
            parent, step = info["trials"][trial["parent"]], INTERVAL * (trial["parent_rung"] + 1)
            for repeat in ("", "-1"):
                run = cluster.json("status", trial["run"] + repeat)
                assert (run["parent"], run["parent_step"]) == (parent["run"] + repeat, step), run
            # The other repeat's bits: its parent's version, and on with the trial's own values.
            alone = weir("fork", f"{parent['run']}-1@{step}", *settings_of(trial), "--coordinator",
                         cluster.address).stdout.strip()
            ended = wait_for(lambda: (status := cluster.json("status", alone))["state"] == "done" and status, "its end")
            assert ended["weights_sha256"] == run["weights_sha256"]
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        fork = next(number for number, record in enumerate(expected) if "fork" in record)
        sweep = Sweep(cluster, write_sweep(folder), *settings)
        sweep.outlives((fork, "server"), (fork + 1, "coordinator"), (fork + 2, "worker"))
        assert sweep.ends()["records"] == expected


def test_deaths_change_nothing_of_the_log():
    expected = undisturbed()
    fork = next(number for number, record in enumerate(expected) if "fork" in record)
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder))
        sweep.outlives((3, "coordinator"), (fork + 1, "coordinator"), (fork + 2, "server"), (fork + 4, "worker"),
                       (fork + 6, "coordinator"), (fork + 8, "server"), (fork + 9, "coordinator"))
        assert sweep.ends()["records"] == expected


def test_its_results_say_which_way_each_trial_went():
    with Folder() as folder:
        path, out = write_sweep(folder), folder.file("out")
        weir("sweep", path, "--out", out, "--workers", 2, env={**os.environ, "WEIR_COORDINATOR": ""})
        with open(os.path.join(out, "trials.jsonl")) as file:
            trials = [json.loads(line) for line in file]
        forks = [trial for trial in trials if "parent" in trial]
        assert len(forks) == STEPS // INTERVAL - 1
        for trial in forks:
            parent = trials[trial["parent"]]
            before = [result for result in trial["results"] if result["steps"] <= trial["parent_step"]]
            assert before and before == parent["results"][:len(before)]
            assert trial["values"] != parent["values"]
        best = min((trial for trial in trials if trial["state"] == "done"), key=lambda trial: trial["results"][-1]["value"])
        with open(os.path.join(out, "best.yaml")) as file:
            way = re.findall(r"# from step (\d+), trial (\d+): ", file.read())
        expected, at = [], best
        while "parent" in at:
            expected.insert(0, (str(at["parent_step"]), str(at["trial"])))
            at = trials[at["parent"]]
        assert way == ([("0", str(at["trial"]))] + expected if expected else []), (way, expected)


def test_keys_that_a_fork_cannot_change_are_refused():
    with Folder() as folder:
        path = write_sweep(folder)
        for setting, text in (("space={train.batch: [24, 48]}", "space.train.batch: trials of this schedule are forked"),
                              ("space={train.seed: [1, 2]}", "space.train.seed: trials of this schedule are forked"),
                              ("schedule={name: pbt, interval: 17}", "schedule.interval: a trial ends at step 16"),
                              ("budget={steps: 900}", "budget.trials: the population")):
            error = weir("sweep", path, setting, "--out", folder.file("out"), status=2).stderr
            assert error.count("\n") == 1 and text in error, error
        assert not os.path.exists(folder.file("out"))


if __name__ == "__main__":
    main(globals())
