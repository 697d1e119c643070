"""A Redis with certificates of `weir certs` is the store of a cluster: it and its users know each other by role, each user
can do what its role needs, and nobody else gets in. docker/compose.yaml runs one like it."""
import os
import re
import secrets
import shutil
import socket
import ssl

from certificates import Authority, point_to
from harness import PATIENCE, ROOT, Cluster, Folder, done_event, main, weir
from redis_servers import Redis, decode, encode
from test_store import Store, assert_opens, assert_refused, opened

MODEL = ("mlp", "--input", "1,28,28", "--hidden", "30", "--classes", "10", "--seed", "5")


ROLES = ("coordinator", "server")


def users(passwords):
    """The lines of docker/redis.sh about users."""
    with open(os.path.join(ROOT, "docker", "redis.sh")) as script:
        text = "\n".join(re.findall("^user .*$", script.read(), re.MULTILINE))
    for role in ROLES:
        assert f"#${role} " in text, text
        text = text.replace(f"#${role} ", f">{passwords[role]} ")
    return text.splitlines()


class SecuredRedis(Redis):
    """On TLS alone, with the users of docker/redis.sh."""

    def __init__(self, folder, authority, role="store"):
        self.passwords = {role: secrets.token_hex(16) for role in ROLES}
        self.authority, self.name = authority, role + ".weir"
        own = point_to(folder.file("own-" + role), authority.folder(role))
        self.set_certificates = lambda other: point_to(own, other)
        super().__init__(folder, has_tls=True, lines=users(self.passwords), appendonly="yes", tls_cert_file=own + "/cert.pem",
                         tls_key_file=own + "/key.pem", tls_ca_cert_file=own + "/ca.pem", tls_auth_clients="yes")

    def answers(self):
        assert self.process.child.poll() is None, self.process.output()[-2000:]
        try:
            return self.tell("coordinator", ("PING",)) == ["PONG"]
        except OSError:
            return False

    def url(self, user, role=None, name="store.weir"):
        own = self.authority.folder(role or user)
        return (f"rediss://{user}@{self.address}?ca={own}/ca.pem&cert={own}/cert.pem&key={own}/key.pem" +
                (f"&name={name}" if name else ""))

    def tell(self, user, *commands):
        """What the user is answered by a client that is no part of Weir."""
        own = self.authority.folder(user)
        context = ssl.create_default_context(cafile=own + "/ca.pem")
        context.load_cert_chain(own + "/cert.pem", own + "/key.pem")
        answers = []
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as link, \
                context.wrap_socket(link, server_hostname=self.name) as tls, tls.makefile("rb") as file:
            for command in (("AUTH", user, self.passwords[user]), *commands):
                tls.sendall(encode(command))
                try:
                    answers.append(decode(file))
                except RuntimeError as refusal:
                    answers.append(str(refusal).split()[0])
        return answers[1:]


def test_a_run_on_it_ends_in_the_bits_of_one_on_files():
    with Folder() as folder:
        folder.small_data(240, 48)
        spec = folder.small_spec(folder.model(*MODEL), 2, 8, 4)
        plain = folder.file("plain.jsonl")
        weir("train", spec, "--out", folder.file("out"), "--metrics", plain, "--threads", 1)
        authority = Authority(folder)
        with SecuredRedis(folder, authority) as redis:
            def variables(user):
                return {"env": {**os.environ, "WEIR_STORE_PASSWORD_FILE": folder.file(user, redis.passwords[user] + "\n")}}

            with Cluster(folder, servers=0, workers=1, store=redis.url("coordinator"), **variables("coordinator")) as cluster:
                cluster.store = redis.url("server")
                cluster.add_server(**variables("server"))
                weir("submit", spec, "train.steps=4", "--follow", "--coordinator", cluster.address)
                run = cluster.json("runs")[0]["run"]
                cluster.servers[0][0].send(9)
                cluster.add_server(**variables("server"))
                again = weir("fork", run, "train.steps=8", "--coordinator", cluster.address).stdout.strip()  # another server reads it
                weir("watch", again, "--coordinator", cluster.address)
                assert cluster.json("status", again)["weights_sha256"] == done_event(plain)["weights_sha256"]
                weir("verify", again, "--coordinator", cluster.address)


