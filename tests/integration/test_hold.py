"""Runs that are held at a version: they give back their workers, go on from memory when the hold is raised, and end in the
same bits as a run that was never held, whatever dies meanwhile. And runs that are stopped with their result kept."""
import contextlib
import os
import re

from harness import Folder, done_event, main, outcome, read_metrics, wait_for, weir
from test_recovery import EVERY, STEPS, kill, undisturbed
from test_shares import Fleet

HOLD = 25


class Held(Fleet):
    def ask(self, *arguments, **options):
        return weir(*arguments, "--coordinator", self.cluster.address, **options)

    def refused(self, text, *arguments):
        error = self.ask(*arguments, status=2).stderr
        assert error.count("\n") == 1 and text in error, error

    def state(self, name, state):
        """Waits for it; the run's status then."""
        return wait_for(lambda: (status := self.status(name))["state"] == state and status, f"{name} to be {state}")

    def is_held(self, name, step):
        """Waits until the run is held at that version, and checkpointed there."""
        def holds():
            status = self.status(name)
            return status["state"] == "held" and status["step"] == status["checkpoint_step"] == step and status
        return wait_for(holds, f"{name} to be held at step {step}")

    def is_held_in_store(self, name, step):
        """As is_held; and a coordinator that comes now knows it: what is set is answered once the store has all that was."""
        status = self.is_held(name, step)
        self.set(name, f"priority={status['priority'] + 1}")

    def loads(self, worker, run):
        """How often the worker loaded it: model, data, programs."""
        lines = worker.output().splitlines()
        return sum(" worker loaded " in line and f"run={run}" in line for line in lines)

    def alone(self, *settings):
        """The outcome of a run of its own with these settings."""
        name = f"alone-{len(self.clients)}"
        self.submit(name, *settings)
        assert self.clients[name].wait() == 0, self.clients[name].output()[-2000:]
        return outcome(self.metrics[name])


@contextlib.contextmanager
def fleet(workers=1, servers=1, stop=None, make=Held):
    """make: Held, or another class of fleets."""
    with Folder() as folder, make(folder, workers, 0, servers) as runs:
        if stop is None:
            runs.gate.open()
        else:
            runs.gate.stop_at(stop)
        yield runs


def test_a_held_run_gives_back_its_workers_and_goes_on_from_memory():
    with fleet() as runs:
        run = runs.submit("first", f"train.hold={HOLD}")
        status = runs.is_held("first", HOLD)
        assert (status["hold"], status["workers"], status["servers"], status["message"]) == (HOLD, 0, 1, ""), status
        assert f"state        held at step {HOLD} of {STEPS}\n" in runs.ask("status", run).stdout
        wait_for(lambda: f"{run}: held at step {HOLD} of {STEPS}\n" in runs.clients["first"].output(), "the watcher's line")
        top = runs.ask("top", "--once").stdout
        assert "1 held" in top and re.search(rf"^{run} +held .* {HOLD}/{STEPS} ", top, re.M), top
        runs.submit("second")  # has the worker meanwhile
        runs.ends("second")
        worker, (server, _) = runs.cluster.workers[0], runs.cluster.servers[0]
        said = runs.set("first", "train.hold=50").stdout  # once the store has it: it goes on meanwhile
        assert re.match(f"{run}: (running at step [0-9]+|held at step 50 of {STEPS})", said), said
        runs.is_held("first", 50)
        runs.set("first", "train.hold=null")
        runs.ends("first")
        assert runs.loads(worker, run) == 1
        assert server.output().count(f" parameters run_loaded run={run} ") == 1
        held = [event["step"] for event in read_metrics(runs.metrics["first"]) if event["event"] == "step"]
        assert held == list(range(STEPS)) and runs.status("first")["incarnation"] == 0


