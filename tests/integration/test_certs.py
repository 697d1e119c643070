"""`weir certs`: what openssl says of the certificates that it makes, and what it refuses."""
import datetime
import os
import re
import shutil
import stat

from certificates import Authority, openssl, point_to, stamp
from harness import Folder, main, weir

MEMBER = {role: f"URI:spiffe://weir/{role}/{role}, DNS:{role}.weir, DNS:member.weir"
          for role in ("coordinator", "server", "worker")}
NAMES = {**MEMBER,
         "all": "URI:spiffe://weir/all/all, DNS:all.weir, DNS:coordinator.weir, DNS:server.weir, DNS:worker.weir, "
                "DNS:member.weir",
         "client": "URI:spiffe://weir/client/default/operator/client, DNS:client.weir",
         "store": "URI:spiffe://weir/store/store, DNS:store.weir"}


def modes(top):
    """The mode of every file and folder below, and of the folder itself as ''."""
    found = {"": os.stat(top).st_mode}
    for path, folders, files in os.walk(top):
        for name in folders + files:
            found[os.path.relpath(os.path.join(path, name), top)] = os.stat(os.path.join(path, name)).st_mode
    return {name: stat.S_IMODE(mode) for name, mode in found.items()}


def contents(top):
    found = {}
    for path, _, files in os.walk(top):
        for name in files:
            with open(os.path.join(path, name), "rb") as file:
                found[os.path.join(path, name)] = file.read()
    return found


def date_of(certificate, which):
    text = openssl("x509", "-in", certificate, "-noout", f"-{which}").split("=", 1)[1].strip()
    return datetime.datetime.strptime(text, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=datetime.timezone.utc)


def names_of(certificate):
    return openssl("x509", "-in", certificate, "-noout", "-ext", "subjectAltName").splitlines()[1].strip()


def refused(*arguments, says):
    """The command fails with exit status 2 and one line on stderr that holds `says`."""
    done = weir("certs", *arguments, status=2)
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr
    return done.stderr


def test_openssl_accepts_every_certificate_of_a_new_authority():
    with Folder() as folder:
        authority = Authority(folder)
        for role, names in NAMES.items():
            certificate = os.path.join(authority.folder(role), "cert.pem")
            for purpose in ("sslserver", "sslclient"):
                openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile",
                        os.path.join(authority.folder(role), "ca.pem"), certificate)
            assert names_of(certificate) == names
            key = openssl("pkey", "-in", os.path.join(authority.folder(role), "key.pem"), "-pubout")
            assert key == openssl("x509", "-in", certificate, "-noout", "-pubkey"), role


def test_only_the_owner_may_read_folders_and_keys():
    with Folder() as folder:
        old = os.umask(0)
        try:
            path = Authority(folder).path
        finally:
            os.umask(old)
        wanted = {"": 0o700, "ca.pem": 0o644, "ca-key.pem": 0o600}
        for role in NAMES:
            wanted.update({role: 0o700, f"{role}/ca.pem": 0o644, f"{role}/cert.pem": 0o644, f"{role}/key.pem": 0o600})
        assert modes(path) == wanted


def test_certificates_begin_a_day_back_and_end_when_asked_but_with_their_authority():
    with Folder() as folder:
        authority, day = Authority(folder), datetime.timedelta(days=1)
        ends = date_of(os.path.join(authority.path, "ca.pem"), "enddate")
        for days in (1, 365, 3650):
            weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--days", days, folder.file(f"w{days}"))
            certificate = folder.file(f"w{days}/cert.pem")
            begin, end = date_of(certificate, "startdate"), date_of(certificate, "enddate")
            assert end == ends or end - begin == (days + 1) * day, (begin, end)
            assert end <= ends
            assert abs(datetime.datetime.now(datetime.timezone.utc) - begin - day) < day / 24


