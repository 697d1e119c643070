"""Mode ssp: the gradients of a step are taken at the version so many steps before. The weights are the same bits whoever dies and
joins, and after a roll-back to any version; each sample counts once an epoch. test_modes.py has all clusters."""
import re
import signal

import ledger
import scraping
from gate import Gate
from harness import Cluster, Folder, Process, assert_recovered, kept, main, outcome, program, read_metrics, wait_for, weir
from test_bad_input import refused
from test_fork import ADAM, Forks, assert_goes_on
from test_fork_memory import STANDS, Standing
from test_parity import read_tensors

# The push of a step brings the version that the next is computed from. So where a gate stops a run, a version to be evaluated
# must lie further before it than the lag: workers have no newer one there.
STEPS, EVERY = 24, 8
CHECKPOINT = 12  # the version of the first one, which is made while the run stands still
LAGS = (1, 2, 4)
# Groups cut the model into blocks for three servers; the optimizer keeps values, and its update takes sums over all blocks.
OPTIMIZER = "{name: nadam, lr: 0.004, momentum_decay: 0.1, groups: [{params: ['fc2*'], weight_decay: 0.01}]}"
MODEL = ("mlp", "--hidden", "28,16", "--batch-norm", "--dropout", "0.25", "--seed", "3")


def mode(lag):
    return "" if lag is None else f"  mode: ssp\n  staleness: {lag}\n"


def name_of(lag):
    return "sync" if lag is None else f"ssp-{lag}"


def write_spec(folder, lag, steps=STEPS):
    """None: of mode sync."""
    folder.small_data(480, 24)
    path = folder.small_spec(folder.model(*MODEL), 4, steps, EVERY)
    with open(path) as file:
        text = file.read().replace("  optimizer: {name: sgd, lr: 0.05, momentum: 0.9}\n",
                                   f"  clip_norm: 1\n  optimizer: {OPTIMIZER}\n{mode(lag)}")
    assert OPTIMIZER in text
    text = text.replace("name: small\n", f"name: {name_of(lag)}\n")
    return folder.file(f"{name_of(lag)}.yaml", text + f"checkpoint: {{every_steps: {CHECKPOINT}, keep: 3}}\n")


def undisturbed(lag, steps=STEPS):
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder, lag, steps), "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept(f"ssp-{lag}-{steps}", train)


def test_a_lag_of_no_step_is_sync_and_a_lag_of_one_is_not():
    assert undisturbed(0) == undisturbed(None)
    assert len({undisturbed(lag)["weights"] for lag in (0, *LAGS)}) == 1 + len(LAGS)


class Run:
    """A run on a cluster, followed by a client that stays."""

    def __init__(self, folder, cluster, spec, *settings):
        self.cluster, self.metrics = cluster, folder.file("metrics.jsonl")
        with open(spec) as file:
            self.name = re.search(r"^name: (\S+)$", file.read(), re.MULTILINE).group(1)
        self.client = Process(program("weir"), "submit", spec, *settings, "--follow", "--metrics", self.metrics,
                              "--coordinator", cluster.address)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.__exit__()

    def status(self):
        return self.cluster.json("status", self.name)

    def wait_step(self, step, incarnation=0):
        def is_there():
            assert self.client.child.poll() is None, self.client.output()[-2000:]
            return any(event["event"] == "step" and event["step"] >= step and event.get("incarnation", 0) >= incarnation
                       for event in read_metrics(self.metrics))
        wait_for(is_there, f"step {step} of incarnation {incarnation}")

    def wait_checkpoint(self, step):
        """Where the run stands."""
        self.wait_step(step - 1)
        wait_for(lambda: self.status()["checkpoint_step"] == step, f"the checkpoint of step {step}")

    def end(self):
        self.cluster.gate.open()
        assert self.client.wait() == 0, self.client.output()[-3000:]


def kill(*processes):
    for process in processes:
        process.send(signal.SIGKILL)
    for process in processes:
        process.wait()


