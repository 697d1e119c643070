"""GPU workers that compute some of a model's stages each, on simulated devices: no bit of the weights or of what is evaluated
changes, however the stages lie on GPUs and workers, and whichever worker dies."""
import os
import random
import signal
import struct

from gate import Gate
from harness import Cluster, Folder, Process, assert_recovered, main, outcome, program, simulated_gpus
from test_pipeline import GpuRuns, gpu_spec
from test_recovery import Run
from test_teams import held, logs_of

random.seed(2)


def norms_spec(folder, precision):
    """Batch norm, whose statistics are in different stages, and dropout; the last batch that is evaluated is a short one."""
    folder.small_data(96, 30)
    model = folder.model("lenet", "--channels", "8,16", "--hidden", "200", "--batch-norm", "--dropout", "0.25")
    return gpu_spec(folder, model, precision)


def tied_spec(folder, precision):
    """The first stage and the last read the embedding; small parameters of several stages share a block."""
    for name, tokens in ("train", 400), ("eval", 80):
        folder.file(f"{name}.tokens", struct.pack(f"<{tokens}H", *(random.randrange(40) for _ in range(tokens))))
    model = folder.model("gpt", "--vocabulary", 40, "--context", 8, "--width", 32, "--depth", 2, "--heads", 2)
    return folder.file("tied.yaml", f"""name: gpt
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {{format: tokens, file: train.tokens, dtype: u16, context: 8}}
  eval: {{format: tokens, file: eval.tokens, dtype: u16, context: 8}}
train:
  steps: 3
  batch: 8
  microbatches: 4
  seed: 3
  precision: {precision}
  optimizer: {{name: adam, lr: 0.01}}
eval: {{every_steps: 3}}
""")


# GPUs of each worker, workers, and the keys of the spec.
LAYOUTS = ((2, 1, {"stages": 2}), (1, 2, {"stages": 2}), (1, 3, {"stages": 3, "recompute": "full"}),
           (2, 2, {"stages": 3}), (1, 4, {"stages": 2}))


def compare(name, precision, spec, is_split):
    """In one process and across workers: one stage or two on each, the last by itself, two teams. is_split: some blocks of
    its weights are those of one stage."""
    with Folder() as folder:
        runs = GpuRuns(folder, spec(folder, precision), devices=4)
        whole = runs.train(1)
        assert whole[1], "nothing was evaluated"
        for devices, workers, keys in LAYOUTS:
            same = runs.train(devices * workers, workers=workers, min=workers, **keys)  # it begins when all have loaded it
            assert same == whole, f"{name} in {precision}: {workers} workers of {devices} GPUs, {keys}, change it"
            loaded = [held(log) for log in logs_of(runs)]
            assert {first for first, _, _ in loaded} == set(range(0, keys["stages"], devices)), loaded
            are_fewer = any(some < blocks for _, some, blocks in loaded)
            assert are_fewer == (is_split and keys["stages"] > devices), f"what workers hold: {loaded}"


def test_stages_of_several_gpu_workers_keep_every_bit_of_batch_norm():
    for precision in "fp32", "bf16":
        compare("norms", precision, norms_spec, is_split=True)


def test_stages_of_several_gpu_workers_keep_every_bit_of_tied_weights():
    for precision in "fp32", "bf16":
        compare("tied", precision, tied_spec, is_split=False)


class GpuRun(Run):
    """Of a spec of its own."""

    def __init__(self, folder, cluster, spec, stop):
        self.cluster, self.metrics = cluster, folder.file("metrics.jsonl")
        self.go(stop)
        self.client = Process(program("weir"), "submit", spec, "--follow", "--metrics", self.metrics, "--coordinator",
                              cluster.address)


def add_gpu_worker(cluster, device):
    return cluster.add_worker(options=("--device", f"cuda:{device}"), env=simulated_gpus(devices=3))


def test_gpu_workers_of_a_team_die_without_a_bit_lost():
    """Of each stage one; a worker to spare takes what is lost."""
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        folder.small_data(96, 30)
        model = folder.model("mlp", "--hidden", "100,50", "--batch-norm", "--dropout", "0.25")
        runs = GpuRuns(folder, gpu_spec(folder, model, "bf16"), devices=3)
        runs.text = runs.text.replace("  steps: 2\n", "  steps: 24\n").replace("every_steps: 2}", "every_steps: 6}")
        runs.train(1)
        whole = outcome(os.path.join(runs.out, "metrics.jsonl"))
        workers = [add_gpu_worker(cluster, device) for device in range(3)]
        with GpuRun(folder, cluster, runs.write(stages=2), stop=4) as run:
            run.wait_step(4)
            for stage, stop in (1, 10), (0, 16):
                busy = {row["pid"] for row in cluster.json("workers") if row["microbatches"] > 0}
                lost, = (worker for worker in workers if worker.child.pid in busy and held(worker.output())[0] == stage)
                spare, = (worker for worker in workers if worker.child.pid not in busy)
                lost.send(signal.SIGKILL)
                run.go(stop)
                run.wait_step(stop)
                assert held(spare.output())[0] == stage, f"the spare worker has stage {stage}"
                workers.remove(lost)
                if stage:
                    workers.append(add_gpu_worker(cluster, 0))
                    run.wait(lambda: " worker loaded " in workers[-1].output(), "another spare worker's loading")
            run.go()
            assert run.client.wait() == 0, run.client.output()[-3000:]
            assert run.incarnation() == 0, "nothing was rolled back"
            assert_recovered(run.metrics, whole)


if __name__ == "__main__":
    main(globals())
