"""A cluster on sockets in a folder of the user's: it trains as any other, and nobody else reaches it."""
import errno
import os
import signal
import socket
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, children_of, done_event, health, main, newest_step, program,
                     wait_for, weir)
from test_tls import ports_of, undisturbed, write_spec

NOBODY = 65534


class Sockets(Cluster):
    """A cluster each of whose processes listens at unix:FOLDER/sockets/NAME."""

    def __init__(self, folder, **options):
        self.place = folder.file("sockets")
        os.mkdir(self.place, 0o700)
        super().__init__(folder, listen=self.at("coordinator"), **options)

    def at(self, name):
        return f"unix:{self.place}/{name}"

    def start_server(self, listen=None, **options):
        return super().start_server(listen=listen or self.at(f"server-{len(self.servers) + 1}"), **options)


def test_a_cluster_on_sockets_trains_to_the_same_weights_and_listens_on_no_port():
    expected = undisturbed()
    with Folder() as folder, Sockets(folder, servers=2, workers=2, is_patient=True, gate=Gate(folder)) as cluster:
        gate, metrics = cluster.gate, folder.file("metrics.jsonl")
        gate.stop_at(2)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= 2, "the first steps")
            assert not any(ports_of(process) for process in cluster.processes)
            assert {server["address"] for server in cluster.json("servers")} == {cluster.at("server-1"), cluster.at("server-2")}
            for worker in cluster.workers:
                assert f"listening address={cluster.at('worker')}-{worker.child.pid}\n" in worker.output()
            server, address = cluster.servers[0]
            assert address == cluster.at("server-1") and health(address) == "serving\n"
            server.send(signal.SIGKILL)
            server.wait()
            assert os.path.exists(address.removeprefix("unix:"))
            cluster.restart_server(0)
            gate.open()
            assert client.wait() == 0, client.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == expected
        for process in cluster.processes:
            if process.child.poll() is None:
                process.send(signal.SIGTERM)
        wait_for(lambda: not os.listdir(cluster.place), "each process to remove its socket")


def test_a_second_process_at_a_socket_is_told_who_is_there():
    with Folder() as folder, Sockets(folder, servers=0, workers=0) as cluster:
        done = subprocess.run([program("weir-server"), "--listen", cluster.address, "--store", "file://" + folder.file("other")],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 1, done.stderr
        assert f"process {cluster.coordinator.child.pid}, weir-server, listens there" in done.stderr, done.stderr
        assert health(cluster.address) == "serving\n"


def test_a_folder_that_others_may_enter_is_refused_by_every_program():
    with Folder() as folder:
        place = folder.file("open")
        os.mkdir(place)
        os.chmod(place, 0o755)
        address = f"unix:{place}/socket"
        for command in ((program("weir-server"), "--listen", address),
                        (program("weir-server"), "--role=parameters", "--listen", "127.0.0.1:0", "--coordinator", address),
                        (program("weir-worker"), "--coordinator", address), (program("weir"), "runs", "--coordinator", address)):
            done = subprocess.run([*command], capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2 and f"chmod 700 {place}" in done.stderr, (command, done)


def test_another_user_of_the_machine_reaches_nothing():
    """As far as a root that runs this test can be that user."""
    with Folder() as folder, Sockets(folder, servers=0, workers=0) as cluster:
        os.chmod(folder.path, 0o755)
        path = cluster.address.removeprefix("unix:")
        for user in {os.geteuid(), NOBODY if os.geteuid() == 0 else os.geteuid()}:
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:  # as another user it may not even start a program of ours
                os.setresuid(user, user, user)
                said = socket.socket(socket.AF_UNIX).connect_ex(path)
                os.write(writer, str(said).encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as answer:
                assert int(answer.read()) == (0 if user == os.geteuid() else errno.EACCES)
            os.waitpid(pid, 0)


def test_a_private_cluster_on_sockets_is_reached_by_nobody_else_and_leaves_no_folder():
    expected = undisturbed()
    with Folder() as folder:
        gate, out, place = Gate(folder), folder.file("out"), folder.file("place")
        os.mkdir(place)
        gate.stop_at(2)
        with Process(program("weir"), "train", write_spec(folder), "--out", out, "--sockets", "--threads", 1,
                     env={**gate.environment, "TMPDIR": place}) as training:
            wait_for(lambda: newest_step(out + "/metrics.jsonl") >= 2, "the first steps")
            address = next(word for word in training.output().split() if word.startswith("unix:"))
            assert health(address) == "serving\n"
            held = os.path.dirname(address.removeprefix("unix:"))
            assert os.path.dirname(held) == place and os.stat(held).st_mode & 0o777 == 0o700
            children = [*children_of(training.child.pid, "weir-server"), *children_of(training.child.pid, "weir-worker")]
            assert len(children) == 3
            for name in ("weir-server", "weir-worker"):  # the coordinator, the server, the worker: each starts again
                for pid in children_of(training.child.pid, name):
                    os.kill(pid, signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(out + "/metrics.jsonl")["weights_sha256"] == expected
        assert not os.listdir(place)


def test_who_shares_a_machine_has_private_clusters_on_sockets_without_asking():
    with Folder() as folder:
        spec, metrics = write_spec(folder), folder.file("metrics.jsonl")
        done = weir("train", spec, "--out", folder.file("out"), "--metrics", metrics, "--threads", 1, env={**os.environ, "WEIR_SOCKETS": "1"})
        assert "coordinator unix:" in done.stdout and done_event(metrics)["weights_sha256"] == undisturbed(), done
        done = weir("train", spec, "--out", folder.file("other"), env={**os.environ, "WEIR_SOCKETS": "yes"}, status=2)
        assert "WEIR_SOCKETS is 1, 0 or nothing, not 'yes'" in done.stderr and done.stderr.count("\n") == 1, done


if __name__ == "__main__":
    main(globals())
