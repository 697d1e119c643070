#!/usr/bin/env python3
"""weir trace: one timeline of all members of a run, as the format of Chrome's trace events wants it."""
import collections
import json
import os
import re

import network
from chromium import drive
from harness import Cluster, Folder, main, wait_for, weir

PERFETTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_perfetto.py")
STEPS = 5
KEYS = {"M": {"ph", "pid", "name", "args"}, "X": {"ph", "pid", "tid", "cat", "name", "ts", "dur", "args"},
        "s": {"ph", "pid", "tid", "cat", "name", "ts", "id"}, "f": {"ph", "pid", "tid", "cat", "name", "ts", "id", "bp"}}


def endless(folder):
    folder.small_data(240, 60)
    return folder.small_spec(folder.model("mlp", "--input", "1,28,28", "--hidden", "400", "--classes", "10"), 4, 1000000, 1000000)


def assert_schema(timeline):
    for event in timeline["traceEvents"]:
        assert KEYS[event["ph"]] <= set(event), event
        assert isinstance(event["pid"], int) and event.get("dur", 0) >= 0, event
    assert timeline["displayTimeUnit"] == "ms"


def assert_nested(events):
    """On one row spans lie within each other or apart, or viewers draw nonsense."""
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
    for row in rows.values():
        open_until = []
        for begin, end in sorted(row, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 1:  # a nanosecond may be lost in writing
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1, (begin, end, open_until)
            open_until.append(end)


def lies_in(arrow, span):
    return (arrow["pid"], arrow["tid"]) == (span["pid"], span["tid"]) and span["ts"] <= arrow["ts"] <= span["ts"] + span["dur"]


def test_pushes_of_all_workers_lead_to_the_updates_of_all_servers_on_one_clock():
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        run = weir("submit", endless(folder), "workers.min=2", "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: cluster.json("status", run)["step"] > 3, "the first steps")
        path = folder.file("trace.json")
        said = weir("trace", run, "--steps", STEPS, "-o", path, "--coordinator", cluster.address).stdout
        again = folder.file("again.json")
        weir("trace", run, "--steps", 1, "-o", again, "--coordinator", cluster.address)
        status = cluster.json("status", run)
        weir("cancel", run, "--coordinator", cluster.address)
        with open(path) as file:
            timeline = json.load(file)
        with open(again) as file:
            later = json.load(file)
        assert_schema(timeline)
        assert_schema(later)
        events, whose = timeline["traceEvents"], {}
        assert_nested(events)
        for event in events:
            if event["name"] == "process_name":
                whose[event["pid"]] = event["args"]["name"].split()[0]
        assert sorted(whose.values()) == ["server-1", "server-2", "worker-1", "worker-2"], whose
        first, end = (timeline["otherData"][key] for key in ("first_step", "end_step"))
        spans = [event for event in events if event["ph"] == "X"]
        assert end - first == STEPS and {span["args"]["step"] for span in spans} == set(range(first, end))
        assert later["otherData"]["first_step"] >= end
        assert set(timeline["otherData"]["clock_error_us"].values()) == {0}, "all is on one machine"
        updates = [span for span in spans if span["cat"] == "apply"]
        places = {(span["args"]["step"], span["args"]["index"]) for span in updates}
        assert len(updates) == len(places) == STEPS * (status["blocks"] - 1), "each block but that of statistics once a step"
        assert {whose[span["pid"]] for span in updates} == {"server-1", "server-2"}
        assert {whose[span["pid"]] for span in spans if span["cat"] in ("part",)} == {"server-1", "server-2"}
        assert {whose[span["pid"]] for span in spans if span["cat"] == "forward"} == {"worker-1", "worker-2"}
        assert_joined(events, places, whose)
        joined = len([event for event in events if event["ph"] == "s"])
        assert re.match(rf"{path}: {STEPS} steps from {first} on, 4 members, {len(spans)} spans, {joined} pushes "
                        r"joined to their update\n", said), said
        assert_work(said, events)


def assert_work(said, events):
    """Of each worker, what its executor did between the first and the last of its tasks."""
    told = {worker: tuple(map(int, parts)) for worker, *parts in re.findall(
        r"^(worker-\d+): 1 executor computed (\d+) % of the time, waited for weights (\d+) %, for data (\d+) %$", said, re.MULTILINE)}
    names = {event["pid"]: event["args"]["name"].split()[0] for event in events if event["name"] == "process_name"}
    assert set(told) == {"worker-1", "worker-2"} and len(said.splitlines()) == 3, said
    for pid, worker in names.items():
        tasks = [event for event in events if event["pid"] == pid and event.get("cat") in ("train", "evaluation", "extra")]
        waits = [event for event in events if event["pid"] == pid and event.get("cat") == "wait" and
                 any(lies_in(event, task) for task in tasks)]
        if not tasks:
            continue
        whole = max(task["ts"] + task["dur"] for task in tasks) - min(task["ts"] for task in tasks)
        data = sum(wait["dur"] for wait in waits if wait["name"] == "batch")
        weights = sum(wait["dur"] for wait in waits) - data
        wanted = sum(task["dur"] for task in tasks) - weights - data, weights, data
        assert all(abs(100 * part / whole - percent) < 1 for part, percent in zip(wanted, told[worker])), (worker, wanted, whole, told)


def assert_joined(events, places, whose):
    """Each arrow begins in a push and ends in the update of the same block and step, which follows it."""
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] in ("push", "apply"):
            rows[event["pid"], event["tid"]].append(event)
    assert set(begins) == set(ends) and begins
    seen = set()
    for number, begin in begins.items():
        end = ends[number]
        push = next(span for span in rows[begin["pid"], begin["tid"]] if lies_in(begin, span) and span["ts"] == begin["ts"])
        update = next(span for span in rows[end["pid"], end["tid"]] if lies_in(end, span) and span["ts"] == end["ts"])
        assert (push["cat"], update["cat"]) == ("push", "apply")
        assert push["args"] == update["args"], (push, update)
        assert whose[push["pid"]].startswith("worker") and whose[update["pid"]].startswith("server")
        seen.add((push["args"]["step"], push["args"]["index"], whose[push["pid"]]))
    assert {(step, index) for step, index, _ in seen} == places, "an update that no push leads to"
    assert {worker for _, _, worker in seen} == {"worker-1", "worker-2"}
    newest = {place: max(begin["ts"] for number, begin in begins.items()
                         if ends[number]["ts"] == end["ts"] and ends[number]["pid"] == end["pid"])
              for end in ends.values() for place in [(end["pid"], end["ts"])]}
    assert all(begun < ts for (_, ts), begun in newest.items()), "an update before the push that completed it"


def test_perfetto_shows_each_push_joined_to_its_update():
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        run = weir("submit", endless(folder), "workers.min=2", "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: cluster.json("status", run)["step"] > 3, "the first steps")
        path = folder.file("trace.json")
        weir("trace", run, "--steps", STEPS, "-o", path, "--coordinator", cluster.address)
        weir("cancel", run, "--coordinator", cluster.address)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        shown = json.loads(drive(PERFETTO, path))
        assert shown["problems"] == [], shown["problems"]
        spans = collections.Counter(event["cat"] for event in events if event["ph"] == "X")
        assert {row["category"]: int(row["n"]) for row in shown["spans"]} == spans
        names = sorted(event["args"]["name"] for event in events if event["name"] == "process_name")
        assert [row["name"] for row in shown["processes"]] == names
        n_arrows = len([event for event in events if event["ph"] == "s"])
        assert len(shown["arrows"]) == n_arrows > 0, (len(shown["arrows"]), n_arrows)
        for arrow in shown["arrows"]:
            assert (arrow["begins"], arrow["ends"]) == ("push", "apply"), arrow
            assert (arrow["step"], arrow["block"]) == (arrow["end_step"], arrow["end_block"]) and int(arrow["later_ns"]) > 0, arrow


def test_what_cannot_be_traced_is_refused_with_one_line():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        run = weir("submit", endless(folder), "--coordinator", cluster.address).stdout.strip()
        for arguments, text in (((run,), "does not compute now: there is nothing to trace"), (("nobody",), "no run 'nobody'"),
                                ((run, "--steps", 0), "--steps"), ((run, "--steps", 1001), "--steps"), ((), "RUN")):
            said = weir("trace", *arguments, "-o", folder.file("t.json"), "--coordinator", cluster.address, status=2).stderr
            assert text in said and said.count("\n") == 1, said


def test_a_member_that_dies_meanwhile_is_not_waited_for():
    with Folder() as folder, Cluster(folder, servers=1, workers=2) as cluster:
        run = weir("submit", endless(folder), "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: cluster.json("status", run)["workers"] == 2 and cluster.json("status", run)["step"] > 3, "the first steps")
        cluster.workers[1].send(9)
        weir("trace", run, "--steps", 3, "-o", folder.file("t.json"), "--coordinator", cluster.address)
        with open(folder.file("t.json")) as file:
            assert_schema(json.load(file))
        weir("cancel", run, "--coordinator", cluster.address)


if __name__ == "__main__":
    network.enter()  # where no network comes or goes: a browser breaks off then what it loads
    main(globals())
