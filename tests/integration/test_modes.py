"""Modes that promise the same bits on any cluster, each on every cluster of one to four workers and one to three servers."""
import time

from harness import Cluster, Folder, main, outcome, read_metrics, weir

STEPS, INNER = 6, 4
WORKERS, SERVERS = (1, 2, 3, 4), (1, 2, 3)
# Groups cut the model into blocks for three servers; the optimizer keeps values.
OPTIMIZER = "{name: adamw, lr: 0.004, groups: [{params: ['fc2*'], weight_decay: 0}, {params: ['fc1*'], weight_decay: 0.1}]}"


def write_spec(folder):
    folder.small_data(192, 24)
    path = folder.small_spec(folder.model("mlp", "--hidden", "12,12", "--batch-norm", "--dropout", "0.25", "--seed", "3"), 4,
                             STEPS, STEPS)
    with open(path) as file:
        text = file.read().replace("{name: sgd, lr: 0.05, momentum: 0.9}", OPTIMIZER).replace(f"\neval: {{every_steps: {STEPS}}}", "")
    assert OPTIMIZER in text
    return folder.file("spec.yaml", text)


def result(folder, cluster, spec, settings, workers):
    """Of a run that begins once so many workers are ready, and has no more."""
    metrics = folder.file(f"{time.monotonic_ns()}.jsonl")
    weir("submit", spec, *settings, f"workers.min={workers}", f"workers.max={workers}", "--follow", "--metrics", metrics,
         "--coordinator", cluster.address)
    # On a slow machine one may be missed for a while.
    assert max(event["workers"] for event in read_metrics(metrics) if event["event"] == "step") == workers
    return outcome(metrics)


def assert_same_on_all(modes, clusters=(WORKERS, SERVERS)):
    """modes: settings of each, by name. Each is another run, and the same one on all clusters. Returns what each came to."""
    results = {name: {} for name in modes}
    for servers in clusters[1]:
        with Folder() as folder, Cluster(folder, servers, max(clusters[0]), is_patient=True) as cluster:
            spec = write_spec(folder)
            for name, settings in modes.items():
                for workers in clusters[0]:
                    results[name][workers, servers] = result(folder, cluster, spec, settings, workers)
    for name, found in results.items():
        first = next(iter(found.values()))
        others = {cluster: one for cluster, one in found.items() if one != first}
        assert not others, f"{name}: {first}, but by workers and servers: {others}"
    outcomes = {name: next(iter(found.values())) for name, found in results.items()}
    assert len({found["weights"] for found in outcomes.values()}) == len(modes)
    return outcomes


def test_a_fixed_lag_gives_the_same_bits_on_every_cluster():
    assert_same_on_all({f"ssp {lag}": ("train.mode=ssp", f"train.staleness={lag}") for lag in (1, 2, 4)})


def test_local_steps_give_the_same_bits_on_every_cluster():
    assert_same_on_all({f"local {replicas} {state}": ("train.mode=local", f"train.local.replicas={replicas}",
                                                      f"train.local.inner_steps={INNER}", f"train.local.inner_state={state}")
                        for replicas, state in ((1, "reset"), (2, "reset"), (4, "reset"), (2, "kept"))})


if __name__ == "__main__":
    main(globals())
