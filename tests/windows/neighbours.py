"""Behaviour that differs on Windows, or might: several processes with one store, databases of other
programs, names of open files, long paths. Each scenario has its own folder and communicates with
its processes in lines."""

import hashlib
import pathlib
import subprocess
import tempfile
import threading

from kit import Failed

PATIENCE = 120  # seconds

OK, BUSY, NOTFOUND, CANTOPEN, NOTADB, ERROR = 0, 5, 12, 14, 26, 1
DONE, REFUSED = "done", "refused"
TRUNCATE = 3


def expect(is_so, what):
    if not is_so:
        raise Failed(what)


class Process:
    """A process that reads commands in lines."""

    is_killed = False

    def __init__(self, compiler, program, *arguments, cwd):
        self.process = compiler.start(program, *arguments, cwd=cwd)
        self.hear()

    def hear(self):
        late = threading.Timer(PATIENCE, self.process.kill)
        late.start()
        line = self.process.stdout.readline().decode().rstrip("\n")
        late.cancel()
        if not line and self.process.poll() is not None:
            raise Failed(f"a process has ended with {self.process.returncode}: {self.process.stderr.read().decode()}")
        return line

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def kill(self):
        self.is_killed = True
        self.process.kill()
        self.process.wait()

    def end(self):
        """Raises Failed unless the process succeeds."""
        if self.is_killed:
            return
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("a process does not end") from None
        expect(code == 0, f"a process has ended with {code}")


class Speaker(Process):
    """A process with stores, and with operations on files."""

    def answer(self):
        code, _, text = self.hear().partition("\t")
        return (int(code) if code.lstrip("-").isdigit() else code), text

    def call(self, *words):
        self.tell("\t".join(map(str, words)))
        return self.answer()

    def gives(self, code, *words):
        found, text = self.call(*words)
        expect(found == code, f"{words}: {found} and not {code}: {text}")
        return text


class Scene:
    """A folder, and the processes that use it."""

    def __init__(self, compiler, folder):
        self.compiler, self.folder, self.processes = compiler, folder, []

    def enter(self, process):
        self.processes.append(process)
        return process

    def speaker(self):
        return self.enter(Speaker(self.compiler, self.compiler.folder / "speak.exe", cwd=self.folder))

    def other(self, path):
        return self.enter(Process(self.compiler, self.compiler.folder / "other.exe", path, cwd=self.folder))

    def at(self, name):
        """Returns the path of a file in Windows form."""
        return "Z:" + str(self.folder / name).replace("/", "\\")

    def leave(self):
        failures = []
        for process in self.processes:
            try:
                process.end()
            except (Failed, OSError) as why:
                process.kill()
                failures.append(str(why))
        expect(not failures, "; ".join(failures))


def contents(folder, name):
    """Returns the content of a database and its log files by name, without the shared memory."""
    files = [folder / (name + suffix) for suffix in ("", "-wal", "-journal")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()}


def another_programs_wal_database_is_refused_and_not_changed(scene):
    """Has a store open in the process, in which the two files were once taken for one."""
    for state in ("in use", "left", "all in the log", "closed"):
        name = f"{state}.db".replace(" ", "-")
        other = scene.other(name)
        expect(other.ask("PRAGMA journal_mode = WAL") == "wal", "no WAL")
        other.ask("PRAGMA wal_autocheckpoint = 0")
        other.ask("CREATE TABLE t (a); INSERT INTO t VALUES ('precious')")
        if state != "all in the log":
            other.ask("PRAGMA wal_checkpoint")
        other.ask("INSERT INTO t VALUES ('more')")
        if state == "closed":
            other.end()
        elif state != "in use":
            other.kill()
        us = scene.speaker()
        us.gives(OK, "open", 0, "ours.db")
        us.gives(OK, "put", 0, "key", "value")
        before = contents(scene.folder, name)
        expect(state == "closed" or f"{name}-wal" in before, f"{state}: there is no log")
        for read_only in (0, 1):
            us.gives(NOTADB, "open", 1, name, 0, read_only)
            expect(contents(scene.folder, name) == before, f"{state}: it was changed")
        us.gives(OK, "put", 0, "key", "value 2")
        us.gives(OK, "close", 0)
        us.end()
        reader = other if state == "in use" else scene.other(name)
        expect(reader.ask("SELECT count(*) FROM t") == "2", f"{state}: rows are missing")
        expect(reader.ask("PRAGMA integrity_check") == "ok", f"{state}: it is damaged")
        expect(reader.ask("SELECT count(*) FROM sqlite_schema") == "1", f"{state}: it has our tables")


