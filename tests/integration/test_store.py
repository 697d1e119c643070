"""The stores on real servers: redis alone, with passwords, TLS, a unix socket, Sentinel and Cluster, and what
happens when the servers die, stop, fill up or change their roles."""
import os
import signal
import subprocess
import threading
import time

from harness import PATIENCE, Folder, main, program, wait_for
from redis_servers import Certificates, Group, Redis, fail_over, make_cluster, make_sentinels

BLOCK = 65536
PATIENT_MS = 120000
SUITES = ("store_blocks_test", "store_records_test", "store_sharing_test")


def patient(url):
    """With as long a wait for an answer as a busy machine needs, where the URL names none."""
    return url if "timeout_ms=" in url else f"{url}{'&' if '?' in url else '?'}timeout_ms={PATIENT_MS}"


class Store:
    """A store in a process of its own that does one line after the other (tests/support/storage/redis_drive.h)."""

    def __init__(self, url, **environment):
        self.child = subprocess.Popen([program("tests/unit/storage/redis_test"), patient(url)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.opened = self.answer()

    def answer(self):
        line = self.child.stdout.readline()
        assert line, f"the store's process ended with {self.child.wait()}"
        assert "secret" not in line, line
        return line.rstrip("\n").strip()

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.answer()

    def expect(self, line, answer):
        got = self.ask(line)
        assert got == answer or (answer.endswith("*") and got.startswith(answer[:-1])), f"{line}: {got}"
        return got

    def until_ok(self, line):
        """Asks until it works; the errors on the way must be those of a server that is gone for a while."""
        def works():
            got = self.ask(line)
            assert got.split()[0] in ("ok", "UNAVAILABLE", "TIMEOUT"), got
            return got if got.startswith("ok") else None
        return wait_for(works, f"'{line}' to work again")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.child.stdin.close()
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


def opened(url, **environment):
    with Store(url, **environment) as store:
        return store.opened


def assert_opens(url, **environment):
    answer = opened(url, **environment)
    assert answer == "ok", f"{url}: {answer}"


def assert_refused(url, code, text, **environment):
    answer = opened(url, **environment)
    assert answer.startswith(code + " ") and text in answer, f"{url}: {answer}"


def conforms(url, **environment):
    """The conformance suites find no fault, and behaves()."""
    behaves(url, **environment)
    for suite in SUITES:
        done = subprocess.run([program(f"tests/conformance/{suite}")], capture_output=True, text=True, timeout=PATIENCE * 3,
                              env={**os.environ, "WEIR_TEST_STORE": patient(url), **environment})
        assert done.returncode == 0, f"{url}: {suite}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def behaves(url, **environment):
    """Blocks, records and guards do what they should, with several threads too."""
    with Store(url, **environment) as store:
        assert store.opened == "ok", f"{url}: {store.opened}"
        for line, answer in (
                (f"put 1 {BLOCK} 100", f"ok {BLOCK * 100}"), (f"put 1 {BLOCK} 101", f"ok {BLOCK}"),
                (f"check 1 {BLOCK} 102", "ok 101"), ("put 7 0 1", "ok 0"), ("check 7 0 1", "ok 1"),
                ("put 7 9000000 2", "ok 18000000"), ("check 7 9000000 2", "ok 2"),
                ("blocks", f"ok 104 {BLOCK * 101 + 18000000}"), (f"drop 2 {BLOCK} 50", "ok"),
                (f"check 1 {BLOCK} 101", "ok 51"), ("drop 7 9000000 2", "ok"),
                ("crowd 1000 5000 40", "ok"), ("check 1000 5000 320", "ok 320"), ("list crowd/11", "ok *"),
                ("read a/b", "NOT_FOUND *"), ("write a/b x a/b -", "ok"), ("write a/b y a/b -", "STALE *"),
                ("write a/b y a/b z", "STALE *"), ("read a/b", "ok x"), ("write a/c y a/b x", "ok"),
                ("write ab z", "ok"), ("list a/", "ok a/b a/c"), ("list a", "ok a/b a/c ab"), ("delete a/b", "ok"),
                ("delete a/b", "ok"), ("list a", "ok a/c ab"), ("read a/b", "NOT_FOUND *"),
                ("write a/d x a/b y", "STALE *"), ("list b", "ok"),
                ("delete ab", "ok"), ("delete a/c", "ok"), ("drop 1000 5000 320", "ok"), (f"drop 1 {BLOCK} 101", "ok"),
                ("drop 7 0 1", "ok"), ("blocks", "ok 0 0")):
            store.expect(line, answer)
        for name in store.ask("list").split()[1:]:
            store.expect(f"delete {name}", "ok")


# ---- arrangements ----

def test_a_redis_conforms():
    with Folder() as folder, Redis(folder) as redis:
        conforms(f"redis://{redis.address}")
        behaves(f"redis://{redis.address}/7?prefix=other.place")
        behaves(f"redis+unix://{redis.socket_path}?db=3")


def test_a_password_is_taken_from_url_environment_and_file():
    with Folder() as folder, Redis(folder, requirepass="secret@1") as redis:
        url = f"redis://{redis.address}"
        behaves(f"redis://:secret%401@{redis.address}")
        assert_opens(f"redis://default:secret%401@{redis.address}")
        assert_opens(f"redis://:secret@1@{redis.address}")
        assert_opens(url, WEIR_STORE_PASSWORD="secret@1")
        assert_opens(url, WEIR_STORE_PASSWORD="secret wrong", WEIR_STORE_PASSWORD_FILE=folder.file("p", "secret@1\n"))
        assert_refused(url, "INVALID", "WEIR_STORE_PASSWORD_FILE")
        assert_refused(f"redis://:secret2@{redis.address}", "INVALID", f"{redis.address}: refuses the password")
        assert_refused(f"redis://:secret%401@{redis.address}/999", "INVALID", "does not have that database")
        assert_opens(f"redis+unix://{redis.socket_path}", WEIR_STORE_PASSWORD="secret@1")


def test_a_user_needs_no_more_than_the_stores_own_keys():
    commands = "+set +get +exists +unlink +scan +strlen +eval +zrangebylex +zadd +zrem +del +ping +wait +select"
    users = [f"user weir on >secret ~weir:* ~{{weir}}:* -@all {commands}", "user reader on >secret ~* -@all +ping"]
    with Folder() as folder, Redis(folder, lines=users) as redis:
        conforms(f"redis://weir:secret@{redis.address}")
        assert_refused(f"redis://reader:secret@{redis.address}", "INVALID", "ACL")
        assert_refused(f"redis://weir:secret@{redis.address}?prefix=other", "INVALID", "ACL")
        assert_refused(f"redis://nobody:secret@{redis.address}", "INVALID", "refuses the password")


def test_tls_verifies_whom_it_talks_to():
    with Folder() as folder, Group() as group:
        tls = Certificates(folder)
        ca = tls.file("ca.crt")
        redis = group.add(Redis(folder, has_tls=True, **tls.options()))
        other = group.add(Redis(folder))
        conforms(f"rediss://127.0.0.1:{redis.port}?ca={ca}")
        assert_opens(f"rediss://localhost:{redis.port}?ca={ca}")
        assert_refused(f"rediss://127.0.0.1:{redis.port}", "INVALID", "certificate is refused")
        assert_refused(f"rediss://127.0.0.1:{redis.port}?ca={tls.file('stranger.crt')}", "INVALID", "certificate")
        assert_refused(f"rediss://127.0.0.1:{redis.port}?ca={folder.file('none')}", "INVALID", "none")
        redis.local("CONFIG", "SET", "tls-cert-file", tls.file("elsewhere.crt"), "tls-key-file",
                    tls.file("elsewhere.key"))
        assert_refused(f"rediss://127.0.0.1:{redis.port}?ca={ca}", "INVALID", "certificate is refused")
        assert_refused(f"rediss://localhost:{redis.port}?ca={ca}", "INVALID", "mismatch")
        redis.local("CONFIG", "SET", "tls-cert-file", tls.file("server.crt"), "tls-key-file", tls.file("server.key"))
        redis.local("CONFIG", "SET", "tls-auth-clients", "yes")
        pair = f"&cert={tls.file('client.crt')}&key={tls.file('client.key')}"
        assert_opens(f"rediss://127.0.0.1:{redis.port}?ca={ca}{pair}")
        answer = opened(f"rediss://127.0.0.1:{redis.port}?ca={ca}")
        assert answer.startswith("UNAVAILABLE"), answer
        answer = opened(f"redis://127.0.0.1:{redis.port}")
        assert answer.split()[0] in ("INVALID", "UNAVAILABLE"), answer
        answer = opened(f"rediss://127.0.0.1:{other.port}?ca={ca}&timeout_ms=3000")  # which passes: nobody answers in TLS
        assert "TLS" in answer and answer.split()[0] in ("INVALID", "UNAVAILABLE"), answer


def test_a_cluster_conforms():
    with Folder() as folder, Group() as group:
        servers = make_cluster(folder, group)
        hosts = ",".join(server.address for server in servers)
        conforms(f"redis+cluster://{hosts}")
        with Store(f"redis+cluster://{servers[1].address}") as store:  # any node tells of the others
            assert store.opened == "ok", store.opened
            store.expect("put 1 1000 200", "ok 200000")
            assert all(server.local("DBSIZE") > 20 for server in servers)
            store.expect("blocks", "ok *")
            store.expect("check 1 1000 200", "ok 200")
        servers[2].local("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lfu")
        with Store(f"redis+cluster://{servers[0].address}") as store:
            got = store.ask("check 1 1000 200")
            assert got.startswith("UNAVAILABLE") and "maxmemory-policy allkeys-lfu" in got, got
        assert_refused(f"redis://{servers[0].address}", "INVALID", "redis+cluster://")
        with Redis(folder) as alone:
            assert_refused(f"redis+cluster://{alone.address}", "INVALID", "redis://")


def test_a_slot_that_moves_is_followed():
    with Folder() as folder, Group() as group:
        one, two, three = make_cluster(folder, group)
        with Store(f"redis+cluster://{one.address}") as store:
            store.expect("put 1 1000 300", "ok 300000")
            store.expect("write a/b x", "ok")
            slot = one.local("CLUSTER", "KEYSLOT", "{weir}:names")
            owner = next(s for s in (one, two, three) if slot_is_of(s, slot))
            target = next(s for s in (one, two, three) if s is not owner)
            ids = {s: s.local("CLUSTER", "MYID") for s in (owner, target)}
            target.local("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner])
            owner.local("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
            store.expect("read a/b", "ok x")
            got = store.ask("write a/c y a/nothing -")  # keys that are here and keys that are not: TRYAGAIN
            assert got.startswith("UNAVAILABLE") and "moving" in got, got
            for key in owner.local("CLUSTER", "GETKEYSINSLOT", slot, 1000):
                owner.local("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            store.expect("read a/b", "ok x")  # ASK
            store.expect("write a/b x a/b x", "ok")
            for server in (target, owner, one, two, three):
                server.local("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
            store.expect("write a/d z a/b x", "ok")  # MOVED
            store.expect("list a/", "ok a/b a/d")
            store.expect("check 1 1000 300", "ok 300")


def slot_is_of(server, slot):
    for first, last, owner, *_ in server.local("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return owner[1] == server.port
    return False


def test_sentinel_leads_to_the_master_and_to_its_successor():
    with Folder() as folder, Group() as group:
        options = {"requirepass": "secret", "masterauth": "secret"}
        master = group.add(Redis(folder, **options))
        replica = group.add(Redis(folder, replicaof=f"127.0.0.1 {master.port}", **options))
        replica.wait_follows(master)
        sentinels = make_sentinels(folder, group, master, "secret")
        hosts = ",".join(sentinel.address for sentinel in sentinels)
        url = f"redis+sentinel://:secret@{hosts}/main"
        conforms(url)
        behaves(url + "/2?replicas=1")
        assert_refused(f"redis+sentinel://:secret@{hosts}/nobody", "INVALID", "no master named 'nobody'")
        assert_refused(f"redis://:secret@{sentinels[0].address}", "INVALID", "sentinel")
        with Store(url + "?replicas=1") as store, Store(url) as writer:
            store.until_ok(f"put 1 {BLOCK} 10")
            store.expect("write coordinator/epoch 1 coordinator/epoch -", "ok")

            def disturb():
                master.kill()
                fail_over(sentinels, replica)
            answers = write_until(writer, lambda: replica.info("role") == "master", disturb)
            codes = {answer.split()[0] for answer in answers}
            assert codes <= {"ok", "UNAVAILABLE", "TIMEOUT"}, answers
            writer.expect("write coordinator/epoch 2 coordinator/epoch 1", "ok")
            writer.expect(f"check 1 {BLOCK} 10", "ok 10")
            master.start()  # it comes back as a replica of the new one
            wait_for(lambda: master.info("role") == "slave" and master.info("master_link_status") == "up",
                     "the old master as a replica")
            store.until_ok("put 100 100 1")
            store.expect("write coordinator/epoch 3 coordinator/epoch 2", "ok")
            sentinels[0].kill()  # the first of the URL is not needed
            wait_for(lambda: opened(url) == "ok", "the others to know the master")


def write_until(store, condition, disturb):
    """Puts blocks without a pause, lets disturb() happen after the first, and ends when, after condition(), a
    put worked again. Returns all answers."""
    answers = []

    def put():
        answers.append(store.ask(f"put {1000 + 4 * len(answers)} {BLOCK} 4"))
        return answers[-1].startswith("ok")
    wait_for(put, "a write before")
    thread = threading.Thread(target=disturb)
    thread.start()
    wait_for(lambda: put() and condition(), "the condition")
    wait_for(put, "a write after it")
    thread.join()
    return answers


# ---- trouble ----

def test_a_server_that_is_killed_and_restarted_is_found_again():
    with Folder() as folder, Redis(folder, appendonly="yes", appendfsync="always") as redis:
        with Store(f"redis://{redis.address}") as store:
            store.expect(f"put 1 {BLOCK} 64", f"ok {BLOCK * 64}")
            store.expect("write a 1", "ok")
            timer = threading.Timer(0.2, redis.kill)
            timer.start()
            seed, got = 1000, "ok"
            while got.startswith("ok"):
                seed += 64
                got = store.ask(f"put {seed} {BLOCK} 64")
            timer.join()
            assert got.startswith("UNAVAILABLE"), got
            store.expect("write a 2", "UNAVAILABLE *")
            began = time.monotonic()
            for _ in range(200):
                store.expect("read a", f"UNAVAILABLE store: redis {redis.address}: *")
            assert time.monotonic() - began < 100, "none waits for an answer"
            redis.start()
            store.until_ok("write a 3 a 1")
            store.expect(f"check 1 {BLOCK} 64", "ok 64")
            redis.kill()
            redis.start()
            store.expect("write a 4 a 3", "ok")  # an idle connection that broke is no error


def test_a_server_that_comes_back_empty_makes_guarded_writes_stale():
    with Folder() as folder, Redis(folder) as redis:
        with Store(f"redis://{redis.address}") as store:
            store.expect("write coordinator/epoch 5 coordinator/epoch -", "ok")
            redis.kill()
            redis.start()
            store.expect("write runs/a x coordinator/epoch 5", "STALE *")
            store.expect("list", "ok")
            store.expect("write coordinator/epoch 5 coordinator/epoch -", "ok")
            store.expect("put 1 100 3", "ok 300")


def test_a_full_server_says_so_and_takes_writes_again():
    with Folder() as folder, Redis(folder, maxmemory="8mb", maxmemory_policy="noeviction") as redis:
        with Store(f"redis://{redis.address}") as store:
            store.expect("write a 1", "ok")
            got = store.ask(f"put 1 {BLOCK} 300")
            assert got.startswith("UNAVAILABLE") and "maxmemory" in got, got
            redis.local("CONFIG", "SET", "maxmemory", "1mb")
            got = store.ask("write a 2")
            assert got.startswith("UNAVAILABLE store: redis") and "maxmemory" in got, got
            store.expect("read a", "ok 1")
            store.expect("delete a", "ok")  # what makes room works
            redis.local("CONFIG", "SET", "maxmemory", "100mb")
            store.expect("write a 2 a -", "ok")
            store.until_ok(f"put 1 {BLOCK} 300")
            store.expect(f"check 1 {BLOCK} 300", "ok 300")


def test_a_server_that_evicts_keys_is_refused_until_it_keeps_them():
    with Folder() as folder, Redis(folder, maxmemory="100mb", maxmemory_policy="allkeys-lru") as redis:
        url, says = f"redis://{redis.address}", "removes keys when its memory is full (maxmemory-policy allkeys-lru)"
        assert_refused(url, "UNAVAILABLE", f"redis {redis.address}: {says}")
        redis.local("CONFIG", "SET", "maxmemory-policy", "volatile-lru")  # none of the store's keys expires
        with Store(url) as store:
            store.expect("write a 1", "ok")
            redis.local("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            redis.local("CLIENT", "KILL", "TYPE", "normal")
            got = store.ask("read a")
            assert got.startswith("UNAVAILABLE") and says in got, got
            redis.local("CONFIG", "SET", "maxmemory", "0")
            store.until_ok("read a")


def test_a_replica_is_refused_for_writing():
    with Folder() as folder, Group() as group:
        master = group.add(Redis(folder))
        replica = group.add(Redis(folder, replicaof=f"127.0.0.1 {master.port}"))
        replica.wait_follows(master)
        with Store(f"redis://{replica.address}") as store:
            for line in ("put 1 100 1", "write a 1"):
                got = store.ask(line)
                assert got.startswith("UNAVAILABLE") and "read-only replica" in got, got


def test_replicas_that_are_missing_are_an_error():
    with Folder() as folder, Group() as group:
        master = group.add(Redis(folder))
        replica = group.add(Redis(folder, replicaof=f"127.0.0.1 {master.port}"))
        replica.wait_follows(master)
        url = f"redis://{master.address}?replicas=1"
        with Store(url) as store, Store(url + "&timeout_ms=4000") as hasty:
            store.expect("put 1 100 2", "ok 200")
            assert replica.local("DBSIZE") == 2
            store.expect("write a 1", "ok")
            replica.kill()
            for line in ("put 10 100 2", "write a 2"):
                got = wait_for(lambda: not (said := hasty.ask(line)).startswith("TIMEOUT") and said, "the server's own answer")
                assert got.startswith("UNAVAILABLE") and "only 0 of 1 replicas" in got, got
            replica.start()
            store.until_ok("write a 3")


def test_a_server_that_stands_still_costs_one_timeout():
    with Folder() as folder, Redis(folder) as redis:
        with Store(f"redis://{redis.address}?timeout_ms=300") as store:
            store.until_ok("write a 1")
            redis.send(signal.SIGSTOP)
            began = time.monotonic()
            got = store.ask("read a")
            assert got.startswith("TIMEOUT") and "timeout_ms=300" in got, got
            store.expect(f"put 1 {BLOCK} 256", "TIMEOUT *")
            store.expect("write a 2", "TIMEOUT *")
            assert time.monotonic() - began < 30, "not one for each of the 256 blocks"
            assert opened(f"redis://{redis.address}?timeout_ms=300").startswith("TIMEOUT")
            redis.send(signal.SIGCONT)
            store.until_ok("read a")
            store.until_ok("write a 3")


def test_a_cluster_without_one_of_its_nodes_says_so_and_recovers():
    with Folder() as folder, Group() as group:
        servers = make_cluster(folder, group, appendonly="yes", appendfsync="always", cluster_require_full_coverage="no")
        with Store(f"redis+cluster://{servers[0].address}") as store:
            store.expect("put 1 1000 60", "ok 60000")
            servers[2].kill()
            store.expect("put 1000 1000 60", "UNAVAILABLE *")
            store.expect("check 1 1000 60", "UNAVAILABLE *")
            servers[2].start()
            store.until_ok("put 1000 1000 60")
            store.expect("check 1 1000 60", "ok 60")


def test_nobody_there_is_unavailable():
    with Folder() as folder, Redis(folder) as redis:
        redis.kill()
        assert_refused(f"redis://{redis.address}", "UNAVAILABLE", f"{redis.address}: nobody answers")
        assert_refused(f"redis+unix://{folder.file('no.sock')}", "UNAVAILABLE", "no.sock: nobody answers")
        assert_refused(f"redis+sentinel://{redis.address}/main", "UNAVAILABLE", "nobody answers")
        assert_refused(f"redis+cluster://{redis.address}", "UNAVAILABLE", "nobody answers")
        assert_refused("rediss://no.such.host.invalid", "UNAVAILABLE", "cannot be resolved")


def test_other_peoples_keys_are_left_alone():
    with Folder() as folder, Redis(folder) as redis:
        for number in range(5):
            redis.local("SET", f"weir:b:{number}", "x")
        redis.local("EVAL", "for i = 1, 20000 do redis.call('SET', 'other:' .. i, 'x') end", 0)
        with Store(f"redis://{redis.address}") as store:
            store.expect("put 1 500 1200", "ok 600000")
            store.expect("blocks", "ok 1200 600000")
            store.expect("put 1 500 1200", "ok 0")
        redis.local("SET", "{weir}:r:a", "x")
        redis.local("LPUSH", "{weir}:r:list", "x")
        with Store(f"redis://{redis.address}") as store:
            store.expect("read a", "ok x")
            assert "prefix=" in store.expect("read list", "IO *")


if __name__ == "__main__":
    main(globals())
