"""A search over the training of the demo's model in PyTorch, by Ray Tune or by Optuna, two trials of one thread at a time.
usage: peer_tune.py rate | peer_tune.py ray|optuna FOLDER SCHEDULER STEPS TRIALS SEED

FOLDER has idx files. SCHEDULER: none, asha (rungs at 1/9, 1/3 and all of STEPS), or, of Ray, pbt (a generation each eighth of
STEPS). Each side as its documents recommend: Ray has the data in its object store (tune.with_parameters) and a CPU a
trial, Optuna a study in a journal file and a process for each CPU. Prints one JSON object: seconds, trials, samples, the
best accuracy, and for pbt how long exploits took. `rate`: samples per second of one thread."""
import json
import multiprocessing
import os
import struct
import sys
import tempfile
import time

import numpy
import torch
from peer_ddp import network
from torch import nn

BATCH, RATE_STEPS, GENERATIONS = 128, 30, 8
RATES, MOMENTA, DECAYS = (0.001, 0.3), (0.8, 0.99), (0.00001, 0.01)


def read_idx(path):
    with open(path, "rb") as file:
        magic = struct.unpack(">I", file.read(4))[0]
        shape = struct.unpack(f">{magic & 255}I", file.read(4 * (magic & 255)))
        return numpy.frombuffer(file.read(), numpy.uint8).reshape(shape)


def read_data(folder):
    """Train and test images, as the spec's transforms make them, and labels."""
    def images(name):
        return torch.from_numpy((read_idx(os.path.join(folder, name)).astype(numpy.float32) / 255 - 0.2860) / 0.3530)[:, None]

    def labels(name):
        return torch.from_numpy(read_idx(os.path.join(folder, name)).astype(numpy.int64))
    return images("train-images-idx3"), labels("train-labels-idx1"), images("t10k-images-idx3"), labels("t10k-labels-idx1")


class Training:
    def __init__(self, config, data):
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # as Weir computes
        torch.manual_seed(1)
        self.data, self.step, self.model = data, 0, network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), **config)
        self.order = torch.randperm(len(data[0]))

    def run_to(self, step):
        images, labels = self.data[:2]
        self.model.train()
        for self.step in range(self.step + 1, step + 1):
            at = self.step * BATCH % (len(images) - BATCH)
            chosen = self.order[at:at + BATCH]
            loss = nn.functional.cross_entropy(self.model(images[chosen]), labels[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def accuracy(self):
        images, labels = self.data[2:]
        self.model.eval()
        with torch.no_grad():
            hits = sum((self.model(images[at:at + 500]).argmax(1) == labels[at:at + 500]).sum().item()
                       for at in range(0, len(images), 500))
        return hits / len(images)


def rungs_of(scheduler, steps):
    if scheduler == "asha":
        return [steps // 9, steps // 3, steps]
    return [steps * (number + 1) // GENERATIONS for number in range(GENERATIONS)] if scheduler == "pbt" else [steps]


# Ray Tune

def ray_train(config, data, rungs, is_pbt):
    from ray import tune
    training = Training(config, data)
    checkpoint = tune.get_checkpoint() if is_pbt else None
    if checkpoint:
        begin = time.monotonic()
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
        for group in training.optimizer.param_groups:
            group.update(config)
        training.step = state["step"]
        tune_note("restored", time.monotonic() - begin)
    for rung in rungs:
        if rung <= training.step:
            continue
        training.run_to(rung)
        row = {"accuracy": training.accuracy(), "steps": rung}
        if not is_pbt:
            tune.report(row)
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
                        "step": rung}, os.path.join(folder, "state.pt"))
            tune.report(row, checkpoint=tune.Checkpoint.from_directory(folder))


def tune_note(what, seconds):
    """What a trial has to say beside its results, for the one that reads the folder."""
    with open(os.path.join(os.environ["PEER_TUNE_NOTES"], f"{os.getpid()}-{time.monotonic_ns()}"), "w") as file:
        json.dump([what, seconds, time.time()], file)


def ray_search(folder, scheduler, steps, trials, seed):
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
    notes, rungs = tempfile.mkdtemp(), rungs_of(scheduler, steps)
    os.environ["PEER_TUNE_NOTES"] = notes
    os.environ["RAY_worker_niceness"] = "0"  # as the other sides' processes; Ray's own default is 15
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
             runtime_env={"env_vars": {"PEER_TUNE_NOTES": notes, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}})
    space = {"lr": tune.loguniform(*RATES), "momentum": tune.uniform(*MOMENTA), "weight_decay": tune.loguniform(*DECAYS)}
    schedulers = {
        "none": lambda: None,
        "asha": lambda: ASHAScheduler(time_attr="steps", max_t=steps, grace_period=rungs[0], reduction_factor=3),
        "pbt": lambda: PopulationBasedTraining(time_attr="steps", perturbation_interval=rungs[0],
                                               hyperparam_mutations=dict(space))}
    function = tune.with_parameters(ray_train, data=read_data(folder), rungs=rungs, is_pbt=scheduler == "pbt")
    tuner = tune.Tuner(
        tune.with_resources(function, {"cpu": 1}), param_space=space,
        tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=trials, max_concurrent_trials=2,
                                    scheduler=schedulers[scheduler](),
                                    search_alg=tune.search.BasicVariantGenerator(random_state=seed)),
        run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0))
    begin = time.monotonic()
    results = tuner.fit()
    seconds = time.monotonic() - begin
    rows = [result.metrics for result in results]
    noted = []
    for name in os.listdir(notes):
        with open(os.path.join(notes, name)) as file:
            noted.append(json.load(file)[1])
    return {"seconds": seconds, "trials": len(rows), "samples": sum(row["steps"] for row in rows) * BATCH,
            "accuracy": max(row["accuracy"] for row in rows), "exploits": noted}


