"""weir eval: the weights that a run left, evaluated once more, by a cluster or from a folder."""
import json
import os
import signal
import subprocess

from harness import Cluster, Folder, Process, done_event, main, program, read_metrics, wait_for, weir
from test_metrics import by_definition, train, write_data, write_spec

METRICS = ["top5", "perplexity"]


def open_folder(folder, tail="", steps=6):
    write_data(folder)
    return write_spec(folder, "run", 8, "cross_entropy", "[perplexity, top5]", "classes", steps=steps, tail=tail)


def evaluate(*arguments):
    return json.loads(weir("eval", *arguments, "--json").stdout)


def assert_same(found, event, done):
    """What the training run said of a version, to the last bit."""
    for key in ("loss", "accuracy", *METRICS):
        assert found[key] == event[key], (found, event)
    assert found["step"] == event["step"] and found["weights_sha256"] == done["weights_sha256"], (found, done)


def other_data(folder, tail=""):
    return folder.file("other.yaml", f"""data:
  root: {folder.path}
  eval: {{format: idx, images: train-images, labels: train-classes}}
{tail}""")


def test_a_folder_s_weights_are_evaluated_as_training_did():
    with Folder() as folder:
        evals, done = train(folder, open_folder(folder))
        out = folder.file("out")
        before = sorted(os.listdir(out + "/store"))
        assert_same(evaluate(out), evals[-1], done)
        begun = evaluate(out, "--step", 0, "--measure", "top5")
        assert begun["step"] == 0 and "perplexity" not in begun and 0 < begun["top5"] < 1, begun
        assert begun["weights_sha256"] != done["weights_sha256"], "those that the run began with"
        assert sorted(os.listdir(out + "/store")) == before, "what is evaluated is only read"
        table = weir("eval", out).stdout
        assert f"sha256     {done['weights_sha256']}\n" in table and "perplexity " in table, table


def test_a_cluster_evaluates_a_checkpoint_on_any_data():
    with Folder() as folder:
        spec = open_folder(folder)
        metrics = folder.file("cluster.jsonl")
        with Cluster(folder, servers=2, workers=3) as cluster:
            at = ("--coordinator", cluster.address)
            run = weir("submit", spec, "--follow", "--metrics", metrics, *at).stdout.strip()
            done = done_event(metrics)
            events = [event for event in read_metrics(metrics) if event["event"] == "eval"]
            assert_same(evaluate(run, *at), events[-1], done)
            elsewhere = evaluate("run", *at, "--data", other_data(folder))
            os.makedirs(folder.file("out"))
            weir("export", run, "-o", folder.file("out/model.onnx"), *at)
            definition = by_definition(folder, "classes", "train")
            for key in ("accuracy", *METRICS):
                assert abs(elsewhere[key] - definition[key]) <= 1e-5 * definition[key], (elsewhere, definition)
            unscaled = evaluate(run, *at, "--data", other_data(folder, "  transforms: [{scale: 1}]\n"))
            assert unscaled["loss"] != elsewhere["loss"], "transforms of its own"
            listed = cluster.json("runs")
            assert [entry["name"] for entry in listed] == ["run"] + 3 * ["eval-run"], listed
            assert all(entry["state"] == "done" and entry["checkpoints"] == 0 for entry in listed[1:]), listed
            cluster.coordinator.send(signal.SIGKILL)
            cluster.coordinator.wait()
            cluster.start_coordinator()
            for was, entry in zip(listed, cluster.json("runs")):  # its successor knows how they ended
                for key in ("run", "state", "accuracy", "eval_loss", "metrics", "weights_sha256"):
                    assert entry[key] == was[key], (key, was, entry)