def test_a_roll_back_within_the_lag_of_a_checkpoint_changes_no_bit():
    """The run stands `ahead` steps behind the checkpoint when its servers die: steps after it are computed from versions
    before it."""
    for lag, ahead in ((1, 0), (2, 1), (4, 2)):
        with Folder() as folder, Cluster(folder, servers=2, workers=2, is_patient=True, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(CHECKPOINT - 1)
            with Run(folder, cluster, write_spec(folder, lag)) as run:
                run.wait_checkpoint(CHECKPOINT)
                cluster.gate.stop_at(CHECKPOINT - 1 + ahead)
                run.wait_step(CHECKPOINT - 1 + ahead)
                kill(*[server for server, _ in cluster.servers])
                cluster.restart_server(0)
                cluster.restart_server(1)
                run.end()
                again = [event["step"] for event in read_metrics(run.metrics)
                         if event["event"] == "step" and event.get("incarnation", 0) == 1]
                assert again[0] == CHECKPOINT, again
            assert_recovered(run.metrics, undisturbed(lag))


def test_a_server_that_dies_while_as_many_steps_are_open_as_can_be_changes_no_bit():
    """A worker that is frozen keeps all steps open that the other one has pushed its parts of. Both, and one that joins, go on
    where the servers begin again; what the frozen one sends then is of before."""
    lag = 4
    with Folder() as folder, Cluster(folder, servers=2, workers=1, gate=Gate(folder)) as cluster:
        stands, ahead = CHECKPOINT + 2, cluster.add_worker(options=("--http", "127.0.0.1:0"))
        cluster.all_join()
        cluster.gate.stop_at(stands)
        with Run(folder, cluster, write_spec(folder, lag)) as run:
            run.wait_step(stands)
            frozen, address = cluster.workers[0], scraping.http_address(ahead)

            def computed():
                return scraping.total(scraping.scrape(address), "weir_worker_microbatches_total")
            shares = wait_for(lambda: (found := {worker["pid"]: worker["microbatches"] for worker in cluster.json("workers")})
                              and all(found.values()) and found, "both workers to have a share")
            frozen.send(signal.SIGSTOP)
            before = computed()
            cluster.gate.stop_at(stands + lag + 1)
            wait_for(lambda: computed() >= before + shares[ahead.child.pid] * lag, "steps to be open")
            kill(cluster.servers[0][0])
            cluster.restart_server(0)
            cluster.add_worker()
            frozen.send(signal.SIGCONT)
            run.end()
        assert_recovered(run.metrics, undisturbed(lag))


def test_kills_of_everything_and_joins_change_no_bit():
    lag, steps = 2, 40
    with Folder() as folder, Cluster(folder, servers=2, workers=2, gate=Gate(folder)) as cluster:
        cluster.gate.stop_at(10)
        with Run(folder, cluster, write_spec(folder, lag, steps)) as run:
            run.wait_step(10)
            kill(cluster.workers[0])
            cluster.add_worker()
            cluster.gate.stop_at(18)
            run.wait_step(18)
            kill(cluster.servers[1][0])  # the one that remains takes its blocks
            cluster.gate.stop_at(26)
            run.wait_step(22, incarnation=1)
            cluster.add_worker()
            kill(cluster.coordinator)
            cluster.start_coordinator()
            run.wait_step(26)
            kill(cluster.servers[0][0], cluster.coordinator, *cluster.workers)
            cluster.start_coordinator()
            cluster.restart_server(0)
            cluster.add_worker()
            run.end()
        assert_recovered(run.metrics, undisturbed(lag, steps))


def test_every_sample_counts_once_an_epoch_through_kills():
    rows, epochs, lag = 256, 6, 3
    with Folder() as folder, Cluster(folder, servers=2, workers=2, gate=Gate(folder)) as cluster:
        spec = ledger.spec(folder, rows, epochs, 32, 4, mode(lag), "checkpoint: {every_steps: 7}\n")
        cluster.gate.stop_at(6)
        with Run(folder, cluster, spec) as run:
            run.wait_checkpoint(7)
            cluster.gate.stop_at(15)
            run.wait_step(15)
            kill(cluster.workers[1], cluster.servers[0][0])
            cluster.add_worker()
            cluster.gate.stop_at(30)
            run.wait_step(30, incarnation=1)
            kill(cluster.workers[0])
            run.end()
        weir("export", run.name, "-o", folder.file("ledger.safetensors"), "--coordinator", cluster.address)
        counted = read_tensors(folder.file("ledger.safetensors"))
        assert {name: set(counts) for name, counts in counted.items()} == {name: {float(epochs)} for name in ledger.TABLES}


def test_forks_and_holds_carry_the_versions_before_theirs():
    for lag in (1, 4):
        with Folder() as folder, Standing(folder) as forks:
            run = forks.stand(ADAM, mode(lag))
            from_memory = forks.load_from_memory(run)
            again = forks.load_from_memory(from_memory, "name=again")
            forks.gate.open()
            forks.of_forks.open()
            expected = forks.end(run)
            assert_goes_on(forks.end(from_memory), expected, STANDS)
            assert_goes_on(forks.end(again), expected, STANDS)
            from_store = forks.fork(f"{run}@{STANDS}")
            assert_goes_on(forks.end(from_store), expected, STANDS)
            (adopted, read, _), *_ = forks.restored(from_store)[0]
            assert adopted == 0 < read
            held = forks.hold(ADAM, mode(lag))
            forks.ask("set", held, "train.hold=null")
            assert forks.end(held)["weights"] == expected["weights"]


def test_what_cannot_be_is_refused_by_name():
    with Folder() as folder, Forks(folder) as forks:
        def refuse(more, *words, tail=""):
            refused("submit", forks.spec(train=more, tail=tail), "--coordinator", forks.cluster.address, words=words)
        refuse("  mode: ssp\n", "train.staleness", "is missing", "from 0 to 16")
        refuse(mode(17), "train.staleness", "from 0 to 16")
        refuse(mode(-1), "train.staleness", "-1")
        refuse("  staleness: 1\n", "train.staleness", "train.mode ssp", "train.mode is sync")
        refuse(mode(1) + "  collective: shm\n", "train.mode", "ssp", "train.collective", "shm")
        refuse(mode(1), "train.mode", "ssp", "workers.stages", tail="workers: {stages: 2}\n")
        run, step = forks.parent(forks.spec(train=mode(1)))
        for setting in ("train.staleness=2", "train.mode=sync", "train.collective=shm"):
            forks.refused(setting.split("=", maxsplit=1)[0], "fork", f"{run}@{step}", setting)


def test_what_a_lag_takes_is_said():
    with Folder() as folder:
        spec = write_spec(folder, 2)
        shown = weir("inspect", spec).stdout
        line = next(line for line in shown.splitlines() if line.startswith("mode "))
        assert "ssp, staleness 2: at most 6 versions" in line and "of 3 steps" in line and "4 versions on each worker" in line
        note = "weir: note: train.mode ssp: gradients that are late"
        with Cluster(folder) as cluster:
            assert note in weir("submit", spec, "--follow", "--coordinator", cluster.address).stderr
            assert line.split()[1:] == next(line.split()[1:] for line in weir(
                "status", "ssp-2", "--coordinator", cluster.address).stdout.splitlines() if line.startswith("mode "))
            assert note not in weir("submit", write_spec(folder, 0), "--coordinator", cluster.address).stderr


if __name__ == "__main__":
    main(globals())
