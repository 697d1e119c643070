"""What a dashboard polls, and what the command line makes of it: curves of a run by points, runs by name, state and age. A
coordinator that is killed has a successor that shows the same."""
import json
import os
import re
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, done_event, main, newest_step, program, read_metrics, wait_for,
                     weir)

STEPS, STEP = 60, 23  # STEP: at which a run is to stand
HERE = os.path.dirname(os.path.abspath(__file__))


def write_spec(folder, name="small", more=""):
    folder.small_data(120, 24)
    path = folder.small_spec(folder.model("mlp", "--hidden", 24, "--seed", 5), 2, STEPS, STEPS // 4)
    with open(path) as file:
        text = re.sub(r"^name: .*$", f"name: {name}", file.read(), flags=re.MULTILINE)
    with open(folder.file(name + ".yaml"), "w") as file:
        file.write(text + more)
    return folder.file(name + ".yaml")


def trained(cluster, spec, metrics, *settings):
    """The id of a run that has ended."""
    asked = {entry["run"] for entry in cluster.json("runs")}
    with Process(program("weir"), "submit", spec, *settings, "--follow", "--metrics", metrics, "--coordinator",
                 cluster.address) as client:
        assert client.wait() == 0, client.output()[-3000:]
    run, = {entry["run"] for entry in cluster.json("runs")} - asked
    return run


def series(cluster, run, *more):
    return json.loads(weir("logs", run, "--points", *more, "--json", "--coordinator", cluster.address).stdout)


def curves(shown):
    return {curve["metric"]: curve for curve in shown["curves"]}


def restart(cluster):
    cluster.coordinator.send(signal.SIGKILL)
    cluster.coordinator.wait()
    cluster.start_coordinator()


def assert_near(values, expected):
    assert len(values) == len(expected) and all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(values, expected)), (values, expected)


def test_curves_say_what_the_metrics_lines_do_and_outlive_the_coordinator():
    with Folder() as folder, Cluster(folder, workers=2, is_patient=True) as cluster:
        metrics = folder.file("metrics.jsonl")
        run = trained(cluster, write_spec(folder), metrics)
        events = read_metrics(metrics)
        steps = [event for event in events if event["event"] == "step"]
        evals = [event for event in events if event["event"] == "eval"]
        shown = series(cluster, run, STEPS)
        loss = curves(shown)["loss"]
        assert loss["steps"] == list(range(STEPS)) and loss["min"] == loss["max"] == []
        assert_near(loss["mean"], [event["loss"] for event in steps])
        assert_near(curves(shown)["lr"]["mean"], [event["lr"] for event in steps])
        assert curves(shown)["accuracy"]["steps"] == [event["step"] for event in evals]
        assert_near(curves(shown)["accuracy"]["mean"], [event["accuracy"] for event in evals])
        few = curves(series(cluster, run, 7))["loss"]
        assert 2 <= len(few["steps"]) <= 7 and few["steps"][-1] == STEPS - 1
        begin = 0
        for last, mean, least, most in zip(few["steps"], few["mean"], few["min"], few["max"]):
            part = [event["loss"] for event in steps[begin:last + 1]]
            assert_near((mean, least, most), (sum(part) / len(part), min(part), max(part)))
            begin = last + 1
        assert curves(series(cluster, run, 2000, "--since", 50))["loss"]["steps"] == list(range(50, STEPS))
        assert series(cluster, run, 5, "--since", 10**15)["curves"] == []
        kinds = [(event["kind"], event["step"]) for event in shown["events"]]
        assert ("state", STEPS) in kinds and ("checkpoint", STEPS) in kinds and "view" in dict(kinds), kinds
        restart(cluster)
        again = wait_for(lambda: series(cluster, run, STEPS), "the successor's curves")
        assert again["curves"] == shown["curves"]
        table = weir("logs", run, "--points", 7, "--coordinator", cluster.address).stdout
        assert re.search(r"^STEP +LOSS +LEAST +MOST ", table) and "VERSION" in table and "checkpoint" in table, table


def test_points_that_make_no_sense_are_refused_before_anybody_is_asked():
    for points in (0, -1, 2001, 10**30, "x"):
        assert "--points" in weir("logs", "small", "--points", points, "--coordinator", "nobody.invalid:1", "--insecure", status=2).stderr
    for more, said in (("--json", "--json is for --points"), ("--since=3", "--since is for --points"),
                       ("--points=3 --follow", "--follow is not for it"), ("--points=3 --tensorboard=d", "--tensorboard is not for it")):
        assert said in weir("logs", "small", *more.split(), "--coordinator", "nobody.invalid:1", "--insecure", status=2).stderr
    assert "'gone' is no state of a run" in weir("runs", "--state", "running,gone", status=2).stderr
    with Folder() as folder:
        assert "is a folder" in weir("logs", folder.path, "--points", 3, status=2).stderr


def without_ages(text):
    return re.sub(r"\d+ \w+ ago", "", text)