def test_a_held_run_goes_back_to_the_worker_that_has_it_loaded_under_another_coordinator():
    with fleet(workers=4) as runs:
        cluster, run = runs.cluster, runs.submit("some", "workers.max=1", f"train.hold={HOLD}")
        for held, raised in ((HOLD, 50), (50, 75), (75, "null")):
            runs.is_held_in_store("some", held)
            kill(cluster.coordinator)
            cluster.start_coordinator()
            wait_for(lambda: [worker["state"] for worker in cluster.json("workers")] == ["idle"] * 4, "the workers")
            wait_for(lambda: runs.status("some")["servers"] == 1, "the server")
            runs.set("some", f"train.hold={raised}")
        runs.ends("some")
        assert sum(runs.loads(worker, run) for worker in cluster.workers) == 1


def test_members_die_while_a_run_is_held():
    with fleet(servers=2) as runs:
        cluster = runs.cluster
        run = runs.submit("some", f"train.hold={HOLD}")
        runs.is_held("some", HOLD)
        kill(cluster.workers[0])
        worker = cluster.add_worker()
        wait_for(lambda: [entry["state"] for entry in cluster.json("workers")] == ["idle"], "another worker")
        kill(cluster.servers[0][0])
        cluster.restart_server(0)
        wait_for(lambda: runs.status("some")["incarnation"] == 1, "the roll-back")
        runs.is_held_in_store("some", HOLD)
        kill(cluster.coordinator)
        cluster.start_coordinator()
        wait_for(lambda: runs.status("some")["servers"] == 2, "the servers")
        assert runs.is_held("some", HOLD)["incarnation"] == 1
        assert f"run={run}" not in worker.output(), "no step was lost, and a worker was asked"
        runs.set("some", "train.hold=null")
        runs.ends("some")


