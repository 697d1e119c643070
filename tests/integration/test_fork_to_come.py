"""weir fork RUN@STEP of a step that the run has yet to come to: the fork waits for it, and the run stands there until the fork
has it. Whatever dies, both end in the bits that they have otherwise."""
import signal

from harness import Folder, Process, main, program, wait_for
from test_fork import ADAM, COSINE, SGD, STEPS, Forks, after, assert_goes_on

EARLY, PIN = 2, 13  # where runs stand when they are forked; no step at which checkpoints are made


class Waiting(Forks):
    """With a run that stands at EARLY until the gate is opened."""

    def begin(self, *spec):
        self.gate.stop_at(EARLY)
        return self.submit(self.spec(*spec))

    def restored(self, fork):
        """Blocks from memory, and read, of each time that a server loaded the base of the fork."""
        lines = [line for server, _ in self.cluster.servers for line in server.output().splitlines()
                 if f" run_restored run={fork} " in line]
        return [[int(line.split(f"{key}=")[1].split()[0]) for key in ("adopted", "read")] for line in lines]


def test_a_fork_of_a_step_to_come_waits_and_goes_on_from_memory():
    with Folder() as folder, Waiting(folder) as forks:
        for optimizer in (ADAM, SGD):
            run = forks.begin(optimizer, COSINE, optimizer[7:10])
            done = forks.ask("fork", f"{run}@{PIN}")
            fork, halved = done.stdout.strip(), forks.fork(f"{run}@{PIN}", "train.optimizer.lr=0.001")
            last = forks.fork(f"{run}@{STEPS}", f"train.steps={2 * STEPS}")
            assert done.stderr == f"weir: note: it waits until {run} has come to step {PIN}\n"
            status = wait_for(lambda: (found := forks.status(fork))["message"] and found, "the reason why it waits")
            assert (status["state"], status["message"]) == ("queued", f"waiting for step {PIN} of {run}"), status
            assert f"state        queued: waiting for step {PIN} of {run}\n" in forks.ask("status", fork).stdout
            forks.gate.open()
            expected = forks.end(run)
            assert_goes_on(forks.end(fork), expected, PIN)
            assert PIN in forks.steps(run)
            assert forks.restored(fork) and all(adopted > 0 == read for adopted, read in forks.restored(fork))
            by_hand = forks.fork(f"{run}@{PIN}", "train.optimizer.lr=0.001")
            assert forks.end(halved)["weights"] == forks.end(by_hand)["weights"] != expected["weights"]
            assert forks.end(last)["weights"] == forks.end(forks.fork(run, f"train.steps={2 * STEPS}"))["weights"]


def test_forks_at_several_steps_and_forks_of_forks_wait_beside_each_other():
    with Folder() as folder, Waiting(folder, workers=2) as forks:
        run = forks.begin(ADAM)
        chain = [run]
        for step in (PIN, 31, 31, 47):
            chain.append(forks.fork(f"{chain[-1]}@{step}"))
        beside = [forks.fork(f"{run}@{step}") for step in (47, 8, 31)]
        forks.gate.open()
        expected = forks.end(run)
        for fork, step in zip(chain[1:] + beside, (PIN, 31, 31, 47, 47, 8, 31)):
            assert_goes_on(forks.end(fork), expected, step)


def test_whatever_dies_while_a_fork_waits_or_is_loaded_both_end_in_the_same_bits():
    """Before the run comes to the step, and where it stands for the fork, which cannot be written while the store is away."""
    def coordinator(forks):
        forks.cluster.coordinator.send(signal.SIGKILL)
        forks.cluster.coordinator.__exit__()
        forks.cluster.start_coordinator()

    def server(forks):
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.restart_server(1)

    def worker(forks):
        forks.cluster.workers[0].__exit__()
        forks.cluster.add_worker()
    for kill in (coordinator, server, worker):
        for at in (EARLY, PIN - 1):
            with Folder() as folder, Waiting(folder) as forks:
                run = forks.begin(ADAM)
                fork = forks.fork(f"{run}@{PIN}")
                forks.gate.stop_at(at)
                wait_for(lambda: forks.status(run)["step"] > at, "the step before")
                kill(forks)
                forks.gate.open()
                expected = forks.end(run)
                ended = forks.end(fork)
                assert ended["weights"] == expected["weights"] == forks.status(fork)["weights_sha256"], (kill, at)
                assert after(ended["steps"], PIN) == ended["steps"]


def test_a_run_that_ends_or_is_rolled_back_before_says_so_or_comes_there_again():
    with Folder() as folder, Waiting(folder) as forks:
        run = forks.begin(ADAM)
        forks.refused(f"run '{run}' has {STEPS} steps: there is no step {STEPS + 1}", "fork", f"{run}@{STEPS + 1}")
        forks.refused(f"would end with step {STEPS}, and begins at {STEPS}", "fork", f"{run}@{STEPS}")
        fork = forks.fork(f"{run}@{PIN}")
        forks.stands(run, EARLY)
        forks.ask("cancel", run)
        status = wait_for(lambda: (found := forks.status(fork))["state"] == "failed" and found, "its failure")
        assert f"run '{run}' is cancelled at step {EARLY + 1}, and has not made step {PIN}" in status["message"], status
        forks.ask("resume", run)  # from the beginning: it had no checkpoint
        forks.ask("resume", fork)
        waits = wait_for(lambda: (found := forks.status(fork))["message"] and found, "the reason why it waits")
        assert waits["state"] == "queued" and f"waiting for step {PIN} of {run}" in waits["message"], waits
        held = forks.fork(f"{run}@{PIN + 1}", f"train.hold={STEPS - 1}", f"eval.at=[{STEPS - 1}]")
        forks.gate.open()
        expected = forks.end(run)
        assert_goes_on(forks.end(fork), expected, PIN)
        wait_for(lambda: forks.status(held)["state"] == "held", "the fork to be held")
        late = forks.fork(f"{held}@{STEPS}", "train.steps=80")
        message = wait_for(lambda: forks.status(late)["message"], "the reason why it waits")
        assert message == (f"waiting for step {STEPS} of {held}, which is held at step {STEPS - 1} ('weir set {held} "
                           f"train.hold={STEPS}')"), message
        forks.ask("set", held, "train.hold=null")
        assert forks.end(held)["weights"] == expected["weights"]
        assert forks.end(late)["weights"] == forks.end(forks.fork(run, "train.steps=80"))["weights"]


def test_a_fork_may_be_asked_for_before_the_run_has_begun():
    with Folder() as folder, Waiting(folder, workers=0) as forks:
        run = forks.begin(SGD)
        with Process(program("weir"), "fork", f"{run}@{PIN}", "--coordinator", forks.cluster.address) as asked:
            forks.cluster.add_worker()
            assert asked.wait() == 0, asked.output()
            fork = asked.output().splitlines()[-1]
        forks.gate.open()
        assert_goes_on(forks.end(fork), forks.end(run), PIN)


if __name__ == "__main__":
    main(globals())