# Optuna

def optuna_work(journal, folder, scheduler, steps, trials, seed, samples):
    import optuna
    from optuna.storages.journal import JournalFileBackend
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=max(steps // 9, 1), reduction_factor=3)
    study = optuna.load_study(study_name="tune", storage=optuna.storages.JournalStorage(JournalFileBackend(journal)),
                              sampler=optuna.samplers.RandomSampler(seed=seed),
                              pruner=pruner if scheduler == "asha" else optuna.pruners.NopPruner())
    data = read_data(folder)

    def train(trial):
        training = Training({"lr": trial.suggest_float("lr", *RATES, log=True),
                             "momentum": trial.suggest_float("momentum", *MOMENTA),
                             "weight_decay": trial.suggest_float("weight_decay", *DECAYS, log=True)}, data)
        for rung in rungs_of(scheduler, steps):
            before = training.step
            training.run_to(rung)
            with samples.get_lock():
                samples.value += (rung - before) * BATCH
            accuracy = training.accuracy()
            trial.report(accuracy, rung)
            if rung < steps and trial.should_prune():
                raise optuna.TrialPruned
        return accuracy
    study.optimize(train, callbacks=[optuna.study.MaxTrialsCallback(trials, states=None)])


def optuna_search(folder, scheduler, steps, trials, seed):
    import optuna
    from optuna.storages.journal import JournalFileBackend
    journal = os.path.join(tempfile.mkdtemp(), "journal")
    study = optuna.create_study(study_name="tune", direction="maximize",
                                storage=optuna.storages.JournalStorage(JournalFileBackend(journal)))
    context = multiprocessing.get_context("spawn")
    samples = context.Value("Q", 0)
    workers = [context.Process(target=optuna_work, args=(journal, folder, scheduler, steps, trials, seed + number, samples))
               for number in range(2)]
    begin = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begin
    rows = study.get_trials()
    return {"seconds": seconds, "trials": len(rows), "samples": samples.value, "exploits": [],
            "accuracy": max(max(row.intermediate_values.values(), default=0) for row in rows)}


def rate():
    data = torch.randn(BATCH * 4, 1, 28, 28), torch.randint(0, 10, (BATCH * 4,))
    training = Training({"lr": 0.01, "momentum": 0.9}, data * 2)
    training.run_to(5)
    begin = time.monotonic()
    training.run_to(5 + RATE_STEPS)
    return RATE_STEPS * BATCH / (time.monotonic() - begin)


def main():
    if sys.argv[1] == "rate":
        print(rate())
        return
    side, folder, scheduler, steps, trials, seed = sys.argv[1:]
    search = {"ray": ray_search, "optuna": optuna_search}[side]
    print(json.dumps(search(folder, scheduler, int(steps), int(trials), int(seed))))


if __name__ == "__main__":
    main()