def test_an_evaluation_outlives_its_servers_and_workers():
    with Folder() as folder:
        spec = open_folder(folder)
        evals, done = train(folder, spec)
        weights = folder.file("out/model.safetensors")
        with open(spec) as text:
            alone = folder.file("alone.yaml", text.read().replace("steps: 6", "steps: 0"))
        metrics = folder.file("alone.jsonl")
        with Cluster(folder, servers=2, workers=0) as cluster:
            with Process(program("weir"), "submit", alone, "--from", weights, "--follow", "--metrics", metrics,
                         "--coordinator", cluster.address) as client:
                wait_for(lambda: cluster.json("runs"), "the run")
                cluster.add_worker()
                cluster.servers[0][0].send(signal.SIGKILL)
                cluster.servers[0][0].wait()
                cluster.restart_server(0)
                cluster.workers[0].send(signal.SIGKILL)
                cluster.add_worker()
                assert client.wait() == 0, client.output()[-2000:]
        found = read_metrics(metrics)
        assert found[-1]["weights_sha256"] == done["weights_sha256"]
        assert found[-2]["loss"] == evals[-1]["loss"] and found[-2]["top5"] == evals[-1]["top5"], found


def test_the_average_is_evaluated_on_request():
    with Folder() as folder:
        spec = open_folder(folder).replace("run.yaml", "average.yaml")
        with open(folder.file("run.yaml")) as text:
            folder.file("average.yaml", text.read().replace("seed: 5,", "seed: 5, average: {decay: 0.5},"))
        _, done = train(folder, spec)
        average = evaluate(folder.file("out"), "--average")
        assert average["weights_sha256"] != done["weights_sha256"]
        with open(spec) as text:
            alone = folder.file("alone.yaml", text.read().replace("steps: 6", "steps: 0"))
        weir("train", alone, "--from", folder.file("out/model.average.safetensors"), "--out", folder.file("again"),
             "--metrics", folder.file("again.jsonl"))
        again = done_event(folder.file("again.jsonl"))
        assert (again["weights_sha256"], again["perplexity"]) == (average["weights_sha256"], average["perplexity"])


def test_what_cannot_be_evaluated_is_said_in_a_line():
    with Folder() as folder:
        spec = open_folder(folder)
        train(folder, spec)
        out = folder.file("out")

        def refused(said, *arguments, status=2):
            text = weir("eval", *arguments, status=status).stderr
            assert said in text and text.count("\n") == 1, text

        refused("no checkpoint at step 4", out, "--step", 4)
        refused("eval.metrics: 'mae' is for", out, "--measure", "mae")
        refused("eval.metrics: there is no metric ''", out, "--measure", "top5,,auc")
        refused("keeps no average", out, "--average")
        refused("nothing.yaml", out, "--data", folder.file("nothing.yaml"))
        refused("has neither data.eval nor data.train", out, "--data", folder.file("empty.yaml", "name: x\n"))
        refused("such file", folder.path)
        refused("127.0.0.1:1", "run", "--coordinator", "127.0.0.1:1", status=3)
        with open(spec) as text:
            bare = text.read().replace("steps: 6", "steps: 0")
        lines = [line for line in bare.split("\n") if "eval" not in line]
        text = weir("train", folder.file("bare.yaml", "\n".join(lines)), "--out", folder.file("no"), status=2).stderr
        assert "train.steps: 0 trains nothing" in text, text


def test_a_run_that_trains_lends_a_worker_and_gets_it_back():
    with Folder() as folder:
        spec = open_folder(folder, steps=10**8, tail="checkpoint: {every_steps: 20}\n")
        with Cluster(folder, servers=1, workers=2, is_patient=True) as cluster:
            at = ("--coordinator", cluster.address)
            run = weir("submit", spec, *at).stdout.strip()
            wait_for(lambda: cluster.json("status", run)["checkpoint_step"], "a checkpoint")
            wait_for(lambda: cluster.json("status", run)["workers"] == 2, "both workers")
            found = evaluate(run, *at)
            assert found["step"] > 0 and found["loss"] > 0, found
            wait_for(lambda: cluster.json("status", run)["workers"] == 2, "both workers again")
            assert cluster.json("status", run)["state"] == "running"
            weir("cancel", run, *at)


