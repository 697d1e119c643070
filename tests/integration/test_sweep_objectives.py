"""Sweeps of several objectives: a Pareto front that does not depend on the cluster, and one objective by name where one is
wanted."""
import csv
import io
import json
import os

from harness import Cluster, Folder, main, weir
from test_sweep import Sweep, write_sweep

SETTINGS = ("objective=[{metric: accuracy, goal: max}, {metric: loss}, {metric: top5, goal: min}]",
            "search={name: tpe, seed: 4, n_startup_trials: 3}", "schedule={name: none, rungs: [4, 8]}", "budget={trials: 8}")
GOALS = (1, -1, -1)  # more is better, or less


def write(folder):
    path = write_sweep(folder)
    with open(folder.file("spec-2-12.yaml")) as file:
        text = file.read()
    folder.file("spec-2-12.yaml", text.replace("\neval: {", "\neval: {metrics: [top5], "))
    return path


def values(trial):
    return [trial["results"][-1], *(other["results"][-1] for other in trial["others"])]


def front(trials):
    """By the definition: those that no other trial beats in one objective without being beaten in another."""
    def dominates(a, b):
        pairs = [(goal * x, goal * y) for goal, x, y in zip(GOALS, values(a), values(b))]
        return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)
    return [trial for trial in trials if not any(dominates(other, trial) for other in trials)]


def test_the_front_is_the_same_on_any_cluster():
    found = []
    for workers, servers in ((1, 1), (3, 2)):
        with Folder() as folder, Cluster(folder, workers=workers, servers=servers) as cluster:
            sweep = Sweep(cluster, write(folder), *SETTINGS)
            info = sweep.ends()
            assert [trial["state"] for trial in info["trials"]] == ["done"] * 8
            found.append((info["records"], info["front"]))
            expected = front(info["trials"])
            assert info["front"] == [trial["number"] for trial in expected], info
            assert info["best"] in info["front"]
            for trial in info["trials"][:2]:
                status = cluster.json("status", trial["run"])
                assert values(trial) == [status["accuracy"], status["eval_loss"], status["metrics"]["top5"]], status
            if workers == 1:
                look_at(folder, sweep, info, expected)
    assert found[0] == found[1]


def look_at(folder, sweep, info, expected):
    """What the commands show."""
    shown = sweep.ask("best", sweep.id).stdout.splitlines()
    assert [line.split()[2] for line in shown] == [str(trial["number"]) for trial in expected], shown
    assert all(" accuracy " in line and " loss " in line and " top5 " in line for line in shown), shown
    assert json.loads(sweep.ask("best", sweep.id, "--json").stdout) == expected
    assert sweep.ask("watch", sweep.id).stdout.count("front: trial ") == len(expected)
    table = sweep.ask("status", sweep.id).stdout
    assert table.count("front: trial ") == len(expected) and " FRONT " in table and " TOP5 " in table, table
    rows = list(csv.DictReader(io.StringIO(sweep.ask("status", sweep.id, "--csv").stdout)))
    assert {row["trial"] for row in rows if row["front"] == "1"} == {str(trial["number"]) for trial in expected}, rows
    for at, (metric, goal) in enumerate(zip(("accuracy", "loss", "top5"), GOALS)):
        best = max(info["trials"], key=lambda trial: (goal * values(trial)[at], -trial["number"]))
        said = json.loads(sweep.ask("best", sweep.id, "--objective", metric, "--json").stdout)
        assert said["number"] == best["number"] and said["results"][-1] == values(best)[at], (said, best)
        exported = sweep.ask("export", sweep.id, "--objective", metric, "-o", folder.file("best.onnx")).stdout
        assert f"trial {best['number']}, run {best['run']}" in exported, exported
        assert json.loads(sweep.ask("importance", sweep.id, "--objective", metric, "--json").stdout)["metric"] == metric
    refused = sweep.ask("best", sweep.id, "--objective", "auc", status=2).stderr
    assert "has no objective 'auc'; it has accuracy, loss, top5" in refused, refused


def test_a_private_sweep_leaves_the_front_and_the_best_by_the_first_objective():
    with Folder() as folder:
        out = folder.file("out")
        shown = weir("sweep", write(folder), *SETTINGS, "budget={trials: 3}", "--threads", 2, "--out", out).stdout
        with open(out + "/trials.jsonl") as file:
            trials = [json.loads(line) for line in file]
        assert shown.count("\nfront: trial ") == sum(trial["front"] for trial in trials) > 0, shown
        for trial in trials:
            last = trial["results"][-1]
            assert list(last["objectives"]) == ["accuracy", "loss", "top5"] and last["objectives"]["accuracy"] == last["value"]
        assert os.path.exists(out + "/best.onnx") and os.path.exists(out + "/best.yaml")


if __name__ == "__main__":
    main(globals())
