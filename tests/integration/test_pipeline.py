"""Models cut into stages, each computed by an executor of its own: no bit of the weights or of what is evaluated changes,
wherever the cuts are and whoever dies."""
import glob
import json
import os
import random
import re
import signal

from frozen_thread import FrozenThread
from gate import Gate
from harness import Cluster, Folder, done_event, main, newest_step, read_metrics, simulated_gpus, wait_for, weir
from test_hang import Run as EndlessRun, losses, undisturbed
from test_recompute import STEPS, graph_specs
from test_recovery import Run

TRAIN = (f"  steps: {STEPS}\n  batch: 24\n  microbatches: 6\n  seed: 5\n"
         "  optimizer: {name: sgd, lr: 0.01, momentum: 0.9}\n")
random.seed(1)


def stages_loaded(out):
    """How many stages the workers say that they have loaded."""
    said = set()
    for log in glob.glob(os.path.join(out, "logs", "worker*.log")):
        with open(log) as file:
            said |= set(map(int, re.findall(r" worker loaded .* stages=(\d+) ", file.read())))
    return said


def result(metrics):
    """The hash of the weights, and what was evaluated."""
    evaluated = [(event["step"], event["loss"], event["accuracy"]) for event in read_metrics(metrics)
                 if event["event"] == "eval"]
    return done_event(metrics)["weights_sha256"], evaluated


class Runs:
    """Of one spec, which ends in a section of its own."""

    def __init__(self, folder, spec):
        self.folder, self.spec, self.n = folder, spec, 0
        with open(spec) as file:
            self.text = file.read()

    def write(self, **keys):
        said = ", ".join(f"{key}: {value}" for key, value in keys.items())
        return self.folder.file("staged.yaml", self.text + (f"workers: {{{said}}}\n" if keys else ""))

    def start(self, threads, keys, *options, status=0):
        self.n += 1
        self.out = self.folder.file(f"out-{self.n}")
        return weir("train", self.write(**keys), "--threads", threads, "--out", self.out, "--force", *options, status=status)

    def train(self, threads, workers=1, **keys):
        self.start(threads, keys, "--workers", workers)
        assert stages_loaded(self.out) == {keys.get("stages", 1)}, stages_loaded(self.out)
        return result(os.path.join(self.out, "metrics.jsonl"))

    def fit(self, threads, memory, keys, stages):
        """By a worker that finds that so many stages fit: the programs of all its teams do."""
        self.start(threads, keys, "--memory", memory)
        with open(glob.glob(os.path.join(self.out, "logs", "worker*.log"))[0]) as log:
            said = re.search(r" worker loaded .* executors=(\d+) stages=(\d+) program_bytes=(\d+) ", log.read()).groups()
        executors, loaded, program_bytes = map(int, said)
        assert loaded == stages and executors // stages * program_bytes <= memory, said
        return result(os.path.join(self.out, "metrics.jsonl"))

    def places(self):
        return json.loads(weir("inspect", self.spec, "--stages", 2, "--json").stdout)["pipeline"]["places"]


def compare(name, folder, spec):
    """Stages by themselves, beside another team, with activations computed again, and at cuts that are drawn."""
    runs = Runs(folder, spec)
    whole, places = runs.train(1), runs.places()
    most = min(4, len(places) + 1)
    drawn = sorted(random.sample(places, min(2, len(places))), key=places.index)
    for stages in range(2, most + 1):
        assert runs.train(stages, stages=stages) == whole, f"{name}: {stages} stages change it"
    assert runs.train(4, stages=2) == whole, f"{name}: two teams change it"
    assert runs.train(2, workers=2, stages=2, recompute="full") == whole, f"{name}: recomputing changes it"
    cut = runs.train(len(drawn) + 1, stages=len(drawn) + 1, cuts="[" + ", ".join(f'"{place}"' for place in drawn) + "]",
                     recompute="auto")
    assert cut == whole, f"{name}: cuts at {drawn} change it"
    print(f"# {name}: {len(places)} places; cut at {drawn}")