def another_program_reads_and_writes_an_open_store(scene):
    us = scene.speaker()
    us.gives(OK, "open", 0, "a.db")
    us.gives(OK, "fill", 0, "k", 100)
    other = scene.other("a.db")
    expect(other.ask('SELECT count(*) FROM "live:default"') == "100", "it sees other rows")
    other.ask("DELETE FROM \"data:default\" WHERE key = CAST('k7' AS BLOB)")
    us.gives(NOTFOUND, "get", 0, "k7")
    other.ask("BEGIN IMMEDIATE")
    second = scene.speaker()
    second.gives(OK, "open", 0, "a.db")
    expect(second.gives(OK, "count", 0) == "99", "a reader waits for a writer")
    other.ask("ROLLBACK")
    other.end()
    us.gives(OK, "put", 0, "k7", "again")
    expect(second.gives(OK, "get", 0, "k7") == "again", "the neighbour does not see it")
    us.gives(OK, "check", 0)


def processes_see_each_others_commits_at_once(scene):
    for hold in (0, 1, -1):
        path = f"hold{hold}.db"
        first, second = scene.speaker(), scene.speaker()
        first.gives(OK, "open", 0, path, hold)
        first.gives(OK, "put", 0, "key", "0")
        expect(first.gives(OK, "get", 0, "key") == "0", "its own")
        second.gives(OK, "open", 0, path, hold)
        for i in range(1, 50):
            writer, reader = (first, second) if i % 2 else (second, first)
            writer.gives(OK, "put", 0, "key", i)
            expect(reader.gives(OK, "get", 0, "key") == str(i), f"hold {hold}: {i} is not seen")


def a_snapshot_that_is_held_keeps_the_log_and_one_beside_company_does_not(scene):
    for hold, is_kept in ((1, True), (0, False), (-1, False)):
        path = f"hold{hold}.db"
        reader, writer = scene.speaker(), scene.speaker()
        writer.gives(OK, "open", 0, path)
        writer.gives(OK, "fill", 0, "k", 20)
        reader.gives(OK, "open", 0, path, hold)
        reader.gives(OK, "get", 0, "k1")
        writer.gives(OK, "fill", 0, "l", 20)
        code, text = writer.call("checkpoint", 0, TRUNCATE)
        expect((code == BUSY) == is_kept, f"hold {hold}: {code} {text}")
        # Its next read is up to date.
        reader.gives(OK, "get", 0, "l19")
        writer.gives(OK, "put", 0, "l19", "new")
        expect(reader.gives(OK, "get", 0, "l19") == "new", "an old snapshot")


def an_open_store_can_be_neither_deleted_nor_renamed(scene):
    (scene.folder / "in").mkdir()
    us, them = scene.speaker(), scene.speaker()
    path = scene.at("in/a.db")
    us.gives(OK, "open", 0, path)
    us.gives(OK, "put", 0, "key", "value")
    for who in (us, them):
        for suffix in ("", "-wal", "-shm"):
            who.gives(REFUSED, "delete", path + suffix)
            who.gives(REFUSED, "rename", path + suffix, scene.at("elsewhere.db"))
    # (The folder cannot be renamed either, but wine permits it.)
    us.gives(OK, "put", 0, "key", "value 2")
    us.gives(OK, "sync", 0)
    # A file cannot be renamed to an existing name either.
    (scene.folder / "new.db").write_bytes(b"")
    them.gives(REFUSED, "rename", scene.at("new.db"), path)
    us.gives(OK, "close", 0)
    expect(not list((scene.folder / "in").glob("*-wal")), "the log is still there")
    them.gives(DONE, "rename", scene.at("in"), scene.at("out"))
    them.gives(OK, "open", 0, scene.at("out/a.db"))
    expect(them.gives(OK, "get", 0, "key") == "value 2", "it is another one")
    them.gives(OK, "close", 0)
    them.gives(DONE, "delete", scene.at("out/a.db"))
    us.gives(CANTOPEN, "open", 0, scene.at("out/a.db"), 0, 1)