def test_characters_stay_those_of_the_training_data():
    """In a text that lacks the first of them the others keep their numbers."""
    with Folder() as folder:
        folder.file("train.txt", "abcdefgh" * 20)
        folder.file("few.txt", "efghgfe" * 9)
        folder.model("gpt", "--vocabulary", 8, "--context", 4, "--width", 16, "--depth", 1, "--heads", 2)
        source = "{format: text, context: 4, file: %s.txt}"
        spec = folder.file("run.yaml", f"""name: run
model: {{onnx: gpt.onnx, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {source % "train"}
  eval: {source % "few"}
train: {{steps: 4, batch: 6, optimizer: {{lr: 0.1}}}}
""")
        (*_, last), done = train(folder, spec)
        out = folder.file("out")
        found = evaluate(out)
        assert (found["loss"], found["weights_sha256"]) == (last["loss"], done["weights_sha256"]), (found, last)
        again = folder.file("few.yaml", f"data: {{eval: {source % 'few'}}}\n")
        assert evaluate(out, "--data", again)["loss"] == last["loss"]
        elsewhere = folder.file("elsewhere.yaml", f"data: {{root: /, eval: {source % 'few'}}}\n")
        said = weir("eval", out, "--data", elsewhere, status=2).stderr
        assert "data.root: must be that of the run" in said, said


def test_the_part_of_a_split_that_was_held_out_is_evaluated():
    with Folder() as folder:
        spec = open_folder(folder)
        with open(spec) as text:
            lines = [line for line in text.read().split("\n") if not line.startswith("  eval:")]
        split = "\n".join(lines).replace("data:\n", "data:\n  split: [0.7, 0.3]\n  sampler: weighted\n")
        evals, done = train(folder, folder.file("split.yaml", split))
        out = folder.file("out")
        assert_same(evaluate(out), evals[-1], done)
        assert evaluate(out, "--data", other_data(folder))["loss"] != evals[-1]["loss"]


def test_the_same_part_is_held_out_of_runs_with_one_split_seed():
    with Folder() as folder:
        with open(open_folder(folder)) as text:
            lines = [line for line in text.read().split("\n") if not line.startswith("  eval:")]

        def loss(seed, *split_seed):
            """Of the weights in the model's file, so only the samples make a difference."""
            split = "\n".join(["data:", "  split: [0.7, 0.3]", *(f"  split_seed: {given}" for given in split_seed), ""])
            spec = "\n".join(lines).replace("data:\n", split).replace("steps: 6", "steps: 0")
            evals, _ = train(folder, folder.file("split.yaml", spec.replace("seed: 5,", f"seed: {seed},")))
            return evals[-1]["loss"]

        drawn = loss(5)
        assert loss(6) != drawn
        assert loss(6, 5) == drawn and evaluate(folder.file("out"), "--step", 0)["loss"] == drawn
        assert loss(5, 6) != drawn
        assert evaluate(folder.file("out"), "--step", 0, "--data", other_data(folder))["loss"] != drawn


def test_an_interrupted_evaluation_is_cancelled():
    with Folder() as folder:
        spec = open_folder(folder)
        with Cluster(folder, servers=1, workers=1) as cluster:
            at = ("--coordinator", cluster.address)
            weir("submit", spec, "--follow", *at)
            cluster.workers[0].send(signal.SIGKILL)
            wait_for(lambda: not cluster.json("workers"), "the worker's end")
            with subprocess.Popen([program("weir"), "eval", "run", *at], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True) as client:
                wait_for(lambda: len(cluster.json("runs")) == 2, "the evaluation")
                client.send_signal(signal.SIGINT)
                assert client.communicate()[0] == "" and client.returncode == 130
            wait_for(lambda: cluster.json("runs")[1]["state"] == "cancelled", "its end")


if __name__ == "__main__":
    main(globals())
