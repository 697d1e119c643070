"""What servers refuse changes nothing: a client pushes it all through a run while workers die and join, and the run ends in
the bits of one that nobody disturbed."""
import json
import os
import signal
import subprocess

from gate import Gate
from harness import (PEER_PYTHON, Cluster, Folder, Process, Skip, assert_recovered, kept, main, newest_step, outcome, program,
                     wait_for, weir)
from tickets import ticket_of

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, EVERY, TEARS = 240, 40, 2
MODEL = ("lenet", "--channels", "8,16", "--hidden", "400", "--batch-norm", "--seed", "3")


class Pusher:
    """hostile_pusher.py, which is told what to do."""

    def __init__(self, run, ticket, servers):
        if not os.path.exists(PEER_PYTHON):
            raise Skip("build/venv could not be made (PyPI out of reach)")
        self.child = subprocess.Popen([PEER_PYTHON, os.path.join(HERE, "hostile_pusher.py"), run, ticket, str(STEPS), *servers],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.child.kill()
        self.child.communicate()

    def begin(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def answer(self):
        line = self.child.stdout.readline()
        assert line, "the pusher has died"
        return json.loads(line)


def write_spec(folder):
    folder.small_data(480, 24)
    return folder.small_spec(folder.model(*MODEL), 4, STEPS, EVERY)


def undisturbed(*settings):
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), *settings, "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("hostile-pusher" + "".join(settings), train)


def assert_refused(answer):
    for kind in ("not_finite", "forged"):
        assert set(answer[kind]) == {"INVALID_ARGUMENT"}, f"{kind} parts: {answer}"


def wait_joined(worker, version):
    """The worker holds a version that the servers had; it is refused nothing on the way."""
    def has_joined():
        text = worker.output()
        assert "transfer_refused" not in text, text[-3000:]
        return " joined run=" in text and f"version={version} " in text
    wait_for(has_joined, f"a worker that joins at version {version}")


def disturb(servers, *settings):
    expected = undisturbed(*settings)
    with Folder() as folder, Cluster(folder, servers=servers, is_patient=True, gate=Gate(folder)) as cluster:
        gate, metrics = cluster.gate, folder.file("metrics.jsonl")
        gate.stop_at(1)
        gate.tear(0)
        with Process(program("weir"), "submit", write_spec(folder), *settings, "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= 1, "the first steps")
            run = cluster.json("runs")[0]["run"]
            with Pusher(run, ticket_of(folder.file("store"), run), [address for _, address in cluster.servers]) as pusher:
                for _ in range(TEARS):
                    pusher.begin("attack")
                    answer = pusher.answer()
                    assert_refused(answer)
                    cluster.workers[-1].send(signal.SIGKILL)
                    joiner = cluster.add_worker()
                    wait_joined(joiner, answer["version"])
                    pusher.begin("harass")
                    gate.stop_at(answer["version"] + 45)
                    wait_for(lambda: newest_step(metrics) >= answer["version"] + 20, "steps under pushes")
                    second = cluster.add_worker()
                    wait_for(lambda: " joined run=" in second.output(), "a second worker")
                    joiner.send(signal.SIGKILL)
                    wait_for(lambda: newest_step(metrics) >= answer["version"] + 40, "steps without the first")
                    pusher.begin("stop")
                    assert pusher.answer()["INVALID_ARGUMENT"] > 100
                gate.open()
                assert client.wait() == 0, client.output()[-3000:]
        assert_recovered(metrics, expected)


def test_refused_pushes_change_nothing_while_workers_come_and_go():
    disturb(servers=1)


def test_refused_pushes_change_nothing_on_two_servers():
    disturb(servers=2)


def test_refused_pushes_change_nothing_where_gradients_are_compressed():
    disturb(1, "train.compression={gradients: int8, parts: 2}")


if __name__ == "__main__":
    main(globals())
