#!/usr/bin/env python3
"""The timeline of a worker: what Chrome's trace format wants, and that it tells what happened."""
import json
import os
import re
import signal

from harness import Cluster, Folder, main, wait_for, weir

STEPS = 12


def small_spec(folder, steps=STEPS, workers=1, rename=None):
    """workers: that take part from the first step on. rename: two texts of one length, the first of which is in the model's names."""
    folder.small_data(240, 60)
    model = folder.model("lenet")
    if rename:
        with open(model, "rb") as file:
            onnx = file.read()
        assert rename[0] in onnx and len(rename[0]) == len(rename[1])
        folder.file("lenet.onnx", onnx.replace(*rename))
    path = folder.small_spec(model, 4, steps, STEPS // 2)
    with open(path, "a") as file:
        file.write(f"workers: {{min: {workers}}}\n")
    return path


def read_timeline(path, is_cut=False):
    """Its events; a file that was cut off is completed as viewers do."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if is_cut:
        text = text[:text.rindex(",\n")] + "]"
    return json.loads(text)


def spans(events, category, step=None):
    return [event for event in events if event.get("cat") == category and step in (None, event["args"]["step"])]


def leaves_early(events, step):
    """True if a gradient of the step was on its way before the last node of its backward pass began: by the order of the
    program, however fast a push or a node is."""
    return min(push["ts"] for push in spans(events, "push", step)) < max(
        node["ts"] for node in spans(events, "backward", step))


def assert_nested(events):
    """On one row spans lie within each other or apart, or viewers draw nonsense."""
    rows = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault(event["tid"], []).append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
    for row in rows.values():
        open_until = []
        for begin, end in sorted(row, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (begin, end, open_until)
            open_until.append(end)
    return rows


def assert_summary(events):
    """The executor's row ends with one span over all of its tasks, which says what it did of that time."""
    (summary,) = spans(events, "summary")
    tasks = spans(events, "train") + spans(events, "evaluation") + spans(events, "extra")
    assert {task["tid"] for task in tasks} == {summary["tid"]}
    assert summary["ts"] <= min(task["ts"] for task in tasks)
    assert summary["ts"] + summary["dur"] >= max(task["ts"] + task["dur"] for task in tasks)
    computed, weights, data = map(int, re.fullmatch(r"computed (\d+) %, waited for weights (\d+) %, for data (\d+) %",
                                                    summary["name"]).groups())
    waits = [event for event in spans(events, "wait") if event["ts"] >= summary["ts"]]
    waited = {is_data: 100 * sum(wait["dur"] for wait in waits if (wait["name"] == "batch") == is_data) / summary["dur"]
              for is_data in (False, True)}
    assert abs(waited[False] - weights) <= 1 and abs(waited[True] - data) <= 1 and computed + weights + data <= 102, (waited, summary)


def test_a_timeline_shows_every_step_and_that_pushes_begin_within_the_backward_pass():
    with Folder() as folder:
        weir("train", small_spec(folder, workers=2), "--workers", 2, "--threads", 1, "--out", folder.file("out"),
             "--trace", folder.file("time.line.json"))
        with open(folder.file("out/logs/coordinator.log")) as log:
            is_calm = " coordinator late " not in log.read()  # else others have computed what a worker was to
        evaluations, timelines = 0, [read_timeline(folder.file(f"time.line-{worker}.json")) for worker in (1, 2)]
        for events in timelines:
            names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
            assert set(assert_nested(events)) == set(names), names
            assert {"executor 0", "reader", "run", "sending 1", "waiting for the server 1"} <= set(names.values()), names
            assert {event["name"] for event in spans(events, "load")} >= {"data", "model", "programs"}
            assert spans(events, "pull") and spans(events, "question")
            evaluations += len(spans(events, "evaluation"))
            assert all(leaves_early(events, step) for step in range(STEPS) if is_calm or spans(events, "push", step))
            assert {(span["name"], span["args"]["index"]) for span in spans(events, "train", 0)} <= {
                ("microbatch", index) for index in range(4)}
            assert_summary(events)
            assert any(span["name"].startswith("conv1") for span in spans(events, "delivery")), spans(events, "delivery")[:9]
        for step in range(STEPS):
            for category in ("train", "forward", "backward", "delivery", "push", "parked", "wait"):
                shown = [bool(spans(events, category, step)) for events in timelines]
                assert all(shown) if is_calm else any(shown), (step, category, shown)
        assert evaluations >= 2, "one each, and what was late was computed again"


def test_names_are_escaped():
    with Folder() as folder:
        spec = small_spec(folder, rename=(b"/conv1.out", b'"\\co\xc3\xa9nv"\\'))
        weir("train", spec, "--threads", 1, "--out", folder.file("out"), "--trace", folder.file("time"))
        names = {event["name"] for event in read_timeline(folder.file("time"))}
        assert '"\\co\xe9nv"\\' in names, names


def test_a_timeline_that_was_cut_off_can_be_read():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        path = folder.file("time.json")
        worker = cluster.add_worker(options=("--trace", path))
        run = weir("submit", small_spec(folder, steps=100000), "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: os.path.exists(path) and os.path.getsize(path) > 200000, "some of the timeline")
        worker.send(signal.SIGKILL)
        worker.wait()
        events = read_timeline(path, is_cut=True)
        assert len(spans(events, "backward")) > 100
        weir("cancel", run, "--coordinator", cluster.address)


def test_a_timeline_that_cannot_be_written_is_refused():
    with Folder() as folder:
        done = weir("train", small_spec(folder), "--out", folder.file("out"), "--trace", folder.file("no/where.json"),
                    status=2)
        assert "cannot write the timeline" in done.stderr and "no/where.json" in done.stderr, done.stderr


def test_a_timeline_that_finds_no_room_is_given_up_and_not_said_to_be_there():
    with Folder() as folder:
        weir("train", small_spec(folder), "--threads", 1, "--out", folder.file("out"), "--trace", "/dev/full")
        with open(folder.file("out/logs/worker-1.log")) as log:
            told = re.findall(r" (trace\w*) file=.*", log.read())
        assert told == ["trace_failed"], told


def test_a_reader_of_a_timeline_that_leaves_does_not_end_the_worker():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        os.mkfifo(folder.file("pipe"))
        reader = os.open(folder.file("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        worker = cluster.add_worker(options=("--trace", folder.file("pipe")))
        wait_for(lambda: cluster.json("workers"), "the worker")
        os.close(reader)
        run = weir("submit", small_spec(folder), "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: worker.child.poll() is not None or cluster.json("status", run)["state"] == "done", "the end")
        # Spans are written now and then, so a run may be over before the first attempt.
        wait_for(lambda: worker.child.poll() is not None or "trace_failed" in worker.output(), "a word of the timeline")
        assert worker.child.poll() is None, worker.child.returncode
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0, worker.child.returncode
        assert worker.output().count("trace_failed") == 1 and "Broken pipe" in worker.output(), worker.output()


if __name__ == "__main__":
    main(globals())