def test_it_and_its_users_know_each_other_by_role():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        with SecuredRedis(folder, authority) as redis, SecuredRedis(folder, authority, role="server") as false:
            def password(store):
                return {"WEIR_STORE_PASSWORD": store.passwords["coordinator"]}

            assert_opens(redis.url("coordinator"), **password(redis))
            assert_refused(redis.url("coordinator", name=None), "INVALID", "mismatch", **password(redis))
            assert_refused(false.url("coordinator"), "INVALID", "certificate is refused", **password(false))
            assert_refused(redis.url("coordinator"), "INVALID", "refuses the password", **password(false))
            strange = redis.url("coordinator").replace(authority.path, other.path)
            assert_refused(strange, "INVALID", "certificate is refused", **password(redis))
            for plain in (f"redis://coordinator@{redis.address}", f"redis://{redis.address}"):
                answer = opened(plain, **password(redis))
                assert answer.split()[0] in ("INVALID", "UNAVAILABLE"), answer
            nobody = re.sub("&cert=[^&]*&key=[^&]*", "", redis.url("coordinator"))
            assert_refused(nobody, "UNAVAILABLE", "", **password(redis))


def test_certificates_are_read_for_each_connection():
    """Those of a new authority, which a process has when it connects again; and files that are half replaced leave it with the
    ones that it had."""
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        link, halves = point_to(folder.file("link"), authority.folder("coordinator")), folder.file("halves")
        with SecuredRedis(folder, authority) as redis:
            url = redis.url("coordinator").replace(authority.folder("coordinator"), link)
            with Store(url, WEIR_STORE_PASSWORD=redis.passwords["coordinator"]) as store:
                assert store.opened == "ok", store.opened
                shutil.copytree(authority.folder("coordinator"), halves)
                shutil.copyfile(other.folder("coordinator") + "/key.pem", halves + "/key.pem")
                point_to(link, halves)
                redis.kill()
                redis.start()
                store.until_ok("put 1 100 1")
                redis.kill()
                redis.authority = other
                redis.set_certificates(other.folder("store"))
                point_to(link, other.folder("coordinator"))
                redis.start()
                store.until_ok("put 2 100 1")


def test_nothing_is_said_to_plaintext_nor_without_a_certificate():
    with Folder() as folder, SecuredRedis(folder, authority := Authority(folder)) as redis:
        with socket.create_connection(("127.0.0.1", redis.port), PATIENCE) as link:
            link.sendall(b"PING\r\n" * 8)
            try:
                assert b"PONG" not in link.recv(4096) and b"NOAUTH" not in link.recv(4096)
            except ConnectionError:
                pass
        context = ssl.create_default_context(cafile=authority.folder("worker") + "/ca.pem")
        try:
            with socket.create_connection(("127.0.0.1", redis.port), PATIENCE) as link, \
                    context.wrap_socket(link, server_hostname="store.weir") as tls:
                tls.sendall(encode(("PING",)))
                assert tls.recv(4096) == b"", "it answers somebody without a certificate"
        except (ssl.SSLError, ConnectionError):
            pass


def test_what_it_keeps_is_there_when_it_starts_again():
    """Whatever its users may do, it reads its own file; a script's writes are in one transaction there."""
    with Folder() as folder, SecuredRedis(folder, Authority(folder)) as redis:
        record, script = "{weir}:r:a", "redis.call('ZADD', KEYS[2], 0, 'a') return redis.call('SET', KEYS[1], 'x')"
        assert redis.tell("coordinator", ("EVAL", script, 2, record, "{weir}:names")) == ["OK"]
        redis.kill()
        redis.start()
        assert redis.tell("server", ("GET", record)) == ["x"]
        assert redis.tell("coordinator", ("ZRANGEBYLEX", "{weir}:names", "-", "+")) == [["a"]]


def test_a_user_can_do_what_its_role_needs_and_no_more():
    with Folder() as folder, SecuredRedis(folder, Authority(folder)) as redis:
        record, block = "{weir}:r:runs/a", "weir:b:" + "0" * 64
        assert redis.tell("coordinator", ("SET", record, "x"), ("SET", block, "y"), ("PING",)) == ["OK", "OK", "PONG"]
        assert redis.tell("server", ("GET", record), ("SET", block, "z"), ("GET", block), ("PING",)) == ["x", "OK", "z", "PONG"]
        refused = [("SET", record, "false"), ("DEL", record), ("UNLINK", block), ("SCAN", "0"), ("EVAL", "return 1", "0"),
                   ("SET", "other", "x"), ("GET", "other"), ("KEYS", "*")]
        assert redis.tell("server", *refused) == ["NOPERM"] * len(refused)
        every = [("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("SHUTDOWN",), ("DEBUG", "SLEEP", "0"), ("KEYS", "*"),
                 ("SET", "other", "x"), ("REPLICAOF", "127.0.0.1", "1"), ("MODULE", "LIST"), ("EVAL", "return redis.call('KEYS', '*')", "0")]
        for user in ROLES:
            answers = redis.tell(user, *every)
            assert all(answer in ("NOPERM", "ERR") for answer in answers), (user, answers)


if __name__ == "__main__":
    main(globals())
