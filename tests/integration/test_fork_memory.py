"""Forks of runs that stand in the memory of servers: their blocks are referred to there, and not read from the store. To
the bit they are what a fork that reads the store is, whatever becomes of either run."""
import re
import signal

from gate import Gate
from harness import Folder, main, read_metrics, wait_for
from test_fork import ADAM, COSINE, SGD, STEPS, Forks, assert_goes_on

STANDS = 5  # the version of the first checkpoint
APART = ("workers.max=1",)  # a run takes every worker that is free otherwise
SHORT = "train.steps=25"  # where there are many


class Standing(Forks):
    """With a parent that stands at version STANDS, and forks of it that stand there until all of them are let go, by a gate
    of their own. Each is bound to a worker by a label: else one that is missed for a while would have another's gate."""

    def __init__(self, folder):
        super().__init__(folder, workers=0, is_patient=True)
        self.n_forks = 0
        self.cluster.add_worker(options=("--label", "of=parent"))
        self.other = Folder().__enter__()
        self.of_forks = Gate(self.other)
        self.of_forks.stop_at(STANDS - 1)

    def __exit__(self, *unused):
        super().__exit__()
        self.other.__exit__()

    def stand(self, *spec):
        """The parent."""
        self.gate.stop_at(STANDS - 1)
        run = self.submit(self.spec(*spec), *APART, "workers.require={of: parent}")
        wait_for(lambda: self.steps(run) == [STANDS], "the checkpoint where it stands")
        self.cluster.gate = self.of_forks
        return run

    def placed(self):
        return {worker["id"]: worker["run"] for worker in self.cluster.json("workers")}

    def hold(self, *spec):
        """A run that is held at STANDS, where it is evaluated; its worker is free."""
        run = self.submit(self.spec(*spec), *APART, f"train.hold={STANDS}", f"eval.at=[{STANDS}]")
        wait_for(lambda: self.status(run)["state"] == "held" and self.steps(run) == [STANDS], "the run to be held")
        return run

    def restored(self, run):
        """Of each server: [(blocks from memory, blocks read, bytes read)] of each time that it loaded the base of the run."""
        line = re.compile(rf" run_restored run={run} step={STANDS} parent=\S+ adopted=(\d+) read=(\d+) read_bytes=(\d+)\n")
        return [[tuple(map(int, found)) for found in line.findall(server.output())] for server, _ in self.cluster.servers]

    def load(self, run, *settings):
        """A fork, with a worker for it, when both servers have loaded it: and what they say of that."""
        self.n_forks += 1
        self.cluster.add_worker(options=("--label", f"of=fork-{self.n_forks}"))
        fork = self.fork(f"{run}@{STANDS}", *APART, f"workers.require={{of: fork-{self.n_forks}}}", *settings)
        return fork, wait_for(lambda: all(found := self.restored(fork)) and found, "both servers to load the fork")

    def load_from_memory(self, run, *settings):
        fork, restored = self.load(run, *settings)
        for (adopted, read, read_bytes), in restored:
            assert adopted > 0 and read == read_bytes == 0, restored
        return fork

    def load_from_store(self, run, *settings):
        fork, restored = self.load(run, *settings)
        for (adopted, read, _), in restored:
            assert adopted == 0 and read > 0, restored
        return fork


def test_neither_the_fork_nor_its_parent_changes_a_bit_of_the_other():
    for optimizer, average, is_fork_first in ((ADAM, "", True), (SGD, "  average: {decay: 0.8}\n", False)):
        with Folder() as folder, Standing(folder) as forks:
            run = forks.stand(optimizer, COSINE + average)
            fork = forks.load_from_memory(run)
            gates = [(forks.of_forks, fork), (forks.gate, run)]
            ended = {}
            for gate, name in gates if is_fork_first else gates[::-1]:
                gate.open()
                ended[name] = forks.end(name)
            assert_goes_on(ended[fork], ended[run], STANDS)