def paths_of_any_letters_and_of_any_length(scene):
    folder = scene.folder
    for part in ("Zähler 日本語", "ordner-" + "x" * 100, "ordner-" + "ü" * 90, "🔑" * 20, "b" * 120):
        folder = folder / part
    folder.mkdir(parents=True)
    path = scene.at(folder.relative_to(scene.folder) / "schlüssel 鍵.db")
    expect(len(path) > 300, "the path is short")
    for name in (path, "\\\\?\\" + path):
        us, them = scene.speaker(), scene.speaker()
        us.gives(OK, "open", 0, name)
        us.gives(OK, "put", 0, "key", "value")
        expect((folder / "schlüssel 鍵.db-wal").exists(), "there is no log of that name")
        them.gives(OK, "open", 0, name)
        expect(them.gives(OK, "get", 0, "key") == "value", "two names, two files")
        us.gives(OK, "sync", 0)
        us.gives(OK, "check", 0)
        # (wine 8 cannot rename a file with such a long path. This path has more than 260 bytes, but
        # fewer characters.)
        copy = scene.at(f"Kopie 写し {'ü' * 100} {len(name)}")
        us.gives(OK, "backup", 0, copy)
        us.gives(ERROR, "backup", 0, copy)
        us.gives(OK, "close", 0)
        them.gives(OK, "close", 0)
        them.gives(OK, "open", 1, copy, 0, 1)
        expect(them.gives(OK, "get", 1, "key") == "value", "the copy is empty")
        them.gives(OK, "close", 1)
    left = sorted(file.name for file in folder.iterdir())
    expect(left == ["schlüssel 鍵.db"], f"there is something left: {left}")
    too_long = scene.at("x" * 300)
    scene.speaker().gives(CANTOPEN, "open", 0, too_long)


def bytes_that_are_no_utf8_are_no_path(scene):
    us = scene.speaker()
    us.process.stdin.write(b"open\t0\t\xff\xfe.db\n")
    us.process.stdin.flush()
    code, text = us.answer()
    expect((code, "UTF-8" in text) == (ERROR, True), f"{code} {text}")
    expect(not list(scene.folder.iterdir()), "a file was made")


def one_file_by_two_spellings_is_one_store(scene):
    us, them = scene.speaker(), scene.speaker()
    us.gives(OK, "open", 0, "store.db")
    us.gives(OK, "put", 0, "key", "1")
    us.gives(OK, "open", 1, "STORE.db")
    them.gives(OK, "open", 0, scene.at("Store.DB"))
    for i in range(20):
        us.gives(OK, "put", i % 2, "key", i)
        expect(us.gives(OK, "get", (i + 1) % 2, "key") == str(i), "within the process")
        expect(them.gives(OK, "get", 0, "key") == str(i), "by another process")
    us.gives(OK, "check", 1)
    expect(len(list(scene.folder.glob("*-wal"))) == 1, "there are two logs")


def a_file_with_two_names_is_refused(scene):
    us = scene.speaker()
    us.gives(OK, "open", 0, "a.db")
    us.gives(OK, "put", 0, "key", "value")
    us.gives(OK, "close", 0)
    (scene.folder / "b.db").hardlink_to(scene.folder / "a.db")
    expect("hard links" in us.gives(CANTOPEN, "open", 0, "b.db"), "another reason")


def a_backup_replaces_nothing(scene):
    us, them = scene.speaker(), scene.speaker()
    us.gives(OK, "open", 0, "a.db")
    us.gives(OK, "fill", 0, "k", 500)
    (scene.folder / "there").write_bytes(b"precious")
    (scene.folder / "folder").mkdir()
    for name in ("there", "folder", "a.db", ":memory:", "file:x", "folder\\", "new\\", "new/", "new\\."):
        us.gives(ERROR, "backup", 0, name)
    us.gives(CANTOPEN, "backup", 0, "no\\such\\folder")
    expect((scene.folder / "there").read_bytes() == b"precious", "it was replaced")
    them.gives(OK, "open", 0, "a.db")
    them.tell("fill\t0\tl\t300")
    us.gives(OK, "backup", 0, "b.db")
    expect(them.answer()[0] == OK, "the writer beside a backup")
    us.gives(OK, "open", 1, "b.db")
    us.gives(OK, "check", 1)
    expect(500 <= int(us.gives(OK, "count", 1)) <= 800, "it has another number of keys")
    expect(not list(scene.folder.glob("*.partial*")), "something is left")