def test_a_residual_network_with_batch_norm_keeps_its_bits():
    with Folder() as folder:
        model = folder.model("resnet18", "--input", "1,28,28", "--width", "8", "--depth", "2,2,1,1", "--classes", "10")
        compare("resnet18", folder, folder.spec(model, train=TRAIN))


def test_lenet_with_batch_norm_and_dropout_keeps_its_bits():
    with Folder() as folder:
        model = folder.model("lenet", "--channels", "8,16", "--hidden", "64", "--batch-norm", "--dropout", "0.25")
        compare("lenet", folder, folder.spec(model, train=TRAIN))


def test_a_vision_transformer_keeps_its_bits():
    with Folder() as folder:
        model = folder.model("vit", "--input", "1,28,28", "--patch", "7", "--width", "32", "--depth", "3", "--heads", "2",
                             "--classes", "10")
        compare("vit", folder, folder.spec(model, train=TRAIN))


def test_skips_tied_weights_and_recurrence_keep_their_bits():
    with Folder() as folder:
        for name, spec in graph_specs(folder):
            compare(name, folder, spec)


def test_workers_in_stages_die_freeze_and_join_without_a_bit_lost():
    """Beside each other."""
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        first, second = (cluster.add_worker(options=("--threads", "2")) for _ in range(2))
        with Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
            run.wait_step(10)
            first.send(signal.SIGKILL)
            run.go(30)
            run.wait_step(20)
            third = cluster.add_worker(options=("--threads", "4"))
            run.crawl(lambda: " joined run=" in third.output(), "another worker's joining")
            second.send(signal.SIGSTOP)
            run.crawl(lambda: len(cluster.json("workers")) == 1, "the frozen worker's being missed")
            run.wait_step(newest_step(run.metrics))
            second.send(signal.SIGCONT)
            run.end()
            assert run.incarnation() == 0, "nothing was rolled back"


def test_what_a_stage_that_hangs_owes_is_computed_by_another_worker_without_a_bit_lost():
    """The run is endless, so that the thread can be stopped in mid-run however fast the run is."""
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        workers = [cluster.add_worker(options=("--threads", "2")) for _ in range(2)]
        cluster.gate.stop_at(1)
        with EndlessRun(folder, cluster, "workers: {stages: 2}\n") as run:
            run.wait_step(1)
            cluster.gate.crawl(lambda: [row["speed"] > 0 for row in cluster.json("workers")] == [True, True],
                               "the speed at which each usually computes")
            cluster.gate.open()
            with FrozenThread(workers[0].child.pid, "executor 1"):  # its highest stage
                run.wait_step(newest_step(run.metrics) + 30)
            steps = newest_step(run.metrics) + 20
            run.wait_step(steps)
            weir("cancel", "small", "--coordinator", cluster.address)
            assert run.client.wait() == 1, run.client.output()[-2000:]
            assert losses(run.metrics, steps) == undisturbed(folder, steps)


def refused(folder, model, keys, words, train=TRAIN, options=()):
    """In one line, which names the spec, before anything is sent."""
    spec = folder.spec(model, name="refused.yaml", train=train + f"workers: {keys}\n")
    for command in ("train", "submit"):
        done = weir(command, spec, *(options if command == "train" else ()), status=2)
        lines = [line for line in done.stderr.splitlines() if line.startswith("weir: ")]
        assert len(lines) == 1 and "refused.yaml:" in lines[0], done.stderr
        for word in words:
            assert word in lines[0], f"'{word}' is not in: {lines[0]}"


