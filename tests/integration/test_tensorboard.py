"""weir logs: lines as a metrics file has them, and event files that TensorBoard's own reader understands."""
import json
import math
import os
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, main, program,
                     read_metrics, wait_for, weir)
from test_sweep import Sweep, write_sweep

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 12


def read(logs):
    """What TensorBoard has of the folder."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_tensorboard.py"), logs], capture_output=True, text=True,
                          timeout=PATIENCE * 3, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def small_spec(folder):
    folder.small_data(240, 48)
    return folder.small_spec(folder.model("mlp", "--hidden", 16, "--seed", 5), 2, STEPS, 4)


def assert_says(points, lines, key):
    """Each line once, in order, with its value as a float has it."""
    assert [point[0] for point in points] == [line["step"] for line in lines], (points, lines)
    for (_, value, _), line in zip(points, lines):
        assert math.isclose(value, line[key], rel_tol=1e-6), (value, line)


def assert_has_run(found, run, lines):
    """Steps and evaluations of a run that was not disturbed."""
    train, evaluated = found["scalars"][f"{run}/train"], found["scalars"][f"{run}/eval"]
    steps = [line for line in lines if line["event"] == "step"]
    evals = [line for line in lines if line["event"] == "eval"]
    assert set(train) == {"loss", "learning_rate", "epoch", "workers", "samples_per_second"}, train.keys()
    assert set(evaluated) == {"loss", "accuracy"}, evaluated.keys()
    for tag, key in (("loss", "loss"), ("learning_rate", "lr"), ("epoch", "epoch"), ("workers", "workers")):
        assert_says(train[tag], steps, key)
    for tag in ("loss", "accuracy"):
        assert_says(evaluated[tag], evals, tag)
    clock = [point[2] for point in train["loss"]]
    assert all(later > earlier for earlier, later in zip(clock, clock[1:])), "the clock goes on with the steps"


def files_below(folder):
    """{path: bytes}"""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.join(place, name)] = file.read()
    return found


def test_tensorboard_reads_what_the_lines_say_and_nothing_is_written_twice():
    with Folder() as folder, Cluster(folder) as cluster:
        at, metrics, logs = ("--coordinator", cluster.address), folder.file("m.jsonl"), folder.file("logs")
        run = weir("submit", small_spec(folder), "--follow", "--metrics", metrics, *at).stdout.split()[0]
        with open(metrics) as file:
            assert weir("logs", run, *at).stdout == file.read(), "the lines are those of the metrics file"
        assert weir("logs", run, "--follow", *at).stdout == weir("logs", "small", *at).stdout
        weir("logs", run, "--tensorboard", logs, *at)
        assert_has_run(read(logs), run, read_metrics(metrics))
        first = files_below(logs)
        assert len(first) == 2 and all("tfevents" in path for path in first), first.keys()
        weir("logs", run, "--tensorboard", logs, "--follow", *at)
        assert files_below(logs) == first


def test_of_a_folder_that_train_left_tensorboard_reads_the_metrics_file():
    with Folder() as folder:
        out, logs = folder.file("out"), folder.file("logs")
        weir("train", small_spec(folder), "--out", out, "--threads", 1)
        metrics = os.path.join(out, "metrics.jsonl")
        with open(metrics) as file:
            assert weir("logs", out).stdout == file.read()
        weir("logs", out, "--tensorboard", logs)
        run, = os.listdir(logs)
        assert_has_run(read(logs), run, read_metrics(metrics))
        first = files_below(logs)
        weir("logs", out, "--tensorboard", logs)
        assert files_below(logs) == first
        assert "--coordinator" in weir("logs", out, "--follow", status=2).stderr
        assert "metrics.jsonl" in weir("logs", folder.path, status=2).stderr
        n = len(read_metrics(metrics))
        with open(metrics, "a") as file:
            file.write("no line\n")
        assert f"metrics.jsonl:{n + 1}: " in weir("logs", out, status=2).stderr


def test_a_follower_that_was_killed_goes_on_after_a_roll_back_without_a_point_twice():
    with Folder() as folder:
        gate = Gate(folder)
        gate.stop_at(6)
        with Cluster(folder, gate=gate, options=("--server-grace", 1)) as cluster:
            at, logs = ("--coordinator", cluster.address), folder.file("logs")
            run = weir("submit", small_spec(folder), *at).stdout.strip()
            with Process(program("weir"), "logs", run, "--tensorboard", logs, "--follow", *at) as follower:
                wait_for(lambda: cluster.json("status", run)["step"] == 7, "the run to come to the gate")
                wait_for(lambda: sum(map(len, files_below(logs).values())) > 800, "what there is in files")
                follower.send(signal.SIGKILL)
                follower.wait()
            assert len(weir("logs", run, *at).stdout.splitlines()) >= 6, "it goes on, and what there is is told"
            cluster.servers[0][0].send(signal.SIGKILL)
            cluster.servers[0][0].wait()
            cluster.restart_server(0)
            wait_for(lambda: cluster.json("status", run)["incarnation"] > 0, "the roll-back")
            gate.open()
            weir("logs", run, "--tensorboard", logs, "--follow", *at)
            lines = [json.loads(line) for line in weir("logs", run, *at).stdout.splitlines()]
        assert any(line.get("incarnation") for line in lines), "it was rolled back"
        last = {(line["event"], line["step"]): line for line in lines if line["event"] != "done"}  # of its last incarnation
        assert_has_run(read(logs), run, [last[key] for key in sorted(last)])


def test_the_trials_of_a_sweep_are_compared_by_their_values():
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        sweep, logs = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=3)), folder.file("logs")
        at = ("--coordinator", cluster.address)
        weir("logs", sweep.id, "--tensorboard", logs, "--follow", *at)
        info, found = sweep.info(), read(logs)
        assert info["end"], "with --follow it ends with the sweep"
        refused = weir("logs", sweep.id, *at, status=2)
        assert "--tensorboard DIR" in refused.stderr, refused.stderr
        first = files_below(logs)
        weir("logs", info["trials"][0]["run"], "--tensorboard", logs, *at)
        weir("logs", "search", "--tensorboard", logs, *at)
        assert files_below(logs) == first
        assert len(found["sessions"]) == len(info["trials"]) == 3, found["sessions"]
        sessions = {session["name"]: session for session in found["sessions"]}
        for trial in info["trials"]:
            session = sessions[f"{sweep.id}-{trial['number']}"]
            assert session["status"] == ["STATUS_SUCCESS"], session
            assert session["hparams"] == {value["path"]: float(value["value"]) for value in trial["values"]}, session
            assert math.isclose(session["metrics"]["eval/accuracy"], trial["results"][-1], rel_tol=1e-6), (session, trial)


def test_wrong_uses_are_refused_by_name():
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        at, logs = ("--coordinator", cluster.address), folder.file("logs")
        for arguments, word in ((["nobody"], "nobody"), (["../x"], "../x"), ([], "RUN|SWEEP|DIR"), (["a", "--tensorboard"], "DIR")):
            refused = weir("logs", *at, *arguments, status=2).stderr
            assert word in refused and refused.count("\n") == 1, refused
        assert not os.path.exists(logs)
        run = weir("submit", small_spec(folder), *at).stdout.strip()
        folder.file("taken", "no folder")
        refused = weir("logs", run, "--tensorboard", folder.file("taken"), *at, status=2).stderr
        assert "taken" in refused and refused.count("\n") == 1, refused
        weir("logs", run, "--tensorboard", logs, *at)
        for path in files_below(logs):
            with open(path, "wb") as file:
                file.write(b"notes of somebody")
        kept = files_below(logs)
        refused = weir("logs", run, "--tensorboard", logs, *at, status=2).stderr
        assert "is no event file" in refused and refused.count("\n") == 1, refused
        assert files_below(logs) == kept
        refused = subprocess.run([program("weir"), "logs", run, *at, "--coordinator", "127.0.0.1:1"], capture_output=True,
                                 text=True, check=False, timeout=PATIENCE)
        assert refused.returncode == 3, refused


if __name__ == "__main__":
    main(globals())