def test_a_fork_from_memory_ends_in_the_bits_of_one_from_the_manifest_on_a_fresh_cluster():
    """With what its optimizer keeps laid out otherwise, and the average new, gone, or gone on."""
    changes = (("train.optimizer.lr=0.01",), ("train.optimizer.momentum=0",), ("train.optimizer={name: adam, lr: 0.002}",),
               ("train.average={decay: 0.9}",), ("train.optimizer={name: lion, lr: 0.0001}", "train.average={decay: 0.5}"),
               ("train.clip_norm=0.5",))
    for average in ("", "  average: {decay: 0.8}\n"):
        with Folder() as folder, Standing(folder) as forks:
            run = forks.stand(SGD, average)
            changed = [(settings, forks.load_from_memory(run, *settings, SHORT)) for settings in changes]
            forks.of_forks.open()
            ended = [forks.end(fork)["weights"] for _, fork in changed]
            forks.ask("cancel", run)
            forks.move(workers=2)
            for (settings, fork), weights in zip(changed, ended):
                read = forks.fork(f"{run}@{STANDS}", "workers.require=null", *settings, SHORT)
                assert forks.end(read)["weights"] == weights, settings
                (adopted, blocks, _), = forks.restored(read)[0]
                assert adopted == 0 < blocks, settings
                assert forks.status(read)["parent_step"] == forks.status(fork)["parent_step"] == STANDS
            assert len(set(ended)) == len(ended), ended


def test_a_fork_of_a_fork_that_stands_is_loaded_from_memory():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.stand(ADAM)
        fork = forks.load_from_memory(run)
        again = forks.load_from_memory(fork, "name=again")
        forks.gate.open()
        forks.of_forks.open()
        expected = forks.end(run)
        assert_goes_on(forks.end(again), expected, STANDS)
        assert_goes_on(forks.end(fork), expected, STANDS)


def test_a_parent_that_is_cancelled_leaves_its_fork_as_it_is():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.stand(ADAM)
        fork = forks.load_from_memory(run)
        forks.ask("cancel", run)
        again = forks.load_from_memory(fork, "name=again")  # of the fork, which stands there, too
        forks.gate.open()
        forks.of_forks.open()
        forks.ask("resume", run)
        assert forks.end(fork)["weights"] == forks.end(again)["weights"] == forks.end(run)["weights"]


def test_forks_of_a_held_run_are_loaded_from_memory():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.hold(ADAM)
        halved, fork = forks.load_from_memory(run, "train.optimizer.lr=0.001"), forks.load_from_memory(run)
        ended = forks.end(halved), forks.end(fork)
        assert forks.status(run)["state"] == "held"
        forks.ask("set", run, "train.hold=null")
        assert_goes_on(ended[1], forks.end(run), STANDS)
        assert ended[0]["weights"] == forks.end(forks.load_from_store(run, "train.optimizer.lr=0.001"))["weights"]


def test_whatever_becomes_of_a_held_run_its_fork_is_what_it_was():
    """The run is raised, ended, or rolled back, also beside a death of the coordinator, before its fork is loaded, when it is,
    and when it has made steps."""
    def raised(forks, run):
        forks.ask("set", run, "train.hold=null")
        forks.end(run)

    def cancelled(forks, run):
        forks.ask("cancel", run)

    def rolled_back(forks, run):
        incarnation = forks.status(run)["incarnation"]
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.restart_server(1)
        wait_for(lambda: (status := forks.status(run))["incarnation"] > incarnation and status["state"] == "held",
                 "the run to be held again")

    def rolled_back_by_another(forks, run):
        """Server and coordinator die together."""
        forks.cluster.coordinator.__exit__()
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.start_coordinator()
        forks.cluster.restart_server(1)
        wait_for(lambda: forks.status(run)["state"] == "held", "the run to be held again")

    with Folder() as folder, Standing(folder) as forks:
        expected, label = None, "workers.require={fork: 'yes'}"
        forks.cluster.gate = forks.of_forks
        for point in ("queued", "loaded", "running"):
            for end in (raised, cancelled, rolled_back, rolled_back_by_another):
                run = forks.hold(ADAM)
                forks.of_forks.stop_at(STANDS + 3 if point == "running" else STANDS - 1)
                fork = forks.fork(f"{run}@{STANDS}", *APART, label, SHORT)
                worker = point != "queued" and forks.cluster.add_worker(options=("--label", "fork=yes"))
                if point == "running":
                    forks.stands(fork, STANDS + 3)
                elif point == "loaded":
                    wait_for(lambda: all(forks.restored(fork)), "both servers to load the fork")
                end(forks, run)
                worker = worker or forks.cluster.add_worker(options=("--label", "fork=yes"))
                forks.of_forks.open()
                weights = forks.end(fork)["weights"]
                expected = expected or weights
                assert weights == expected, (point, end.__name__)
                if end in (rolled_back, rolled_back_by_another):
                    forks.ask("cancel", run)
                worker.__exit__()
        fresh = forks.end(forks.submit(forks.spec(ADAM), f"eval.at=[{STANDS}]", SHORT))
        assert fresh["weights"] == expected