def test_a_name_means_its_newest_run():
    with Folder() as folder, Cluster(folder) as cluster:
        ask = lambda *words, **options: weir(*words, "--coordinator", cluster.address, **options)
        spec, other = write_spec(folder), write_spec(folder, "small-too", "workers: {min: 9}\n")
        first = trained(cluster, spec, folder.file("first.jsonl"), "train.seed=7")
        third = ask("submit", other).stdout.strip()
        second = trained(cluster, spec, folder.file("second.jsonl"))
        for command in (("status", "{}", "--json"), ("logs", "{}", "--points=9"), ("checkpoints", "{}"), ("export", "{}", "-o", folder.file("m.onnx"))):
            by_name, by_run = (without_ages(ask(*(word.format(name) for word in command)).stdout) for name in ("small", second))
            assert by_name == by_run, (command, by_name)
        stored = ("--store", cluster.store)
        for run in ("small", second):
            weir("export", run, "-o", folder.file(run + ".safetensors"), *stored)
        assert same_bytes(*(folder.file(run + ".safetensors") for run in ("small", second)))
        assert json.loads(ask("status", first[:-1], "--json").stdout)["run"] == first  # a prefix still is one
        assert "is ambiguous" in ask("status", "smal", status=2).stderr
        row = lambda *words: [entry["run"] for entry in json.loads(ask("runs", "--json", *words).stdout)]
        assert row("--name", "small") == [first, second] and row("--name", "small-*") == [third] == row("--state", "queued")
        assert row("--state", "done,queued", "--name", "*all*") == [first, third, second] and row("--state", "held") == []
        table = ask("runs").stdout.splitlines()
        assert table[0].split()[-3:] == ["AGE", "LEFT", "MESSAGE"] and "waiting for workers: 1 of 9" in "\n".join(table), table
        assert f"{third}: cancelled" in ask("cancel", "small-too").stdout


def same_bytes(*paths):
    first, second = (open(path, "rb").read() for path in paths)
    return first == second


class Peer:
    """Somebody who polls, with a client that is no part of Weir."""

    def __init__(self, cluster):
        if not os.path.exists(PEER_PYTHON):
            raise Skip("no grpcio: build/venv is not there")
        self.process = subprocess.Popen([PEER_PYTHON, os.path.join(HERE, "peer_overview.py"), cluster.address], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def poll(self, **fields):
        print(json.dumps(fields), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def test_who_polls_has_what_there_is_through_the_death_of_the_coordinator():
    with Folder() as folder, Cluster(folder, workers=1, gate=Gate(folder), is_patient=True) as cluster, Peer(cluster) as peer:
        metrics = folder.file("metrics.jsonl")
        cluster.gate.stop_at(STEP)
        whole = peer.poll()
        assert whole["is_whole"] and set(whole["members"]) == {"server-1", "worker-1"} and whole["runs"] == {}, whole
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= STEP, "the run to stand")
            waiting = weir("submit", write_spec(folder, "waits", "workers: {min: 9}\n"), "--coordinator", cluster.address).stdout.strip()
            found = wait_for(lambda: (lambda it: it if waiting in it["queue"] else None)(peer.poll()), "the queue")
            assert not found["is_whole"] and len(found["runs"]) == 2 and found["executors"] == 1, found
            run, = set(found["runs"]) - {waiting}
            assert found["runs"][run]["state"] == "running" and found["runs"][run]["step"] > STEP - 1, found
            assert found["runs"][run]["sparkline"] == min(found["runs"][run]["step"], 40)
            assert "waiting for workers: " in found["runs"][waiting]["message"], found
            wait_for(lambda: peer.poll()["sent"] == 0, "nothing to change")
            for since in (1, 2**63, 2**64 - 1):  # of nobody
                answer = peer.poll(since=since, max_rows=3)
                assert answer["is_whole"] and answer["has_more"] and answer["sent"] == 3, answer
                assert set(peer.poll()["runs"]) == {run, waiting}
            refused = peer.poll(max_rows=2001)
            assert refused == {"error": "INVALID_ARGUMENT", "details": "max_rows: 2001: at most 2000 rows are sent at a time"}, refused
            restart(cluster)
            wait_for(lambda: "error" not in peer.poll(), "the successor")

            def is_back(overview):  # once its servers have said at which step it is
                row = overview["runs"][run]
                return row["state"] == "running" and row["step"] > STEP - 1 and len(overview["members"]) == 2
            after = wait_for(lambda: (lambda it: it if is_back(it) else None)(peer.poll()), "the run to be back")
            assert set(after["runs"]) == {run, waiting}, after
            weir("cancel", waiting, "--coordinator", cluster.address)
            cluster.gate.open()
            assert client.wait() == 0, client.output()[-3000:]
        ended = wait_for(lambda: (lambda it: it if it["runs"][run]["state"] == "done" else None)(peer.poll()), "its end")
        assert ended["runs"][run]["objective"] == "accuracy" and ended["runs"][waiting]["state"] == "cancelled", ended
        assert done_event(metrics)["steps"] == STEPS


if __name__ == "__main__":
    main(globals())
