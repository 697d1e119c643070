"""Workers and servers of one host name blocks in shared memory: the weights are those of a run whose blocks all go by socket,
whoever dies in the middle, nothing is left behind, and what cannot be shared goes by socket."""
import os
import re
import signal
import subprocess

from certificates import Authority
from gate import Gate
from harness import (Cluster, Folder, Process, Skip, assert_recovered, kept, main, newest_step, outcome, program, wait_for,
                     weir)

STEPS = 60
UNLOADED = re.compile(r"run_unloaded .* gradients=(\d+) .* weights=(\d+) .* shared_gradients=(\d+) shared_weights=(\d+) ")
MODEL = ("lenet", "--channels", "8,16", "--hidden", "400", "--batch-norm", "--seed", "3")


def write_spec(folder):
    folder.small_data(480, 24)
    return folder.small_spec(folder.model(*MODEL), 8, STEPS, 20)


def by_socket():
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--threads", 1, "--out", folder.file("out"), env={**os.environ, "WEIR_SHM": "off"})
            return outcome(folder.file("out/metrics.jsonl")), counts(log_of(folder.file("out/logs")))
    expected, (_, _, gradients, weights) = kept("shared-memory", train)
    assert (gradients, weights) == (0, 0), "it was turned off"
    return expected


def log_of(folder):
    texts = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts.append(file.read())
    return "\n".join(texts)


def counts(log):
    """Of all servers: gradients, weights, and of either those that were named."""
    found = [tuple(map(int, match)) for match in UNLOADED.findall(log)]
    assert found, log[-3000:]
    return tuple(map(sum, zip(*found)))


def segments_of(pid):
    """The segments that a process has, of its own and of others."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        lines = [line for line in maps if "memfd:weir-segment" in line]
    return [line for line in lines if " rw-s " in line], [line for line in lines if " r--s " in line]


def test_named_blocks_make_the_weights_of_sent_ones():
    expected = by_socket()
    with Folder() as folder:
        for name, options in (("one", ()), ("many", ("--workers", 3, "--servers", 2))):
            weir("train", write_spec(folder), *options, "--threads", 1, "--out", folder.file(name))
            assert outcome(folder.file(name + "/metrics.jsonl")) == expected, name
            gradients, weights, named_gradients, named_weights = counts(log_of(folder.file(name + "/logs")))
            assert named_gradients > gradients // 2 and named_weights > weights // 2, (gradients, weights, named_gradients, named_weights)


def train_on(folder, cluster, *options):
    metrics = folder.file("metrics.jsonl")
    weir("submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator", cluster.address, *options)
    return outcome(metrics)


def unloaded(cluster):
    wait_for(lambda: all("run_unloaded" in server.output() for server, _ in cluster.servers), "the servers to be rid of the run")
    return counts("\n".join(server.output() for server, _ in cluster.servers))


def test_a_program_without_it_is_sent_everything():
    expected = by_socket()
    for side in ("server", "worker"):
        with Folder() as folder, Cluster(folder, servers=0, workers=0, is_patient=True) as cluster:
            cluster.server_options = ("--no-shm",) if side == "server" else ()
            cluster.add_server()
            cluster.add_worker(options=("--no-shm",) if side == "worker" else ())
            assert train_on(folder, cluster) == expected, side
            assert unloaded(cluster)[2:] == (0, 0), side


def test_a_worker_in_a_namespace_of_its_own_is_sent_everything():
    """As in a container: to the server its number is another process's."""
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        raise Skip("unshare --pid is not permitted")
    expected = by_socket()
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True) as cluster:
        worker = Process(*apart, program("weir-worker"), "--coordinator", cluster.address, "--threads", 1)
        cluster.processes.append(worker)
        cluster.workers.append(worker)
        assert train_on(folder, cluster) == expected
        assert unloaded(cluster)[2:] == (0, 0) and "shares_memory" not in worker.output()


def test_memory_is_shared_behind_certificates_too():
    expected = by_socket()
    with Folder() as folder, Folder() as elsewhere:
        authority = Authority(elsewhere)
        with Cluster(folder, servers=0, workers=0, is_patient=True, options=("--tls", authority.folder("coordinator"))) as cluster:
            cluster.server_options = ("--tls", authority.folder("server"))
            cluster.add_server()
            cluster.add_worker(options=("--tls", authority.folder("worker"), "--data-root", folder.path))
            assert train_on(folder, cluster, "--tls", authority.folder("client")) == expected
            assert unloaded(cluster)[2] > 0


def test_who_dies_leaves_nothing_and_the_weights_are_the_same():
    """Workers and servers are killed while they read each other's memory; what the dead had is let go of by those who live."""
    expected = by_socket()
    with Folder() as folder, Cluster(folder, servers=2, workers=2, is_patient=True, gate=Gate(folder)) as cluster:
        gate, metrics = cluster.gate, folder.file("metrics.jsonl")
        gate.stop_at(3)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= 3, "the first steps")
            server = cluster.servers[0][0].child.pid
            wait_for(lambda: len(segments_of(server)[1]) == 2, "the server to read two workers' memory")
            cluster.workers[0].send(signal.SIGKILL)
            gate.stop_at(8)
            wait_for(lambda: len(segments_of(server)[1]) == 1, "the server to let go of the dead worker's memory")
            wait_for(lambda: newest_step(metrics) >= 8, "steps of one worker")
            joiner = cluster.add_worker()
            wait_for(lambda: " joined run=" in joiner.output(), "another worker")
            for number, step in ((0, 15), (1, 28)):
                cluster.servers[number][0].send(signal.SIGKILL)
                cluster.servers[number][0].wait()
                cluster.restart_server(number)
                gate.stop_at(step + 3)
                wait_for(lambda at=step: newest_step(metrics) >= at, f"step {step}")
                wait_for(lambda at=number: segments_of(cluster.servers[at][0].child.pid)[1], "the new server to read workers' memory")
            joiner.send(signal.SIGKILL)
            cluster.add_worker()
            gate.open()
            assert client.wait() == 0, client.output()[-3000:]
        assert_recovered(metrics, expected)
        survivor = cluster.workers[1].child.pid
        wait_for(lambda: not segments_of(survivor)[1], "the worker to let go of the servers' memory")


if __name__ == "__main__":
    main(globals())
