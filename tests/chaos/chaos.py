"""Trains runs while workers, servers, the coordinator and the store are killed, frozen, told to leave and started, and while
the network breaks; then compares every bit with an undisturbed run. Up to three runs share the workers, by settings that
change. In every other pair of seeds the first one is held in its middle until that is raised. Forks of them begin at their
newest checkpoint, or wait for a step to come.

usage: chaos.py [SEED...]        (1 2 3 unless given)

A seed fixes the plan of disturbances; when each of them strikes depends on the machine. Odd seeds keep their
checkpoints in files, even ones in Redis, where it is installed. In two of three pairs of seeds workers reduce among
themselves by shared memory, on one or two nodes of made-up names. One line a seed: the time it took and what was done.
Ends by itself; exit status 1 if a run ended otherwise than the undisturbed one, or a process died that nobody killed.
What the processes said is kept then, and its place is told."""
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import BUILD, Cluster, Folder, Process, assert_recovered, outcome, program, wait_for, weir
from proxy import Proxy
from redis_servers import Redis

STEPS = 300
TRAIN_SAMPLES, EVAL_SAMPLES = 2000, 600
WORKERS_MAX, SERVERS_MAX = 4, 3
STORM_SECONDS = 25   # then the run may end in peace
SEED_SECONDS = float(os.environ.get("WEIR_TEST_PATIENCE", "150"))  # a run that has not ended by then never will
# Three runs of different shapes: microbatches, steps between evaluations.
SHAPES = ((8, 3), (6, 2), (5, 7))
NODES = ((None,), ("a",), ("a", "b"))  # of workers; without a name they do not reduce among themselves
RUNS_MAX, FORKS_MAX = 3, 2
CHECKPOINTS = "checkpoint: {every_steps: 12, keep: 2}\n"


def write_spec(folder, shape, collective="none"):
    path = folder.small_spec("lenet.onnx", shape[0], STEPS, shape[1])
    with open(path) as file:
        text = file.read().replace("train:\n", f"train:\n  collective: {collective}\n", 1)
    with open(path, "w") as file:
        file.write(text + CHECKPOINTS)
    return path


def train_calmly(folder, shape):
    metrics = folder.file(f"calm-{shape[0]}.jsonl")
    weir("train", write_spec(folder, shape), "--workers", 1, "--threads", 1, "--out", metrics + ".out", "--metrics",
         metrics)
    return outcome(metrics)