def test_stages_and_cuts_that_cannot_be_are_refused_in_one_line():
    with Folder() as folder:
        model = folder.model("resnet18", "--input", "1,28,28", "--width", "8", "--depth", "2,2,1,1", "--classes", "10")
        small = folder.model("mlp", "--input", "1,28,28", "--hidden", "8")
        refused(folder, model, "{stages: 0}", ["workers.stages: '0' is neither a whole number from 1", "nor 'auto'"])
        refused(folder, model, "{stages: 65}", ["workers.stages: must be from 1 to 64, or auto"])
        refused(folder, model, "{stages: two}", ["workers.stages", "'two'"])
        refused(folder, model, "{stages: auto, cuts: [layer2]}", ["workers.cuts: 1 of them", "workers.stages says auto"])
        refused(folder, model, "{stages: auto}", ["workers.stages", "train.collective", "shm"], TRAIN + "  collective: shm\n")
        refused(folder, model, "{stages: 2, cuts: [layer9.0]}", ["workers.cuts: ", "'layer9.0'", "did you mean 'layer1.0'?"])
        refused(folder, model, "{stages: 3, cuts: [layer2]}", ["workers.cuts: 1 of them", "workers.stages says 3"])
        refused(folder, model, "{cuts: [layer2]}", ["workers.cuts: 1 of them", "workers.stages says 1"])
        refused(folder, model, "{stages: 3, cuts: [layer2, layer2.0]}", ["workers.cuts: ", "one place"])
        refused(folder, small, "{stages: 40}", ["workers.stages: 40 stages need 39 cuts", "there can be"])
        refused(folder, model, "{stages: 2}", ["workers.stages", "train.collective", "shm"], TRAIN + "  collective: shm\n")


def test_stages_that_the_workers_of_a_private_cluster_cannot_form_are_refused():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16x4")
        spec = folder.spec(model, train=TRAIN + "workers: {stages: 3}\n")
        done = weir("train", spec, "--threads", 2, "--out", folder.file("out"), status=2)
        assert "workers.stages: 3 stages take as many executors, of one worker or of several" in done.stderr, done.stderr
        assert "there is 1 worker of at most 2 (--workers, --threads)" in done.stderr, done.stderr


def test_a_worker_tells_what_each_stage_takes_and_their_sum():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16x4")
        spec = folder.spec(model, train=TRAIN + "workers: {stages: 3, recompute: full}\n")
        weir("train", spec, "--threads", 6, "--out", folder.file("out"))
        with open(folder.file("out/logs/worker-1.log")) as file:
            log = file.read()
        numbers = r"program_bytes=(\d+) unreplayed_bytes=(\d+) steps=(\d+) replays=(\d+)"
        told = [list(map(int, found)) for found in re.findall(rf" worker stage .* stage=(\d+) in_flight=(\d+) {numbers}", log)]
        sums = [list(map(int, found)) for found in re.findall(rf" worker loaded .* executors=6 stages=3 {numbers}", log)]
        assert [stage[:2] for stage in told] == [[0, 3], [1, 2], [2, 1]], told
        assert all(min(stage[2:5]) > 0 for stage in told), told
        assert sums == [[sum(column) for column in zip(*(stage[2:] for stage in told))]], (told, sums)


def test_a_timeline_shows_what_stages_compute():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16x4")
        spec = folder.spec(model, train=TRAIN + "workers: {stages: 2}\n")
        path = folder.file("trace.json")
        weir("train", spec, "--threads", 2, "--trace", path, "--out", folder.file("out"))
        with open(path) as file:
            events = json.load(file)
        threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        spans = {(threads[event["tid"]], event["name"]) for event in events if event.get("cat") == "train"}
        assert spans == {("executor 0", "microbatch, stage 0 forward"), ("executor 0", "microbatch, stage 0 backward"),
                         ("executor 1", "microbatch, stage 1")}, spans


LEAST = re.compile(r"workers.stages: auto: of 1 to (\d) stages none fits this worker: (\d) needs? least, (\d+) bytes for the "
                   r"programs of all executors, which may take \d+ \(--memory\); smaller microbatches")


def test_auto_takes_as_few_stages_as_fit_and_keeps_every_bit():
    """One byte less than the stages take that take least is refused, and said to be."""
    with Folder() as folder:
        model = folder.model("resnet18", "--input", "1,28,28", "--width", "8", "--depth", "2,2,1,1", "--classes", "10")
        runs = Runs(folder, folder.spec(model, train=TRAIN))
        whole = runs.train(1)
        for recompute in "none", "auto":
            keys = {"stages": "auto", "recompute": recompute}
            assert runs.fit(4, 4 << 30, keys, 1) == whole, "the model is not to be cut"
            done = runs.start(4, keys, "--memory", 1, status=2)
            most, n, least = map(int, LEAST.search(done.stderr).groups())
            assert done.stderr.count("\n") == 1 and most == 4 and n > 1, done.stderr
            assert runs.fit(4, least, keys, n) == whole, f"{n} stages change it"
            assert f"{least} bytes" in runs.start(4, keys, "--memory", least - 1, status=2).stderr
            assert ("workers.recompute" in done.stderr) == (recompute == "none"), done.stderr


