"""Certificates that openssl makes with an authority of `weir certs init`: what Weir itself makes none of, such as expired
ones."""
import datetime
import os
import subprocess

from harness import weir

PURPOSES = "extendedKeyUsage = serverAuth,clientAuth"


def openssl(*arguments, **options):
    """Runs it to its end; the output must be good. Returns its stdout."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, errors="replace",
                          check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stamp(days):
    """A moment so many days from now, as `openssl ca` reads it."""
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).strftime("%Y%m%d%H%M%SZ")


def point_to(link, target):
    """Switches the link at once."""
    os.symlink(target, link + ".new")
    os.rename(link + ".new", link)
    return link


class Authority:
    """The folder `name` below a test's folder, made by weir."""

    def __init__(self, folder, name="ca"):
        self.path = folder.file(name)
        weir("certs", "init", self.path)

    def folder(self, role):
        return os.path.join(self.path, role)

    def issue(self, out, names, days=(-1, 30), extension=PURPOSES):
        """A folder, as --tls takes it, whose certificate has these names and is valid between these days from now on."""
        os.mkdir(out)
        files = {name: os.path.join(out, name) for name in ("key.pem", "request", "cert.pem", "index", "config")}
        with open(files["config"], "w") as config:
            config.write(f"[ca]\ndefault_ca = weir\n[weir]\ndatabase = {files['index']}\nrand_serial = yes\n"
                         f"new_certs_dir = {out}\ncertificate = {self.path}/ca.pem\nprivate_key = {self.path}/ca-key.pem\n"
                         f"default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n[leaf]\n"
                         f"basicConstraints = critical,CA:FALSE\n{extension}\nsubjectAltName = {names}\n")
        open(files["index"], "w").close()
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test", "-keyout",
                files["key.pem"], "-out", files["request"])
        openssl("ca", "-batch", "-notext", "-config", files["config"], "-extensions", "leaf", "-startdate", stamp(days[0]),
                "-enddate", stamp(days[1]), "-in", files["request"], "-out", files["cert.pem"])
        openssl("x509", "-in", os.path.join(self.path, "ca.pem"), "-out", os.path.join(out, "ca.pem"))
        return out