def test_deaths_while_a_fork_is_loaded_change_no_bit():
    """One of its servers has loaded it, and the other stands still."""
    def server_dies(forks, _):
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.restart_server(1)

    def coordinator_dies(forks, _):
        forks.cluster.coordinator.__exit__()
        forks.cluster.start_coordinator()
        forks.cluster.servers[1][0].send(signal.SIGCONT)

    def both_die(forks, _):
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.coordinator.__exit__()
        forks.cluster.start_coordinator()
        forks.cluster.restart_server(1)

    def parent_is_cancelled(forks, run):
        forks.ask("cancel", run)
        forks.cluster.servers[1][0].send(signal.SIGCONT)

    def parent_goes_on(forks, run):
        forks.ask("set", run, "train.hold=null")
        forks.cluster.servers[1][0].send(signal.SIGCONT)
        forks.end(run)

    with Folder() as folder, Standing(folder) as forks:
        expected = forks.end(forks.submit(forks.spec(ADAM), f"eval.at=[{STANDS}]"))["weights"]
        forks.cluster.gate = None
        for death in (server_dies, coordinator_dies, both_die, parent_is_cancelled, parent_goes_on):
            run = forks.hold(ADAM)
            worker = forks.cluster.add_worker(options=("--label", f"fork={death.__name__}"))
            wait_for(lambda: len(forks.cluster.json("workers")) == 2, "its worker")
            forks.cluster.servers[1][0].send(signal.SIGSTOP)
            fork = forks.fork(f"{run}@{STANDS}", *APART, f"workers.require={{fork: {death.__name__}}}")
            wait_for(lambda: forks.restored(fork)[0], "the first server to load the fork")
            assert not forks.restored(fork)[1]
            death(forks, run)
            assert forks.end(fork)["weights"] == expected, death.__name__
            if forks.status(run)["state"] == "held":
                forks.ask("cancel", run)
            worker.__exit__()


def test_servers_that_die_take_both_back_to_the_checkpoint():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.stand(ADAM)
        fork = forks.load_from_memory(run)
        server, _ = forks.cluster.servers[1]
        server.__exit__()
        forks.cluster.restart_server(1)
        wait_for(lambda: forks.status(fork)["incarnation"] == forks.status(run)["incarnation"] == 1, "a roll-back of both")
        forks.of_forks.open()
        forks.gate.open()
        expected = forks.end(run)
        metrics = folder.file("fork.jsonl")
        forks.ask("watch", fork, "--metrics", metrics)
        steps = [(event.get("incarnation", 0), event["step"]) for event in read_metrics(metrics) if event["event"] == "step"]
        assert steps == [(1, step) for step in range(STANDS, STEPS)], steps
        assert forks.status(fork)["weights_sha256"] == expected["weights"]


def test_a_coordinator_that_dies_leaves_forks_in_memory_and_its_successor_knows_of_it():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.stand(ADAM)
        fork = forks.load_from_memory(run)
        waits = forks.fork(f"{run}@{STANDS}", *APART, "name=waits", "workers.require={late: 'yes'}")
        assert not any(forks.restored(waits))
        wait_for(lambda: forks.status(fork)["state"] == "running", "the fork's begin")
        placed = forks.placed()
        forks.cluster.coordinator.__exit__()
        forks.cluster.start_coordinator()
        wait_for(lambda: forks.placed() == placed, "the workers")  # each has a gate of its own
        forks.of_forks.open()
        ended = forks.end(fork)
        forks.cluster.add_worker(options=("--label", "late=yes"))
        wait_for(lambda: all(forks.restored(waits)), "the fork that waited")
        for (adopted, read, _), in forks.restored(waits):
            assert adopted > 0 and read == 0, forks.restored(waits)
        assert forks.end(waits)["weights"] == ended["weights"]
        forks.gate.open()
        assert_goes_on(ended, forks.end(run), STANDS)


def test_a_fork_of_a_version_that_its_parent_has_left_is_read_from_the_store():
    with Folder() as folder, Standing(folder) as forks:
        run = forks.stand(ADAM)
        forks.gate.stop_at(STANDS + 2)
        forks.stands(run, STANDS + 2)
        fork = forks.load_from_store(run)
        forks.gate.open()
        forks.of_forks.open()
        assert_goes_on(forks.end(fork), forks.end(run), STANDS)


if __name__ == "__main__":
    main(globals())