def test_workers_cut_a_model_each_as_its_memory_asks():
    """Beside each other: one that has room for the whole of it, and one that has not."""
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        model = folder.model("resnet18", "--input", "1,28,28", "--width", "8", "--depth", "2,2,1,1", "--classes", "10")
        runs = Runs(folder, folder.spec(model, train=TRAIN))
        keys = {"stages": "auto", "min": 2}
        least = int(LEAST.search(runs.start(2, {"stages": "auto"}, "--memory", 1, status=2).stderr).group(3))
        workers = [cluster.add_worker(options=("--threads", "2", "--memory", size)) for size in ("4GB", str(least))]
        metrics = folder.file("metrics.jsonl")
        weir("submit", runs.write(**keys), "--follow", "--metrics", metrics, "--coordinator", cluster.address)
        loaded = [re.search(r" worker loaded .* stages=(\d+) ", worker.output()).group(1) for worker in workers]
        assert loaded == ["1", "2"], loaded
        assert result(metrics) == runs.train(1)


class GpuRuns(Runs):
    """On simulated GPUs, one stage each."""

    def __init__(self, folder, spec, devices):
        super().__init__(folder, spec)
        self.devices, self.settings = devices, {}

    def start(self, devices, keys, *options, status=0):
        self.n += 1
        self.out = self.folder.file(f"out-{self.n}")
        environment = simulated_gpus(devices=self.devices, **self.settings)
        return weir("train", self.write(**keys), "--device", "cuda:" + ",".join(map(str, range(devices))), "--out", self.out,
                    "--force", *options, status=status, env=environment)

    def told(self):
        """(executors, stages, bytes of the programs) that the worker has loaded"""
        with open(glob.glob(os.path.join(self.out, "logs", "worker*.log"))[0]) as log:
            said = re.search(r" worker loaded .* executors=(\d+) stages=(\d+) program_bytes=(\d+) ", log.read())
        return tuple(map(int, said.groups()))


def gpu_spec(folder, model, precision):
    with open(folder.small_spec(model, microbatches=4, steps=2, eval_steps=2)) as file:
        return folder.file("gpu.yaml", file.read().replace("  seed: 3\n", f"  seed: 3\n  precision: {precision}\n"))


def gpu_models(folder):
    """Small parameters of several stages share a block."""
    yield "lenet", folder.model("lenet", "--channels", "8,16", "--hidden", "64", "--batch-norm")
    yield "vit", folder.model("vit", "--input", "1,28,28", "--patch", "7", "--width", "32", "--depth", "2", "--heads", "2",
                              "--classes", "10")


LEAST_ON_GPUS = re.compile(r"workers.stages: auto: of 1 to (\d) stages none fits this worker: (\d) needs? least, (\d+) bytes "
                           r"for the programs of the largest stage on a GPU, which may take (\d+) \(--memory\); smaller")


def test_stages_on_simulated_gpus_keep_the_bits_of_one():
    """A number of stages, beside another team, and as few as fit what each GPU may give."""
    with Folder() as folder:
        folder.small_data(96, 30)
        for name, model in gpu_models(folder):
            for precision in "fp32", "bf16":
                runs = GpuRuns(folder, gpu_spec(folder, model, precision), devices=4)
                whole = runs.train(1)
                for stages, recompute in (1, "full"), (2, "none"), (2, "full"), (3, "none"), (3, "full"):
                    same = runs.train(stages, stages=stages, recompute=recompute)
                    assert same == whole, f"{name} in {precision}: {stages} stages change it, recompute {recompute}"
                assert runs.train(4, stages=2) == whole, f"{name} in {precision}: two teams change it"
                keys = {"stages": "auto", "recompute": "full"}
                done = runs.start(3, keys, "--memory", 1, status=2)
                most, n, least, _ = map(int, LEAST_ON_GPUS.search(done.stderr).groups())
                assert done.stderr.count("\n") == 1 and most == 3, done.stderr
                runs.start(3, keys, "--memory", least)
                assert runs.told()[1] == n, runs.told()
                assert result(os.path.join(runs.out, "metrics.jsonl")) == whole, f"{name}: {n} stages change it"