def test_a_certificate_names_its_holder_as_asked():
    with Folder() as folder:
        authority = Authority(folder)
        issue = ("certs", "issue", "--ca", authority.path, "--role")
        done = weir(*issue, "worker", "--name", "gpu-7", folder.file("gpu-7"))
        assert done.stdout == f"{folder.file('gpu-7')}: spiffe://weir/worker/gpu-7\n"
        assert names_of(folder.file("gpu-7/cert.pem")).startswith("URI:spiffe://weir/worker/gpu-7, DNS:worker.weir")
        weir(*issue, "client", "--name", "ann", "--tenant", "vision", "--access", "viewer", folder.file("ann"))
        assert names_of(folder.file("ann/cert.pem")) == "URI:spiffe://weir/client/vision/viewer/ann, DNS:client.weir"
        weir(*issue, "worker", "--name", "gpu-8", "--tenant", "vision", folder.file("gpu-8"))
        assert names_of(folder.file("gpu-8/cert.pem")).startswith("URI:spiffe://weir/worker/vision/gpu-8, DNS:worker.weir")
        assert re.search("^tenant +vision$", weir("certs", "show", folder.file("gpu-8")).stdout, re.MULTILINE)
        weir(*issue, "client", folder.file("usual"))
        assert "spiffe://weir/client/default/submitter/client" in names_of(folder.file("usual/cert.pem"))
        shown = weir("certs", "show", folder.file("ann")).stdout
        for line in ("role +client", "name +ann", "tenant +vision", "access +viewer", r"authority +Weir CA [0-9a-f]{8}",
                     r"valid until +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"):
            assert re.search(f"^{line}$", shown, re.MULTILINE), (line, shown)
        fingerprint = openssl("x509", "-in", folder.file("ann/cert.pem"), "-noout", "-fingerprint", "-sha256")
        serial = openssl("x509", "-in", folder.file("ann/cert.pem"), "-noout", "-serial")
        assert fingerprint.split("=")[1].strip() in shown and serial.split("=")[1].strip() in shown, shown


def test_nothing_is_ever_overwritten():
    with Folder() as folder:
        authority = Authority(folder)
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", folder.file("worker"))
        folder.file("file", "mine")
        before = contents(folder.path)
        for out in (authority.path, authority.path + "/", folder.file("worker"), folder.file("file")):
            refused("init", out, says="is there already, and no certificate or key is overwritten")
            refused("issue", "--ca", authority.path, "--role", "server", out, says="is there already")
        refused("init", folder.file("no/such"), says="cannot make the folder")
        assert contents(folder.path) == before  # no unfinished folder either
        os.mkdir(folder.file("empty"), 0o755)
        weir("certs", "issue", "--ca", authority.path, "--role", "server", folder.file("empty"))
        assert modes(folder.file("empty"))[""] == 0o700


def test_what_is_no_order_is_refused_in_one_line():
    with Folder() as folder:
        authority = Authority(folder)
        issue, out = ("issue", "--ca", authority.path, "--role"), folder.file("out")
        refused("issue", "--role", "worker", out, says="--ca CA_DIR and --role ROLE are needed")
        refused("issue", "--ca", authority.path, out, says="--ca CA_DIR and --role ROLE are needed")
        refused(*issue, "boss", out, says="'boss' is no role: there are coordinator, server, worker, all, client and store")
        refused(*issue, "client", "--access", "root", out, says="'root' is no access: there are viewer")
        refused(*issue, "server", "--tenant", "a", out, says="--tenant is for --role client and --role worker")
        for word in ("", "a b", "a/b", ".a", "-a", "a\nb", "ä", "x" * 64, "a,DNS:server.weir"):
            refused(*issue, "worker", f"--name={word}", out, says="is not 1 to 63 letters, digits")
            refused(*issue, "client", f"--tenant={word}", out, says="is not 1 to 63 letters, digits")
        refused(*issue, "worker", "--days", "0", out, says="must be from 1 to 3650")
        refused("issue", "--ca", authority.folder("worker"), "--role", "worker", out, says="ca-key.pem: No such file")
        assert not os.path.exists(out)


