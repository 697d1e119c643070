"""More runs than workers: they take turns, what a worker has loaded stays loaded until its next turn, and no bit depends on
it."""
import contextlib
import re
import signal

from harness import Cluster, Folder, kept, main, outcome, wait_for, weir
from test_recovery import MODEL, kill
from test_shares import Fleet

STEPS, EVERY = 200, 25
CRAWL = {"steps": 1, "factor": 1.3}  # a turn is 2 s long at least: so it is over long before the run


def write_spec(folder):
    """A run of many short steps."""
    folder.small_data(480, 24)
    path = folder.small_spec(folder.model(*MODEL), 4, STEPS, EVERY)
    with open(path) as file:
        return folder.file("spec.yaml", file.read() + f"checkpoint: {{every_steps: {EVERY}}}\n")


def undisturbed():
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("turns", train)


class Turns(Fleet):
    def comes_to(self, name):
        """Waits until the run has its turn, and has made a step in it."""
        def computes():
            status = self.status(name)
            return status["workers"] > 0 and status["step"]
        before = self.status(name)["step"]
        self.gate.crawl(lambda: computes() and self.status(name)["step"] > before, f"the turn of {name}", **CRAWL)

    def stands(self, name):
        """Waits until the run stands at the gate: a turn ends only with a step."""
        wait_for(lambda: self.status(name)["step"] == self.gate.step + 1, f"{name} to stand")

    def log(self, worker, event, run):
        """How often the worker has said so of the run."""
        lines = self.cluster.workers[worker].output().splitlines()
        return sum(f" worker {event} " in line and f"run={run}" in line for line in lines)


@contextlib.contextmanager
def fleet(workers, servers=1):
    with Folder() as folder, Turns(folder, workers, 20, servers, write_spec, undisturbed) as runs:
        yield runs


def test_workers_return_to_the_runs_that_they_have_loaded():
    with fleet(workers=2) as runs:
        runs.submit("first", "workers.max=1")
        runs.submit("second", "workers.max=1")
        runs.has(first=1, second=1)

        def placed():
            return {worker["id"]: worker["run"] for worker in runs.cluster.json("workers")}
        before = placed()
        for _ in range(4):
            kill(runs.cluster.coordinator)
            runs.cluster.start_coordinator()
            wait_for(lambda: placed() == before, f"{before} again")
            runs.has(first=1, second=1)
        runs.gate.open()
        runs.ends("first", "second")


def test_two_runs_take_turns_on_a_worker_that_keeps_both_loaded():
    with fleet(workers=1) as runs:
        first = runs.submit("first")
        runs.stands("first")
        second = runs.submit("second")
        assert runs.status("second")["state"] == "queued"
        for name in ("second", "first", "second", "first"):
            runs.comes_to(name)
        assert runs.status("second")["message"] == runs.status("first")["message"] == "takes turns with 1 other run"
        for run in (first, second):
            assert runs.log(0, "loaded", run) == 1 and runs.log(0, "load", run) >= 2
        runs.gate.open()
        runs.ends("first", "second")


def test_members_die_while_runs_take_turns():
    with fleet(workers=1, servers=2) as runs:
        cluster = runs.cluster
        runs.submit("first")
        runs.has(first=1)
        runs.submit("second")
        runs.comes_to("second")
        kill(cluster.coordinator)
        cluster.start_coordinator()
        runs.comes_to("first")
        kill(cluster.servers[0][0])
        cluster.restart_server(0)
        runs.comes_to("second")
        cluster.workers[0].send(signal.SIGKILL)
        cluster.add_worker()
        runs.comes_to("first")
        runs.comes_to("second")
        runs.gate.open()
        runs.ends("first", "second")


def answer_with(cluster, memory):
    """A new worker that has so many bytes for programs, and its word for the run that it is given: loaded or refused."""
    worker = cluster.add_worker(2, options=("--memory", str(memory)))
    return worker, wait_for(lambda: re.search(r" worker (loaded|refused) .*", worker.output()), "a word of the worker")


def test_runs_that_a_worker_has_not_the_memory_for_beside_each_other_take_turns():
    with fleet(workers=0) as runs:
        adapts = "workers.recompute=auto"
        runs.submit("first", adapts)
        worker, word = answer_with(runs.cluster, 1)
        memory = 2 * int(re.search(r"needs (\d+) bytes", word[0])[1])
        while word[1] == "refused":  # at the end there is enough for one run, and far from enough for two
            worker.send(signal.SIGTERM)
            worker.wait()
            memory = memory * 5 // 4
            worker, word = answer_with(runs.cluster, memory)
        runs.has(first=1)
        runs.submit("second", adapts)
        for name in ("second", "first", "second"):
            runs.comes_to(name)
        assert re.search(r" worker refused run=second.* may take \d+", worker.output()), worker.output()[-2000:]
        runs.gate.open()
        runs.ends("first", "second")


def test_a_run_begins_with_what_was_loaded_for_another():
    with Folder() as folder, Cluster(folder, workers=1, is_patient=True) as cluster:
        spec = folder.small_spec(folder.model(*MODEL), 4, 40, 10)
        folder.small_data(480, 24)
        other = ("name=other", "train.optimizer.lr=0.01", "train.steps=60", "eval.every_steps=7")

        def train(*settings):
            """The worker's word for each run that it was given since the cluster began, and the run's outcome."""
            metrics = folder.file("metrics.jsonl", "")
            weir("submit", spec, *settings, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            words = re.findall(r" worker (loaded|becomes) ", cluster.workers[0].output())
            return words, outcome(metrics)
        train()
        words, seen = train(*other)
        assert words == ["loaded", "becomes"]
        weir("train", spec, *other, "--threads", 1, "--out", folder.file("alone"))
        assert seen == outcome(folder.file("alone/metrics.jsonl"))
        assert train("train.seed=4")[0] == ["loaded", "becomes", "loaded"]
        folder.small_data(480, 24)
        assert train("train.seed=4")[0] == ["loaded", "becomes", "loaded", "loaded"]


if __name__ == "__main__":
    main(globals())