def test_auto_takes_as_few_stages_as_have_room_on_each_gpu():
    """Of memory that is too little for the whole model, and that --memory says nothing of."""
    with Folder() as folder:
        folder.small_data(96, 30)
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "200x6")
        runs = GpuRuns(folder, gpu_spec(folder, model, "fp32"), devices=3)
        whole = runs.train(1)
        keys = {"stages": "auto"}
        n, least = map(int, LEAST_ON_GPUS.search(runs.start(3, keys, "--memory", 1, status=2).stderr).groups()[1:3])
        runs.settings = {"memory": least}  # less is left than that
        done = runs.start(3, keys, status=2)
        assert int(LEAST_ON_GPUS.search(done.stderr).group(4)) < least, done.stderr
        runs.settings = {"memory": least * 3 // 2}  # and sums of gradients, and what is kept free
        runs.start(3, keys)
        assert 1 < runs.told()[1] <= n and result(os.path.join(runs.out, "metrics.jsonl")) == whole, runs.told()
        runs.settings = {"memory": 1 << 30}
        runs.start(3, keys)
        assert runs.told()[1] == 1, runs.told()


def test_fewer_gpus_than_stages_and_cuts_within_what_a_gpu_does_at_once_are_refused():
    with Folder() as folder:
        folder.small_data(96, 30)
        _, model = next(gpu_models(folder))
        runs = GpuRuns(folder, gpu_spec(folder, model, "fp32"), devices=2)
        done = runs.start(2, {"stages": 3}, status=2)
        assert "workers.stages: 3 stages take as many executors" in done.stderr, done.stderr
        done = runs.start(2, {"stages": 2, "cuts": "[conv1.relu]"}, status=2)
        assert "workers.cuts: the model cannot be cut at 'conv1.relu' here" in done.stderr, done.stderr


def table(text, heading):
    """The rows of the table whose headings begin with this one, and have a word STAGE."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(heading) and " STAGE " in line)
    return [line.split() for line in lines[first + 1:]]


def test_status_and_workers_show_what_stages_wait_beside_the_formula():
    """Two stages and a step's six microbatches: a seventh of the time, if stages took alike. A worker alone has none."""
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        cluster.add_worker(options=("--threads", "2"))
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16x4")
        spec = folder.spec(model, train=TRAIN.replace(f"steps: {STEPS}", "steps: 40") + "workers: {stages: 2}\n")
        cluster.gate.stop_at(20)
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()

        def staged():
            rows = cluster.json("workers")
            return [row for row in rows if row["stages"] and row["bubble"] and abs(row["bubble"] - 1 / 7) < 1e-9]
        row = wait_for(staged, "a heartbeat of a whole step")[0]
        assert row["teams"] == 1 and len(row["stages"]) == 2, row
        assert all(0 <= stage["idle"] < 1 and stage["program_bytes"] > 0 for stage in row["stages"]), row
        assert min(stage["idle"] for stage in row["stages"]) > 0, "no stage computes all the time"
        status = cluster.json("status", run)
        assert [worker["id"] for worker in status["staged_workers"]] == [row["id"]], status["staged_workers"]
        assert len(status["staged_workers"][0]["stages"]) == 2, status["staged_workers"]
        for command in ("workers",), ("status", run):
            rows = table(weir(*command, "--coordinator", cluster.address).stdout, "WORKER")
            assert [cells[:3] for cells in rows] == [[row["id"], "1", "0"], [row["id"], "1", "1"]], rows
            assert all("14.29" in cells for cells in rows), rows
        assert "staged_workers" in cluster.json("runs")[0] and not cluster.json("runs")[0]["staged_workers"]
        cluster.gate.open()
        wait_for(lambda: cluster.json("status", run)["state"] == "done", "the end of the run")
        assert cluster.json("status", run)["staged_workers"] == [] and not cluster.json("workers")[0]["stages"]


if __name__ == "__main__":
    main(globals())