def open_at_once(all_, path):
    for who in all_:
        who.tell(f"open\t0\t{path}")
    answers = [who.answer() for who in all_]
    expect(all(code == OK for code, _ in answers), f"an open has failed: {answers}")


def processes_that_open_a_new_store_and_write_at_once(scene):
    for round_ in range(3):
        path = f"{round_}.db"
        all_ = [scene.speaker() for _ in range(3)]
        open_at_once(all_, path)
        for at, who in enumerate(all_):
            who.tell(f"fill\t0\t{at}-\t200")
        for who in all_:
            code, text = who.answer()
            expect(code == OK, f"a write has failed: {code} {text}")
        for who in all_:
            expect(who.gives(OK, "count", 0) == "600", "keys are missing")
            who.gives(OK, "check", 0)
            who.gives(OK, "close", 0)
        expect(sorted(file.name for file in scene.folder.glob(f"{path}*")) == [path], "a log is left")
    # Problems during the creation of a store are rare, so this is repeated.
    all_ = [scene.speaker() for _ in range(3)]
    for round_ in range(40):
        open_at_once(all_, f"only-{round_}.db")
        for who in all_:
            who.gives(OK, "close", 0)


def a_process_that_is_killed_leaves_a_store_that_works(scene):
    survivor = scene.speaker()
    survivor.gives(OK, "open", 0, "a.db")
    for round_ in range(5):
        victim = scene.speaker()
        victim.gives(OK, "open", 0, "a.db")
        victim.gives(OK, "put", 0, f"acknowledged {round_}", "1")
        if round_ % 2:
            victim.gives(OK, "begin", 0, 1)
            victim.gives(OK, "put", 0, f"open {round_}", "1")
        else:
            victim.tell(f"fill\t0\tfill {round_} \t100000")
        victim.kill()
        who = survivor
        if round_ == 4:  # no process is left that has the store open
            survivor.kill()
            who = scene.speaker()
            who.gives(OK, "open", 0, "a.db")
        for before in range(round_ + 1):
            who.gives(OK, "get", 0, f"acknowledged {before}")
        who.gives(NOTFOUND, "get", 0, f"open {round_}")
        who.gives(OK, "put", 0, f"after {round_}", "1")
        who.gives(OK, "check", 0)


ALL = (
    another_programs_wal_database_is_refused_and_not_changed,
    another_program_reads_and_writes_an_open_store,
    processes_see_each_others_commits_at_once,
    a_snapshot_that_is_held_keeps_the_log_and_one_beside_company_does_not,
    an_open_store_can_be_neither_deleted_nor_renamed,
    paths_of_any_letters_and_of_any_length,
    bytes_that_are_no_utf8_are_no_path,
    one_file_by_two_spellings_is_one_store,
    a_file_with_two_names_is_refused,
    a_backup_replaces_nothing,
    processes_that_open_a_new_store_and_write_at_once,
    a_process_that_is_killed_leaves_a_store_that_works,
)


def run(compiler, say):
    """Returns the number passed and the failures."""
    compiler.build("tests/windows/speak.c")
    compiler.other()
    failures = []
    for scenario in ALL:
        with tempfile.TemporaryDirectory(prefix="kvstore-windows-") as folder:
            scene = Scene(compiler, pathlib.Path(folder))
            try:
                try:
                    scenario(scene)
                finally:
                    scene.leave()
            except Failed as why:
                failures.append(f"{scenario.__name__}: {why}")
        is_well = not failures or not failures[-1].startswith(scenario.__name__)
        say(f"{scenario.__name__.replace('_', ' ')}: {'passed' if is_well else 'FAILED'}")
    return len(ALL) - len(failures), failures
