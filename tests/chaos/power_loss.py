"""What a disk may hold after a power cut: rebuilt, out of the journal that crash_point.c kept, in place of the folder.

A name that no sync of its folder covered is, by chance, as before or as after any of the changes since; a content that
was not synced is cut, holds zeros or noise, or is whole. Names of one folder are independent of each other."""
import os
import shutil
from collections import Counter


class Disk:
    """Names and contents, each with what is durable and what came since."""

    def __init__(self, folder, state):
        self.folder, self.state = folder, state
        self.names = {}     # path: [durable, then later]; of each an inode, "folder" or None
        self.contents = {}  # inode: [bytes that are durable, bytes]
        with open(os.path.join(state, "journal")) as journal:
            for line in journal:
                verb, *words = line.split()
                getattr(self, verb)(*words)

    def set(self, path, what):
        self.names.setdefault(path, [None]).append(what)

    def settle(self, path):
        self.names[path] = self.names[path][-1:]

    def create(self, inode, path):
        self.contents[inode] = [0, 0]
        self.set(path, inode)

    def write(self, inode, size):
        if inode in self.contents:
            self.contents[inode][1] = int(size)

    def rename(self, source, target):
        self.set(target, self.names[source][-1])
        self.set(source, None)

    def unlink(self, path):
        self.set(path, None)

    def mkdir(self, path):
        self.set(path, "folder")

    def sync_file(self, inode):
        if inode in self.contents:
            self.contents[inode][0] = self.contents[inode][1]

    def sync_folder(self, folder):
        for path in self.names:
            if os.path.dirname(path) == folder:
                self.settle(path)

    def sync_all(self):
        for path in self.names:
            self.settle(path)
        for inode in self.contents:
            self.sync_file(inode)

    def damage(self, inode, chooser, loses_all, may_garble):
        durable, size = self.contents[inode]
        ways = ("cut", "zeroed", "garbled", "kept") if may_garble else ("cut", "kept")
        how = "cut" if loses_all else chooser.choice(ways)
        if how == "kept":
            return how
        cut = durable if loses_all else chooser.randint(durable, size)
        with open(os.path.join(self.state, "inodes", inode), "r+b") as file:
            file.truncate(cut)
            file.seek(cut)
            if how == "zeroed":
                file.write(bytes(size - cut))
            elif how == "garbled":
                file.write(chooser.randbytes(size - cut))
        return how

    def rebuild(self, chooser, may_garble):
        """Returns how many names and contents were lost."""
        lost, loses_all = Counter(), chooser.random() < 0.4
        for inode, (durable, size) in self.contents.items():
            if durable < size and self.damage(inode, chooser, loses_all, may_garble) != "kept":
                lost["contents"] += 1
                lost["bytes not synced"] += size - durable
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder)
        for path in sorted(self.names, key=lambda path: path.count("/")):
            versions = self.names[path]
            now = versions[0] if loses_all else chooser.choice(versions)
            lost["names"] += now != versions[-1]
            if path == self.folder or now is None or not os.path.isdir(os.path.dirname(path)):
                continue
            if now == "folder":
                os.mkdir(path)
            else:
                os.link(os.path.join(self.state, "inodes", now), path)
        return lost


def lose_power(folder, state, chooser, may_garble):
    return Disk(folder, state).rebuild(chooser, may_garble)