def test_an_authority_that_is_none_signs_nothing():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        bad, out = folder.file("bad"), folder.file("out")
        for name, source, says in (("ca-key.pem", other.path + "/ca-key.pem", "this key is not that of"),
                                   ("ca-key.pem", authority.path + "/ca.pem", "not a private key in PEM"),
                                   ("ca.pem", authority.path + "/ca-key.pem", "not a certificate in PEM"),
                                   ("ca.pem", "/dev/null", "not a certificate in PEM")):
            shutil.copytree(authority.path, bad)
            shutil.copyfile(source, os.path.join(bad, name))
            refused("issue", "--ca", bad, "--role", "worker", out, says=says)
            shutil.rmtree(bad)
        os.mkdir(bad)
        for name in ("ca.pem", "ca-key.pem"):
            shutil.copyfile(authority.folder("all") + "/" + {"ca.pem": "cert.pem", "ca-key.pem": "key.pem"}[name],
                            os.path.join(bad, name))
        refused("issue", "--ca", bad, "--role", "worker", out, says="this certificate is not an authority's")
        assert not os.path.exists(out)


def test_show_says_why_a_folder_cannot_be_used():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        names = "URI:spiffe://weir/worker/w,DNS:worker.weir"
        past, future = authority.issue(folder.file("past"), names, (-9, -2)), authority.issue(folder.file("future"), names, (2, 9))
        until = f"{stamp(-2)[:4]}-{stamp(-2)[4:6]}-{stamp(-2)[6:8]}"
        refused("show", past, says=f"past/cert.pem: it was valid until {until}")
        refused("show", future, says="future/cert.pem: it is valid from")
        refused("show", authority.issue(folder.file("two"), names + ",URI:spiffe://weir/worker/v"), says="it has 2 URIs")
        refused("show", authority.issue(folder.file("none"), "DNS:worker.weir"), says="it has 0 URIs")
        refused("show", authority.issue(folder.file("foreign"), "URI:spiffe://other/worker/w"), says="names no member")
        refused("show", authority.issue(folder.file("half"), names, extension="extendedKeyUsage = serverAuth"),
                says="it is not for both ends of TLS")
        good = authority.issue(folder.file("good"), names)
        assert re.search("^role +worker$", weir("certs", "show", good).stdout, re.MULTILINE)
        for name, text, says in (("key.pem", open(authority.folder("worker") + "/key.pem").read(), "is not that of"),
                                 ("ca.pem", open(other.path + "/ca.pem").read(), "no authority of"),
                                 ("ca.pem", "", "not a list of certificates"), ("key.pem", "junk", "not a private key"),
                                 ("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not a certificate"),
                                 ("cert.pem", "\0", "not a PEM file"), ("cert.pem", None, "No such file")):
            bad = folder.file("bad")
            shutil.copytree(good, bad)
            os.unlink(os.path.join(bad, name))
            if text is not None:
                with open(os.path.join(bad, name), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(text)
            refused("show", bad, says=says)
            shutil.rmtree(bad)
        os.chmod(os.path.join(good, "key.pem"), 0o644)
        refused("show", good, says="chmod 600 it")


def test_a_folder_is_renewed_as_it_is():
    """The holder, owner and modes stay, and what else is in it; also through a link, and of a certificate that has ended."""
    with Folder() as folder:
        authority = Authority(folder)
        ann, link = folder.file("ann"), point_to(folder.file("link"), folder.file("ann"))
        weir("certs", "issue", "--ca", authority.path, "--role", "client", "--name", "ann", "--tenant", "vision", "--access", "viewer", ann)
        folder.file("ann/denied.txt", "worker/gpu-7\n")
        os.chmod(ann, 0o750)
        os.chmod(ann + "/key.pem", 0o640)
        before, had, names = modes(ann), contents(ann), names_of(ann + "/cert.pem")
        done = weir("certs", "renew", "--ca", authority.path, "--days", "9", link)
        assert done.stdout.startswith(f"{link}: spiffe://weir/client/vision/viewer/ann, serial ") and done.stdout.count("\n") == 1, done
        now = contents(ann)
        assert modes(ann) == before and names_of(ann + "/cert.pem") == names and os.path.islink(link)
        assert {os.path.basename(path) for path in had if now[path] != had[path]} == {"cert.pem", "key.pem"}
        day = datetime.timedelta(days=1)
        assert date_of(ann + "/cert.pem", "enddate") - date_of(ann + "/cert.pem", "startdate") == 10 * day
        past = authority.issue(folder.file("past"), "URI:spiffe://weir/worker/w,DNS:worker.weir", (-9, -2))
        for name in ("index", "config", "request"):
            os.unlink(os.path.join(past, name))
        weir("certs", "renew", "--ca", authority.path, past)
        weir("certs", "show", past)
        assert sorted(os.listdir(folder.path)) == ["ann", "ca", "link", "past"]  # nothing is left beside them


def test_a_key_that_all_users_could_read_is_replaced_by_one_of_its_owner():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        server = authority.folder("server")
        key = server + "/key.pem"
        os.chmod(key, 0o644)
        before = contents(server)
        done = refused("trust", "--ca", other.path, server, says=f"would be of no use: {os.path.realpath(key)}: all users of this machine")
        assert "chmod 600 it" in done and contents(server) == before, done
        weir("certs", "renew", "--ca", authority.path, server)
        assert modes(server)["key.pem"] == 0o600 and contents(server)[key] != before[key]
        refused("trust", "--alone", "--ca", other.path, server, says=f"no authority of {os.path.realpath(server)}/ca.pem has signed it")
        weir("certs", "show", server)


def test_a_new_authority_takes_three_steps_and_none_is_left_out():
    with Folder() as folder:
        old, new = Authority(folder), Authority(folder, "new")
        every = [old.folder(role) for role in NAMES]
        before = contents(folder.path)
        refused("renew", "--ca", new.path, *every, says="must be trusted everywhere, by `weir certs trust --ca")
        refused("trust", "--ca", new.path, "--alone", *every, says="is left as it is, for it would be of no use")
        assert contents(folder.path) == before
        for said in ("as well", "as well, as it did"):
            done = weir("certs", "trust", "--ca", new.path, *every)
            assert done.stdout == "".join(f"{path}: trusts {new.path} {said}\n" for path in every), done
        refused("trust", "--ca", new.path, "--alone", every[0], says="no authority of")
        weir("certs", "renew", "--ca", old.path, every[0])  # either is good for now
        weir("certs", "renew", "--ca", new.path, *every)
        for said in ("alone", "alone, as it did"):
            done = weir("certs", "trust", "--ca", new.path, "--alone", *every)
            assert done.stdout == "".join(f"{path}: trusts {new.path} {said}\n" for path in every), done
        for role, path in zip(NAMES, every):
            assert names_of(path + "/cert.pem") == NAMES[role]
            openssl("verify", "-x509_strict", "-CAfile", new.path + "/ca.pem", path + "/cert.pem")
        refused("renew", "--ca", old.path, every[0], says="does not have the authority of")


def test_a_folder_that_cannot_be_renewed_is_left_as_it_is():
    with Folder() as folder:
        authority = Authority(folder)
        before = contents(folder.path)
        refused("renew", "--ca", authority.path, authority.path, says="No such file")  # an authority's own
        refused("renew", "--ca", authority.folder("worker"), authority.folder("server"), says="ca-key.pem: No such file")
        refused("renew", "--ca", authority.path, folder.file("none"), says="No such file")
        refused("renew", authority.folder("server"), says="--ca CA_DIR is needed")
        refused("trust", authority.folder("server"), says="--ca CA_DIR is needed")
        refused("trust", "--ca", folder.file("none"), authority.folder("server"), says="No such file")
        refused("renew", "--ca", authority.path, "--days", "0", authority.folder("server"), says="must be from 1 to 3650")
        os.mkdir(authority.folder("server") + "/more")
        refused("renew", "--ca", authority.path, authority.folder("server"), says="more: a folder of certificates has no folders in it")
        os.rmdir(authority.folder("server") + "/more")
        assert contents(folder.path) == before


def test_show_shows_an_authority():
    with Folder() as folder:
        authority = Authority(folder)
        shown = weir("certs", "show", authority.path).stdout
        serial = openssl("x509", "-in", os.path.join(authority.path, "ca.pem"), "-noout", "-serial")
        assert serial.split("=")[1].strip() in shown and "role" not in shown, shown


if __name__ == "__main__":
    main(globals())
