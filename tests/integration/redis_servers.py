"""Real redis-servers for tests: on ports of their own of loopback, in a test's folder, ended by pid."""
import os
import shutil
import signal
import socket
import subprocess

from harness import PATIENCE, Process, Skip, reserve_port, wait_for


def need(*programs):
    for name in programs:
        if not shutil.which(name):
            raise Skip(f"{name} is not installed")


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def decode(file):
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server went")
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else file.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return [decode(file) for _ in range(int(rest))]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    return int(rest) if kind == b":" else rest.decode()


class Redis:
    """One redis-server; sentinel: a redis-sentinel. has_tls: on its port. options, lines: its configuration."""

    def __init__(self, folder, sentinel=False, has_tls=False, lines=(), **options):
        need("redis-sentinel" if sentinel else "redis-server")
        self.sentinel, self.port = sentinel, reserve_port()
        self.path = os.path.join(folder.path, f"redis-{self.port}")
        self.socket_path = os.path.join(self.path, "redis.sock")
        os.mkdir(self.path)
        self.config = os.path.join(self.path, "redis.conf")
        basics = {"port": 0 if has_tls else self.port, "tls_port": self.port if has_tls else 0, "bind": "127.0.0.1", "dir": self.path, "daemonize": "no",
                  "loglevel": "warning" if not sentinel else "notice"}
        if not sentinel:
            basics.update({"save": '""', "appendonly": "no", "unixsocket": self.socket_path,
                           "repl-diskless-sync-delay": 0})
        self.password = options.get("requirepass")
        with open(self.config, "w") as out:
            for name, value in {**basics, **options}.items():
                out.write(f"{name.replace('_', '-')} {value}\n")
            out.writelines(line + "\n" for line in lines)
        self.process = None
        self.start()

    def start(self):
        command = ["redis-sentinel" if self.sentinel else "redis-server", self.config]
        self.process = Process(*command)
        wait_for(self.answers, f"a redis at {self.port}: {self.process.output()[-500:]}")

    def answers(self):
        assert self.process.child.poll() is None, self.process.output()[-2000:]
        try:
            if self.sentinel:
                self.call("PING")
            else:
                self.local("PING")
            return True
        except (OSError, RuntimeError):
            return False

    def call(self, *words):
        """The reply to one command over TCP."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as link:
            return self.talk(link, words)

    def local(self, *words):
        """The same over the unix socket, which is there with TLS too."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(PATIENCE)
            link.connect(self.socket_path)
            return self.talk(link, words)

    def talk(self, link, words):
        with link.makefile("rb") as file:
            if self.password:
                link.sendall(encode(("AUTH", self.password)))
                decode(file)
            link.sendall(encode(words))
            return decode(file)

    def info(self, key):
        """None, too, where the server cuts the connection: one whose role changes ends those of all its clients."""
        try:
            text = self.local("INFO")
        except OSError:
            return None
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line).get(key)

    def wait_follows(self, master):
        """Until this replica has acknowledged something that was written to the master once both were connected. It
        says that its link is up before the master, which may still wait for the end of its own transfer, sends it
        writes and counts what it acknowledges: that may take until the next second's acknowledgement."""
        wait_for(lambda: self.info("master_link_status") == "up", "the replica's link")
        master.local("PUBLISH", "weir:test", "written")
        offset = int(master.info("master_repl_offset"))
        wait_for(lambda: (master.acknowledged(self) or 0) >= offset, "the replica's acknowledgement")

    def acknowledged(self, replica):
        """Up to where the replica has; None: it is not connected."""
        for line in self.local("INFO").splitlines():
            if line.startswith("slave") and f"port={replica.port}," in line and "state=online," in line:
                return int(line.split("offset=")[1].split(",")[0])
        return None

    def kill(self):
        if self.process.child.poll() is None:
            self.process.send(signal.SIGKILL)
        self.process.wait()

    def send(self, number):
        self.process.send(number)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.child.poll() is None:
            self.process.send(signal.SIGCONT)
        self.process.__exit__()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"