def test_members_die_while_a_hold_is_raised():
    with fleet(servers=2, workers=2) as runs:
        cluster = runs.cluster
        runs.submit("some", f"train.hold={HOLD}")

        def worker_dies():
            kill(cluster.workers.pop(0))
            cluster.add_worker()

        def server_dies():
            kill(cluster.servers[0][0])
            cluster.restart_server(0)

        def coordinator_dies():
            kill(cluster.coordinator)
            cluster.start_coordinator()
            assert runs.status("some")["hold"] == hold
        hold = HOLD
        for die in (worker_dies, server_dies, coordinator_dies):
            for is_under_way in (False, True):
                runs.is_held("some", hold)
                hold += EVERY
                runs.gate.stop_at(hold - EVERY // 2 - 1)
                runs.set("some", f"train.hold={hold}")
                if is_under_way:
                    wait_for(lambda: runs.status("some")["step"] > hold - EVERY // 2 - 1, "steps")
                die()
                runs.gate.open()
        runs.is_held("some", hold)
        runs.set("some", "train.hold=null")
        runs.ends("some")


def test_groups_and_teams_are_held_and_go_on():
    for settings, workers, threads in (("train.collective=shm", 2, 1), ("workers.stages=2", 1, 2),
                                       ("workers.stages=2", 2, 1)):
        with Folder() as folder, Held(folder, 0, 0) as runs:
            runs.gate.open()
            for _ in range(workers):
                runs.cluster.add_worker(threads)
            runs.submit("some", settings, f"workers.min={workers}", f"train.hold={HOLD}")
            runs.is_held("some", HOLD)
            for hold in range(HOLD + EVERY, 75 + 1, EVERY):  # its members learn of each at different times
                runs.set("some", f"train.hold={hold}")
            runs.is_held("some", 75)
            runs.set("some", "train.hold=null")
            runs.ends("some")


def test_a_hold_is_raised_while_the_run_goes_on():
    with fleet(workers=2, stop=15) as runs:
        runs.submit("some", f"train.hold={HOLD}")
        wait_for(lambda: runs.status("some")["step"] > 15, "steps")
        runs.set("some", "train.hold=30")
        runs.gate.open()
        runs.is_held("some", 30)
        for hold in range(35, STEPS, EVERY):  # now before the run comes to it, now while its workers leave
            runs.set("some", f"train.hold={hold}")
        runs.set("some", "train.hold=null")
        runs.ends("some")


def test_what_people_do_with_a_held_run():
    with fleet() as runs:
        run = runs.submit("some", f"train.hold={HOLD}", "checkpoint.every_steps=1000")
        runs.is_held("some", HOLD)
        assert runs.ask("verify", run).stdout.startswith(f"step {HOLD}: whole")
        path = runs.folder.file("held.safetensors")
        runs.ask("export", run, "--step", HOLD, "-o", path)
        assert os.path.getsize(path) > 0
        fork = runs.ask("fork", f"{run}@{HOLD}", "--name", "fork").stdout.strip()
        metrics = runs.folder.file("fork.jsonl")
        runs.ask("watch", fork, "--metrics", metrics)
        assert outcome(metrics)["weights"] == undisturbed()["weights"]
        runs.refused(f"run '{run}' is held at step {HOLD}: 'weir set {run} train.hold=STEP'", "resume", run)
        runs.refused(f"run '{run}' is held", "gc", run)
        runs.ask("pause", run)
        assert runs.state("some", "paused")["servers"] == 0
        runs.ask("resume", run)
        runs.is_held("some", HOLD)
        runs.set("some", "train.hold=null")
        runs.ends("some")
        other = runs.submit("other", f"train.hold={HOLD}")
        runs.is_held("other", HOLD)
        runs.ask("cancel", other)
        assert runs.clients["other"].wait() == 1
        assert "was cancelled" in runs.clients["other"].output()


def test_versions_of_eval_at_are_evaluated_and_change_nothing():
    with fleet() as runs:
        runs.submit("some", "eval.at=[8, 17]", "train.hold=17")
        runs.is_held("some", 17)

        def evals():
            return [event["step"] for event in read_metrics(runs.metrics["some"]) if event["event"] == "eval"]
        wait_for(lambda: 17 in evals(), "the last evaluation to be known to who watches")
        assert evals() == [5, 8, 10, 15, 17], evals()
        runs.set("some", f"train.hold={STEPS}")
        assert runs.clients["some"].wait() == 0, runs.clients["some"].output()[-2000:]
        assert outcome(runs.metrics["some"])["weights"] == undisturbed()["weights"]


def stopped(runs, name):
    """Waits for the end of a run that was stopped: the version, which is that of a run of so many steps."""
    assert runs.clients[name].wait() == 0, runs.clients[name].output()[-2000:]
    status, done = runs.state(name, "stopped"), done_event(runs.metrics[name])
    step = status["step"]
    assert done["steps"] == step < STEPS == status["steps"], (done, status)
    assert done["weights_sha256"] == status["weights_sha256"] == runs.alone(f"train.steps={step}")["weights"]
    assert f"steps      {step} of {STEPS}, stopped\n" in runs.clients[name].output()
    return step


def test_a_stopped_run_keeps_the_weights_of_its_version():
    with fleet(stop=15) as runs:
        run = runs.submit("some")
        wait_for(lambda: runs.status("some")["step"] > 15, "steps")
        assert f"{run}: running" in runs.ask("stop", run).stdout
        runs.gate.crawl(lambda: runs.status("some")["state"] == "stopped", "the stop", steps=2)
        runs.gate.open()
        step = stopped(runs, "some")
        assert runs.ask("stop", run).stdout == f"{run}: stopped at step {step}\n"
        runs.ask("export", run, "-o", runs.folder.file("stopped.onnx"))
        assert runs.ask("verify", run, "--step", step).stdout.startswith(f"step {step}: whole")
        runs.refused("was stopped: 'weir fork' begins a run from its checkpoint", "resume", run)
        runs.refused("was stopped", "set", run, "priority=1")
        kill(runs.cluster.coordinator)
        runs.cluster.start_coordinator()
        again = runs.status("some")
        assert (again["state"], again["step"]) == ("stopped", step) and again["weights_sha256"], again
        again = runs.folder.file("again.jsonl")
        runs.ask("watch", run, "--metrics", again)
        assert done_event(again)["steps"] == step
        fork = runs.ask("fork", run).stdout.strip()  # and so it goes on all the same
        metrics = runs.folder.file("fork.jsonl")
        runs.ask("watch", fork, "--metrics", metrics)
        assert outcome(metrics)["weights"] == undisturbed()["weights"]
        runs.ask("gc", run)
        runs.refused("no run", "status", run)


def test_a_wish_to_stop_outlives_the_coordinator_that_took_it():
    for wish, state in (("stop", "stopped"), ("pause", "paused")):
        with fleet(stop=15, servers=2) as runs:
            cluster, run = runs.cluster, runs.submit("some")
            wait_for(lambda: runs.status("some")["step"] > 15, "steps")
            assert f"{run}: running" in runs.ask(wish, run).stdout  # its checkpoint cannot come: the run stands still
            kill(cluster.coordinator)
            cluster.start_coordinator()
            runs.gate.crawl(lambda: runs.status("some")["state"] == state, f"to be {state}", steps=2)
            runs.gate.open()
            if wish == "stop":
                stopped(runs, "some")
            else:
                runs.ask("resume", run)
                runs.ends("some")


def test_what_was_set_outlives_the_coordinator_that_said_so():
    with fleet(stop=15) as runs:
        run = runs.submit("some")
        for priority in range(1, 9):
            runs.set("some", f"priority={priority}", f"workers.weight={priority}")
            kill(runs.cluster.coordinator)  # at once
            runs.cluster.start_coordinator()
            assert runs.status("some")["priority"] == priority
        runs.gate.open()
        runs.ends("some")
        runs.ask("gc", run)


def test_a_held_run_is_stopped_where_it_is():
    with fleet(servers=2) as runs:
        run = runs.submit("some", f"train.hold={HOLD}")
        runs.is_held("some", HOLD)
        runs.ask("stop", run)
        assert stopped(runs, "some") == HOLD
        runs.refused("was stopped: there is nothing to set", "set", run, "train.hold=100")


def test_holds_and_stops_that_cannot_be_are_refused():
    with fleet() as runs:
        spec = runs.folder.file("bad.yaml", runs.text)
        at = ("submit", spec)
        runs.refused("train.hold: must be at least 1", *at, "train.hold=0")
        runs.refused("train.hold=x: train.hold: 'x' is not a whole number", *at, "train.hold=x")
        runs.refused(f"there will be no version {STEPS + 1}, the run's last is {STEPS}", *at, f"train.hold={STEPS + 1}")
        runs.refused("version 28 is not evaluated, the next that is evaluated is 30: hold the run there, or name 28 in eval.at",
                     *at, "train.hold=28")
        runs.refused("eval.at: wants versions above 0", *at, "eval.at=[5, 3]")
        runs.refused(f"eval.at: there will be no version 1000, the run's last is {STEPS}", *at, "eval.at=[1000]")
        # after each epoch of 20 steps, as the data says
        late = runs.ask(*at, "eval={}", "train.hold=30", "--follow", status=2).stderr
        assert "train.hold: version 30 is not evaluated, the next that is evaluated is 40" in late, late
        runs.refused("no run", "stop", "nothing")
        plain = runs.submit("plain", "workers.min=2")
        runs.state("plain", "queued")
        runs.refused(f"run '{plain}' is queued: it computes nothing yet that could be kept: 'weir cancel' ends it", "stop", plain)
        runs.refused("train.hold: the run has no hold, and one that is there is only ever raised", "set", plain,
                     "train.hold=25")
        runs.ask("pause", plain)
        runs.refused(f"run '{plain}' is paused", "stop", plain)
        runs.ask("cancel", plain)
        runs.refused("was cancelled: there is nothing to stop", "stop", plain)
        run = runs.submit("held", f"train.hold={HOLD}")
        runs.is_held("held", HOLD)
        runs.refused("train.hold: 20 is below 25, which the run has: a hold is only ever raised", "set", run, "train.hold=20")
        runs.refused("version 28 is not evaluated", "set", run, "train.hold=28")
        runs.refused("there will be no version 1000", "set", run, "train.hold=1000")
        runs.refused(f"train.hold: the fork begins at step {HOLD}", "fork", run, f"train.hold={HOLD}")
        assert runs.status("held")["hold"] == HOLD
        runs.ask("cancel", run)


if __name__ == "__main__":
    main(globals())