class Storm:
    """The disturbances of some runs. redis: their store, or None. held_at: the version at which the first is held, or None."""

    def __init__(self, seed, folder, redis, held_at):
        self.held_at, self.raiser, self.forks, self.look, self.next_look, self.ended = held_at, None, [], None, 0, []
        self.chooser, self.redis, self.nodes = random.Random(seed), redis, NODES[seed // 2 % len(NODES)]
        self.counts, self.frozen, self.expected, self.due = Counter(), {}, {}, []
        self.began, self.story, self.is_store_empty = time.monotonic(), [], False
        self.runs, self.clients = [], []
        url = f"redis://{redis.address}" if redis else "file://" + folder.file(f"store-{seed}")
        self.cluster = Cluster(folder, servers=0, workers=0, store=url)
        self.submit_to = self.cluster.address
        # ways to the coordinator, of workers and of servers, and to each server
        self.proxies = [Proxy() for _ in range(2 + SERVERS_MAX)]
        for proxy in self.proxies[:2]:
            proxy.target = self.cluster.address
        self.slots = [None] * SERVERS_MAX
        for slot in range(2):
            self.start_server(slot)

    def close(self):
        for client in self.clients:
            client.__exit__()
        for process in self.frozen:
            process.send(signal.SIGCONT)
        self.cluster.__exit__()
        for proxy in self.proxies:
            proxy.close()

    def tell(self, what):
        self.counts[what] += 1
        self.story.append(f"{time.time() % 86400:.3f} {what}")

    def living(self):
        return [worker for worker in self.cluster.workers if worker.child.poll() is None]

    def living_servers(self):
        return [slot for slot, server in enumerate(self.slots) if server and server.child.poll() is None]

    def end(self, process, number, status):
        process.send(number)
        self.expected.setdefault(process, set()).update(status)

    def kill_process(self, process):
        self.end(process, signal.SIGKILL, {-signal.SIGKILL})
        process.wait()
        self.frozen.pop(process, None)

    def later(self, seconds, action):
        self.due.append((time.monotonic() + self.chooser.uniform(0, seconds), action))

    def start_later(self, seconds, action):
        """What needs a store to start. Its announcement is waited for, so the store must be there."""
        def act():
            if self.redis and (self.redis in self.frozen or not is_alive(self.redis)):
                self.start_later(1, action)
            else:
                action()
        self.later(seconds, act)

    # Runs

    def ask(self, *arguments):
        """A client, which may come to nothing: perhaps no coordinator leads."""
        self.clients.append(Process(program("weir"), *arguments, "--coordinator", self.submit_to))
        return self.clients[-1]

    def set_run(self):
        self.ask("set", self.chooser.choice(self.runs), f"priority={self.chooser.choice((0, 0, 0, 1))}",
                 f"workers.weight={self.chooser.choice((1, 3))}")
        self.tell("set")

    def may_be_held(self):
        """No client was told yet that the hold is raised, or that there is nothing to raise any more."""
        return bool(self.held_at) and (self.raiser is None or self.raiser.child.poll() not in (0, 2))

    def raise_hold(self):
        if self.may_be_held() and (self.raiser is None or not is_alive(self.raiser)):
            self.raiser = self.ask("set", self.runs[0], "train.hold=null")
            self.tell("hold raised")

    def fork(self):
        """Not where the run has no checkpoint yet, or has passed the step."""
        if len(self.forks) < FORKS_MAX:
            number = self.chooser.randrange(len(self.runs))
            at = self.chooser.choice(("", f"@{self.chooser.randrange(1, STEPS)}"))
            settings = (f"train.hold={STEPS}",) if number == 0 and self.held_at else ()
            self.forks.append(self.ask("fork", self.runs[number] + at, *settings, "--name", f"fork-{len(self.forks) + 1}"))
            self.look = None  # it may have missed this one
            self.tell("fork")

    def forks_are_over(self):
        """All that a client lists: also those whose own client was never told of them. Their rows are in .ended then."""
        if any(is_alive(client) for client in (*self.forks, self.look) if client):
            return False
        if self.look and self.look.child.returncode == 0:
            self.ended = [row for row in json.loads(self.look.output()) if row["run"].startswith("fork-")]
            if all(row["state"] in ("done", "failed") for row in self.ended):
                return True
        if time.monotonic() > self.next_look:
            self.next_look = time.monotonic() + 1
            self.look = self.ask("runs", "--json")
        return False

    def check_forks(self, expected):
        """They end where their parents did, whose steps they went on with."""
        for fork in self.ended:
            # what it began with went with the store; or its parent had passed the step before it could be told to stand there
            is_lost = self.counts["store emptied"] and "lost the checkpoint" in fork["message"]
            if fork["state"] == "failed" and (is_lost or "had passed step" in fork["message"]):
                self.tell("fork in vain")
                continue
            assert (fork["state"], fork["weights_sha256"]) == ("done", expected["weights"]), fork
            self.tell("fork done")

    # Workers

    def start(self):
        if len(self.living()) < WORKERS_MAX:
            self.cluster.add_worker(self.chooser.choice((1, 1, 2, 3)), coordinator=self.proxies[0].address,
                                    node=self.chooser.choice(self.nodes))
            self.tell("start")

    def kill(self):
        if living := self.living():
            self.kill_process(self.chooser.choice(living))
            self.tell("SIGKILL")

    def kill_all(self):
        for worker in self.living():
            self.kill_process(worker)
        self.tell("all workers killed")

    def leave(self):
        if living := self.living():
            self.end(self.chooser.choice(living), signal.SIGTERM,
                     {0, 128 + signal.SIGTERM, -signal.SIGTERM})  # the last: it had hardly begun
            self.tell("SIGTERM")

    # Servers

    def start_server(self, slot):
        proxy = self.proxies[2 + slot]
        process, proxy.target = self.cluster.start_server(advertise=proxy.address, coordinator=self.proxies[1].address)
        self.cluster.servers.append((process, proxy.target))
        self.slots[slot] = process

    def kill_server(self):
        """It comes back at once, later than the run waits for it, or never."""
        if living := self.living_servers():
            slot = self.chooser.choice(living)
            self.kill_process(self.slots[slot])
            self.tell("server killed")
            if len(living) == 1 or self.chooser.random() < 0.8:
                self.start_later(self.chooser.choice((0, 1, 8)), lambda: self.start_server(slot))
            else:
                self.slots[slot] = None
                self.tell("server gone for ever")

    def kill_servers(self):
        for slot in self.living_servers():
            self.kill_process(self.slots[slot])
            self.start_later(3, lambda slot=slot: self.start_server(slot))
        self.tell("all servers killed")

    def add_server(self):
        if None in self.slots:
            slot = self.slots.index(None)
            self.slots[slot] = False  # taken
            self.start_later(0, lambda: self.start_server(slot))
            self.tell("server started")

    # The coordinator

    def kill_coordinator(self):
        """What an emptied store has not been told again would be lost with the coordinator."""
        if is_alive(self.cluster.coordinator) and not self.is_store_empty:
            self.kill_process(self.cluster.coordinator)
            self.start_later(self.chooser.choice((0, 4)), self.cluster.start_coordinator)
            self.tell("coordinator killed")

    def kill_everything(self):
        if self.is_store_empty:
            return
        if self.redis and self.chooser.random() < 0.5:
            self.kill_store()
        self.kill_coordinator()
        self.kill_servers()
        self.kill_all()
        self.tell("everything killed")

    # The store

    def kill_store(self):
        if is_alive(self.redis):
            self.redis.kill()
            self.frozen.pop(self.redis, None)
            self.later(4, self.redis.start)
            self.tell("store killed")

    def freeze_store(self):
        self.freeze_one([self.redis], 8, "store frozen")

    def empty_store(self):
        """Only a coordinator that leads knows what was in it."""
        is_led = is_alive(self.cluster.coordinator) and " state_restored " in self.cluster.coordinator.output()
        if is_led and is_alive(self.redis) and self.redis not in self.frozen:
            self.redis.local("FLUSHALL")
            self.is_store_empty = True
            self.tell("store emptied")

    def look_at_store(self):
        """Whether an emptied one holds the run again."""
        if self.is_store_empty and is_alive(self.redis) and self.redis not in self.frozen:
            keys = self.redis.local("KEYS", "*")
            is_whole = any(key.endswith("/run") for key in keys) and any(key.startswith("weir:b:") for key in keys)
            self.is_store_empty = not is_whole

    # What all have

    def freeze_one(self, processes, seconds, what):
        if awake := [process for process in processes if process not in self.frozen and is_alive(process)]:
            process = self.chooser.choice(awake)
            process.send(signal.SIGSTOP)
            self.frozen[process] = time.monotonic() + self.chooser.uniform(0.2, seconds)
            self.tell(what)

    def freeze(self):
        self.freeze_one(self.living(), 8, "SIGSTOP")

    def freeze_server(self):  # shorter and longer than the silence after which the coordinator gives a server up
        self.freeze_one([self.slots[slot] for slot in self.living_servers()], 9, "server frozen")

    def freeze_coordinator(self):
        self.freeze_one([self.cluster.coordinator], 8, "coordinator frozen")

    def reset(self):
        self.chooser.choice(self.proxies).reset_some(self.chooser)
        self.tell("reset")

    def hold(self):
        self.chooser.choice(self.proxies).hold(self.chooser.uniform(0.2, 3))
        self.tell("hold")

    def cut(self):
        """A worker has no way to a server, for less or more than it takes to be noticed."""
        if living := self.living():
            proxy = self.chooser.choice(self.proxies[2:])
            proxy.cut(self.chooser.choice(living))
            self.later(20, proxy.mend)
            self.tell("cut")

    def strike(self):
        actions = [self.kill] * 3 + [self.leave] * 2 + [self.freeze] * 2 + [self.reset] * 3 + [self.hold] * 2 + [self.cut] * 2
        actions += [self.start] * 8 + [self.kill_all]
        actions += [self.kill_server] * 3 + [self.freeze_server, self.kill_servers] + [self.add_server] * 2
        actions += [self.kill_coordinator] * 2 + [self.freeze_coordinator, self.kill_everything]
        actions += [self.fork] * 2
        if self.may_be_held():
            actions += [self.raise_hold]
        if len(self.runs) > 1:
            actions += [self.set_run] * 4
        if self.redis:
            actions += [self.kill_store, self.freeze_store, self.empty_store]
        self.chooser.choice(actions)()

    def calm(self):
        if not self.living():
            self.start()
        self.raise_hold()

    def thaw(self, now):
        for process in [process for process, until in self.frozen.items() if until <= now]:
            process.send(signal.SIGCONT)
            del self.frozen[process]
        for entry in [entry for entry in self.due if entry[0] <= now]:
            self.due.remove(entry)
            entry[1]()

    def rage_until(self, is_over):
        """Disturbs until all is over; towards the end only sees to it that somebody works, and may."""
        end, next_strike = time.monotonic() + STORM_SECONDS, 0
        while not is_over():
            now = time.monotonic()
            self.thaw(now)
            self.look_at_store()
            if now >= next_strike and (now < end or not self.living() or self.may_be_held()):
                self.strike() if now < end else self.calm()
                next_strike = now + self.chooser.expovariate(1 / 0.5)
            assert now < end + SEED_SECONDS - STORM_SECONDS, "the run does not end"
            time.sleep(0.02)

    def check_processes(self):
        for process in self.cluster.processes:
            status = process.child.poll()
            assert status is None or status in self.expected.get(process, set()), (
                f"{' '.join(process.child.args[:3])} (pid {process.child.pid}) ended with {status}")

    def keep_logs(self, seed):
        folder = os.path.join(BUILD, f"chaos-{seed}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for number, process in enumerate(self.cluster.processes):
            name = os.path.basename(process.child.args[0]) + ("" if "--role" not in process.child.args[1] else
                                                              process.child.args[1][len("--role"):])
            with open(os.path.join(folder, f"{number:03d}-{name}.log"), "w") as file:
                file.write(f"pid {process.child.pid} status {process.child.poll()}\n{process.output()}")
        with open(os.path.join(folder, "story"), "w") as file:
            file.write("\n".join(self.story) + "\n")
        print(f"     what the processes said is in {folder}", flush=True)
        return folder


def is_alive(process):
    return (process.process if isinstance(process, Redis) else process).child.poll() is None


class Watched:
    """A run, and the client that follows it."""

    def __init__(self, folder, run, seed, at):
        self.metrics = folder.file(f"{run}-{seed}.jsonl")
        self.client = Process(program("weir"), "watch", run, *at, "--metrics", self.metrics)
        wait_for(self.client.output, "the first state")

    def is_over(self):
        return self.client.child.poll() is not None

    def check(self, expected):
        assert self.client.child.returncode == 0, self.client.output()[-2000:]
        assert_recovered(self.metrics, expected)

    def keep(self, place, number):
        if os.path.exists(self.metrics):
            shutil.copy(self.metrics, place)
        with open(os.path.join(place, f"client-{number}.log"), "w") as file:
            file.write(self.client.output())


def train_in_storm(folder, seed, shape, expected):
    """Returns what was done, in words."""
    watched = []
    has_redis = seed % 2 == 0 and shutil.which("redis-server")
    redis = Redis(folder, appendonly="yes", maxmemory_policy="noeviction") if has_redis else None
    storm = Storm(seed, folder, redis, shape[1] * (STEPS // 2 // shape[1]) if seed // 2 % 2 else None)
    at = ("--coordinator", storm.submit_to)
    try:
        collective = "shm" if storm.nodes[0] else "none"
        spec = write_spec(folder, shape, collective)
        settings = [[f"name=storm-{number + 1}"] for number in range(1 + seed // 3 % RUNS_MAX)]
        if storm.held_at:
            settings[0].append(f"train.hold={storm.held_at}")
        storm.runs = [weir("submit", spec, *own, *at).stdout.strip() for own in settings]
        try:
            watched.extend(Watched(folder, run, seed, at) for run in storm.runs)
            storm.rage_until(lambda: all(run.is_over() for run in watched) and storm.forks_are_over())
            storm.check_processes()
            for run in watched:
                run.check(expected)
            storm.check_forks(expected)
        except AssertionError:
            place = storm.keep_logs(seed)
            for number, run in enumerate(watched):
                run.keep(place, number + 1)
            raise
    finally:
        for run in watched:
            run.client.__exit__()
        storm.close()
        if redis:
            redis.__exit__()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(storm.counts.items()))
    return f"{len(watched)} runs, {'redis' if redis else 'files'}, {len(storm.nodes) if storm.nodes[0] else 'no'} nodes: {counts}"


def main():
    seeds = [int(seed) for seed in sys.argv[1:]] or [1, 2, 3]
    calm, failed = {}, 0
    with Folder() as folder:
        folder.small_data(TRAIN_SAMPLES, EVAL_SAMPLES)
        weir("model", "lenet", "--channels", "4,8", "--hidden", "512,200", "--batch-norm", "--seed", "3", "-o",
             folder.file("lenet.onnx"))
        for seed in seeds:
            shape = SHAPES[seed % len(SHAPES)]
            if shape not in calm:
                calm[shape] = train_calmly(folder, shape)
            began = time.monotonic()
            try:
                done = "ok  ", train_in_storm(folder, seed, shape, calm[shape])
            except AssertionError as why:
                failed += 1
                done = "FAIL", str(why)
            print(f"{done[0]} seed {seed} ({time.monotonic() - began:.1f} s): {done[1]}", flush=True)
    print(f"{len(seeds) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
