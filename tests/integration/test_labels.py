"""Labels of workers: a run is given only workers that have those that its spec requires."""
import json
import os
import subprocess

from harness import PATIENCE, Folder, main, program, wait_for, weir
from test_recovery import outcome, undisturbed, write_spec
from test_shares import fleet

BAD = {"gpu": "'gpu' is no label: KEY=VALUE is wanted, as gpu=h200", "=h200": "'=h200' is no label", "gpu=": "'gpu=' is no label",
       "gpu=a b": "'gpu=a b' is no label", "gpu=" + 64 * "a": "is no label", "gpu=a,gpu=b": "label 'gpu' is given twice",
       ",".join(f"k{number}=1" for number in range(17)): "17 labels: at most 16"}


def workers(cluster):
    return {row["id"]: row for row in cluster.json("workers")}


def labels_of_workers(cluster, run):
    """Of those that have the run, sorted."""
    return sorted(row["labels"].get("gpu", "-") for row in workers(cluster).values() if row["run"] == run)


def test_runs_with_other_requirements_share_three_workers():
    with fleet(workers=0) as runs:
        cluster = runs.cluster
        for label in ("gpu=h200", "gpu=h200,zone=a", "gpu=a100"):
            cluster.add_worker(options=("--label", label))
        wait_for(lambda: len(workers(cluster)) == 3, "the workers")
        first = runs.submit("first", "workers.require.gpu=h200")
        runs.has(first=2)
        second = runs.submit("second", "workers.require={gpu: a100}")
        runs.has(first=2, second=1)
        assert labels_of_workers(cluster, first) == ["h200", "h200"] and labels_of_workers(cluster, second) == ["a100"]
        table = weir("workers", "--coordinator", cluster.address).stdout
        assert "  LABELS" in table and "  gpu=h200, zone=a" in table
        third = runs.submit("third", "workers.require.zone=a", "priority=1")
        runs.has(first=1, second=1, third=1)
        assert [row["labels"] for row in workers(cluster).values() if row["run"] == third] == [{"gpu": "h200", "zone": "a"}]
        runs.gate.open()
        runs.ends("first", "second", "third")
        found = json.loads(weir("eval", first, "--coordinator", cluster.address, "--json").stdout)
        assert found["run"] == first
        assert cluster.json("status", "eval-first")["state"] == "done"


def test_a_run_waits_until_a_worker_with_its_label_joins():
    with fleet(workers=0) as runs:
        cluster = runs.cluster
        for label in ("gpu=a100", "zone=a"):
            cluster.add_worker(options=("--label", label))
        wait_for(lambda: len(workers(cluster)) == 2, "the workers")
        runs.submit("some", "workers.require.gpu=h200")
        assert runs.status("some")["message"] == ("waiting for workers: 0 of 1 with gpu=h200: none of the 2 workers has it; "
                                                  "they have gpu=a100")
        assert runs.status("some")["state"] == "queued"
        cluster.add_worker(env={**os.environ, "WEIR_LABELS": "gpu=h200"})
        runs.has(some=1)
        assert {row["run"] for row in workers(cluster).values() if row["labels"] != {"gpu": "h200"}} == {""}
        runs.set("some", "workers.require={zone: a}")
        runs.gate.crawl(lambda: [row["labels"] for row in workers(cluster).values() if row["state"] == "ready"] ==
                        [{"zone": "a"}], "the other worker", steps=1)
        runs.set("some", "workers.require=null")
        runs.evens_out("some", 3)
        runs.gate.open()
        runs.ends("some")


def test_a_private_cluster_has_the_labels_that_it_is_given():
    with Folder() as folder:
        spec, out = write_spec(folder, more="workers: {require: {gpu: h200, zone: a}}\n"), folder.file("out")

        def train(*options, status=0):
            return weir("train", spec, "--threads", 1, "--out", out, *options, status=status)
        refused = train("--label", "gpu=h200", status=2)
        assert "workers.require: workers with gpu=h200, zone=a are asked for: say with --label" in refused.stderr
        assert "--label: 'gpu' is no label" in train("--label", "gpu", status=2).stderr
        assert not os.path.exists(out)
        train("--label", "gpu=h200", "--label", "zone=a")
        assert outcome(folder.file("out/metrics.jsonl")) == undisturbed()
        assert json.loads(weir("eval", out, "--json").stdout)["run"], "evaluated by workers without labels"


def test_malformed_labels_are_refused_in_one_line():
    for text, words in BAD.items():
        options = ("--data-root", "/", "--coordinator", "127.0.0.1:1")
        by_option = subprocess.run([program("weir-worker"), *options, "--label", text], capture_output=True, text=True,
                                   timeout=PATIENCE)
        by_variable = subprocess.run([program("weir-worker"), *options], capture_output=True, text=True, timeout=PATIENCE,
                                     env={**os.environ, "WEIR_LABELS": text})
        for done, origin in ((by_option, "--label"), (by_variable, "WEIR_LABELS")):
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done
            assert done.stderr.startswith(f"weir-worker: {origin}: ") and words in done.stderr, done.stderr


def test_malformed_requirements_are_refused_in_one_line():
    with fleet(workers=0, stop=10) as runs:
        at = ("--coordinator", runs.cluster.address)

        def refusal(*setting):
            said = weir("submit", runs.folder.file("spec.yaml"), *setting, *at, status=2).stderr
            assert said.count("\n") == 1
            return said
        assert "workers.require: 'gpu=' is no label" in refusal("workers.require.gpu=''")
        assert "workers.require: 'gpu=a b' is no label" in refusal("workers.require.gpu=a b")
        assert "workers.require: '=a' is no label" in refusal("workers.require={'': a}")
        assert "workers.require: a mapping is wanted here" in refusal("workers.require=[gpu]")
        assert "workers.require: 17 labels: at most 16" in refusal(
            "workers.require={" + ", ".join(f"k{number}: 1" for number in range(17)) + "}")
        twice = runs.folder.file("twice.yaml", runs.text + "workers: {require: {gpu: a, gpu: b}}\n")
        said = weir("submit", twice, *at, status=2).stderr
        assert "workers.require: label 'gpu' is given twice" in said and "twice.yaml:" in said, said
        runs.submit("some", "workers.require.gpu=a")
        said = runs.set("some", "workers.require.gpu=a b", status=2).stderr
        assert "workers.require: 'gpu=a b' is no label" in said
        weir("cancel", "some", *at)


if __name__ == "__main__":
    main(globals())