class Group:
    """Several servers, ended together."""

    def __init__(self):
        self.servers = []

    def add(self, server):
        self.servers.append(server)
        return server

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for server in self.servers:
            server.__exit__()


# Milliseconds after which servers think that one of theirs is gone: longer than a busy machine keeps one waiting.
GONE_AFTER_MS = 60000


def make_cluster(folder, group, nodes=3, **options):
    """Masters with a third of the slots each."""
    servers = [group.add(Redis(folder, cluster_enabled="yes", cluster_node_timeout=GONE_AFTER_MS, **options))
               for _ in range(nodes)]
    for number, server in enumerate(servers):
        first, last = 16384 * number // nodes, 16384 * (number + 1) // nodes - 1
        server.local("CLUSTER", "ADDSLOTSRANGE", first, last)
        server.local("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number > 0:
            server.local("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    wait_for(lambda: all("cluster_state:ok" in server.local("CLUSTER", "INFO") and
                         f"cluster_known_nodes:{nodes}" in server.local("CLUSTER", "INFO") for server in servers),
             "a cluster of redis-servers")
    return servers


def make_sentinels(folder, group, master, password, n=3):
    """They call the master "main", ask for its password themselves, and hold it for alive until fail_over()."""
    lines = [f"sentinel monitor main 127.0.0.1 {master.port} 2", f"sentinel auth-pass main {password}",
             f"sentinel down-after-milliseconds main {GONE_AFTER_MS}", "sentinel failover-timeout main 2000"]
    sentinels = [group.add(Redis(folder, sentinel=True, lines=lines, requirepass=password)) for _ in range(n)]
    for sentinel in sentinels:
        try:  # from release 7 on they can be made to look more often than every ten seconds
            sentinel.call("SENTINEL", "DEBUG", "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 500)
        except RuntimeError:
            pass
    wait_for(lambda: all(len(sentinel.call("SENTINEL", "SENTINELS", "main")) == n - 1 and
                         len(sentinel.call("SENTINEL", "REPLICAS", "main")) == 1 for sentinel in sentinels),
             "sentinels that know each other")
    return sentinels


def fail_over(sentinels, replica):
    """The replica becomes the master in the place of one that was killed. Sentinels look often only until then: on a
    busy machine they would do the same to the new one."""
    def set_patience(milliseconds):
        for sentinel in sentinels:
            sentinel.call("SENTINEL", "SET", "main", "down-after-milliseconds", milliseconds)
    set_patience(1000)
    wait_for(lambda: replica.info("role") == "master", "another master")
    set_patience(GONE_AFTER_MS)


class Certificates:
    """An authority, a server's certificate for localhost and 127.0.0.1, one for another host, a client's."""

    def __init__(self, folder):
        need("openssl")
        self.path = os.path.join(folder.path, "tls")
        os.mkdir(self.path)
        self.authority("ca")
        self.authority("stranger")
        self.certificate("server", "DNS:localhost,IP:127.0.0.1")
        self.certificate("elsewhere", "DNS:elsewhere.example")
        self.certificate("client", "DNS:client")

    def file(self, name):
        return os.path.join(self.path, name)

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-subj", f"/CN={name}", "-keyout", self.file(f"{name}.key"), "-out", self.file(f"{name}.crt"))

    def certificate(self, name, names):
        with open(self.file(f"{name}.ext"), "w") as out:
            out.write(f"subjectAltName={names}\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", self.file(f"{name}.key"), "-out", self.file(f"{name}.csr"))
        self.openssl("x509", "-req", "-in", self.file(f"{name}.csr"), "-CA", self.file("ca.crt"), "-CAkey",
                     self.file("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", self.file(f"{name}.ext"),
                     "-out", self.file(f"{name}.crt"))

    def options(self):
        """Of a redis-server that speaks TLS on its port only, and asks for no client's certificate."""
        return {"tls_cert_file": self.file("server.crt"), "tls_key_file": self.file("server.key"),
                "tls_ca_cert_file": self.file("ca.crt"), "tls_auth_clients": "no"}
