"""The run file: one SQLite database a run, written by one process, readable by any number.

Each answer is a transaction of its own, in WAL mode with ``synchronous = NORMAL``: a killed
process loses nothing that was answered. (Only a power cut may lose the last few answers, which a
resumed run asks again; waiting for the disk after each answer would cost more than the answers.)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from array import array
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from kvphase.errors import StoreError
from kvphase.types import Answers, Arm, Ask, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

SCHEMA = "kvphase/run@1"
_APPLICATION_ID = 0x6B767068  # "kvph"
_TABLES = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE prefixes (digest TEXT PRIMARY KEY, tokens BLOB NOT NULL);
CREATE TABLE asks (
    ordinal INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    prefix TEXT NOT NULL REFERENCES prefixes (digest),
    suffix BLOB NOT NULL,
    target INTEGER NOT NULL,
    expected TEXT NOT NULL,
    candidates TEXT NOT NULL,
    arm TEXT NOT NULL,
    item INTEGER NOT NULL,
    block INTEGER NOT NULL,
    context INTEGER NOT NULL,
    pad INTEGER NOT NULL,
    generate INTEGER NOT NULL,
    question INTEGER,
    stage TEXT NOT NULL
);
CREATE TABLE answers (
    ask_id TEXT PRIMARY KEY REFERENCES asks (id),
    text TEXT NOT NULL,
    correct INTEGER NOT NULL,
    logprob REAL,
    against REAL,
    margin REAL,
    prefilled INTEGER,
    cached INTEGER,
    generated INTEGER NOT NULL,
    seconds REAL NOT NULL
);
"""
_COLUMNS = """
SELECT asks.target, answers.correct, answers.logprob, asks.item, asks.block, asks.context,
       asks.pad, asks.arm, answers.text, answers.margin, asks.question, answers.against
FROM asks JOIN answers ON answers.ask_id = asks.id
"""
_CONTENTS = """
SELECT asks.prefix, asks.suffix, asks.target
FROM asks JOIN answers ON answers.ask_id = asks.id WHERE asks.stage = ? ORDER BY asks.ordinal
"""
_ONLY = " WHERE asks.id IN (SELECT value FROM json_each(?))"
_STAGE = " WHERE asks.stage = ?"
_IN_ORDER = " ORDER BY asks.ordinal"


def _blob(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def _ids(blob: bytes) -> tuple[int, ...]:
    values = array("i")
    values.frombytes(blob)
    return tuple(values)


def grade(ask: Ask, reply: Reply) -> int:
    """1 right, 0 wrong, -1 unfinished.

    One generated token must be the expected word; longer answers (chat) must begin with it.
    """
    if not reply.finished:
        return -1
    answer, expected = reply.text.strip(), ask.expected.strip()
    if ask.generate == 1:
        return int(answer == expected)
    rest = answer[len(expected) :]
    return int(answer.startswith(expected) and not rest[:1].isalnum())


class Store:
    """One run file. Use ``create``, ``resume`` or ``read``, and close it (context manager).

    Raises:
        StoreError: the file is missing, damaged, of another schema, or another process writes it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: FileLock | None) -> None:
        self.path = path
        self._db = connection
        self._lock = lock
        self._answered: set[str] = set()
        self.grade: Callable[[Ask, Reply], int] = grade

    @classmethod
    def create(cls, path: Path, manifest: dict[str, Any]) -> Self:
        """A new run file; an existing one is never overwritten."""
        if path.exists():
            raise StoreError(f"{path.name} exists already; add --resume to go on with it")
        if not path.parent.is_dir():
            raise StoreError(f"the folder of {path.name} does not exist")
        _refuse_leftovers(path)
        lock = _acquire(path)
        try:
            # Made aside and moved into place, so that a kill never leaves half a schema.
            fresh = path.with_name(path.name + ".new")
            fresh.unlink(missing_ok=True)
            with sqlite3.connect(fresh) as db:
                db.executescript(_TABLES)
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.executemany(
                    "INSERT INTO run VALUES (?, ?)",
                    [(k, json.dumps(v)) for k, v in {"schema": SCHEMA, **manifest}.items()],
                )
            db.close()
            fresh.rename(path)
            return cls(path, _connect(path), lock)
        except (OSError, sqlite3.Error) as error:
            lock.release()
            raise StoreError(f"{path.name} cannot be written: {error}") from error

    @classmethod
    def resume(cls, path: Path) -> Self:
        """An existing run file, to be gone on with."""
        _must_exist(path)
        lock = _acquire(path)
        try:
            store = cls(path, _checked(path), lock)
            store._answered = {row[0] for row in store._rows("SELECT ask_id FROM answers")}
        except StoreError:
            lock.release()
            raise
        return store

    @classmethod
    def read(cls, path: Path) -> Self:
        """An existing run file, read only; works while another process writes it."""
        _must_exist(path)
        return cls(path, _checked(path, readonly=True), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let another writer in."""
        if self._lock is not None:
            # Without readers this leaves one file; with readers the log stays beside it.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def discard(self) -> None:
        """Remove a file that holds no answer, so that its name is free for the next try."""
        with contextlib.suppress(OSError, sqlite3.Error):
            self._db.execute("PRAGMA journal_mode = DELETE")
            self.path.unlink()

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run on what: target, model, design, seed, versions."""
        return {key: json.loads(value) for key, value in self._rows("SELECT key, value FROM run")}

    def note(self, **entries: object) -> None:
        """Set entries of the manifest (state, seconds, balance ...)."""
        self._db.executemany(
            "INSERT INTO run VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [(key, json.dumps(value)) for key, value in entries.items()],
        )

    def add(self, asks: Iterable[Ask], stage: str) -> None:
        """Remember what ``stage`` will ask, in this order; asks already known are left alone."""
        self._db.execute("BEGIN")
        prefixes: dict[tuple[int, ...], str] = {}
        for ask in asks:
            if ask.prefix not in prefixes:
                prefixes[ask.prefix] = self._add_prefix(ask.prefix)
            self._db.execute(
                "INSERT OR IGNORE INTO asks (id, prefix, suffix, target, expected, candidates, arm,"
                " item, block, context, pad, generate, question, stage)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    ask.id,
                    prefixes[ask.prefix],
                    _blob(ask.suffix),
                    ask.target,
                    ask.expected,
                    json.dumps(ask.candidates),
                    ask.arm.value,
                    ask.item,
                    ask.block,
                    ask.context,
                    ask.pad,
                    ask.generate,
                    ask.question,
                    stage,
                ),
            )
        self._db.execute("COMMIT")

    def _add_prefix(self, prefix: tuple[int, ...]) -> str:
        blob = _blob(prefix)
        digest = hashlib.blake2b(blob, digest_size=12).hexdigest()
        self._db.execute("INSERT OR IGNORE INTO prefixes VALUES (?, ?)", (digest, blob))
        return digest

    def has(self, ask: Ask) -> bool:
        """Whether this ask was answered."""
        return ask.id in self._answered

    def put(self, ask: Ask, reply: Reply) -> int:
        """Keep an answer; it is committed when this returns. A second answer is refused.

        Returns:
            Its grade, by ``grade`` unless the run has a rule of its own.
        """
        correct = self.grade(ask, reply)
        try:
            self._db.execute(
                "INSERT INTO answers VALUES (?,?,?,?,?,?,?,?,?,?)",
                (
                    ask.id,
                    reply.text.encode(errors="replace").decode(),  # half a surrogate pair
                    correct,
                    reply.logprob,
                    reply.against,
                    reply.margin,
                    reply.prefilled,
                    reply.cached,
                    reply.generated,
                    reply.seconds,
                ),
            )
        except sqlite3.Error as error:
            raise StoreError(f"{self.path.name} cannot be written: {error}") from error
        self._answered.add(ask.id)
        return correct

    def answers(self, asks: Sequence[Ask] | None = None, *, stage: str | None = None) -> Answers:
        """The answered asks in ask order: those given, those of a stage, or all of the run."""
        import numpy as np

        if asks is not None:
            ids = json.dumps([ask.id for ask in asks])
            rows = self._rows(_COLUMNS + _ONLY + _IN_ORDER, ids)
        elif stage is not None:
            rows = self._rows(_COLUMNS + _STAGE + _IN_ORDER, stage)
        else:
            rows = self._rows(_COLUMNS + _IN_ORDER)
        return Answers(
            position=np.array([r[0] for r in rows], np.int64),
            correct=np.array([r[1] for r in rows], np.int8),
            logprob=_floats(r[2] for r in rows),
            item=np.array([r[3] for r in rows], np.int64),
            block=np.array([r[4] for r in rows], np.int64),
            context=np.array([r[5] for r in rows], np.int64),
            pad=np.array([r[6] for r in rows], np.int64),
            arm=np.array([r[7] for r in rows], np.str_),
            text=np.array([r[8] for r in rows], np.str_),
            margin=_floats(r[9] for r in rows),
            question=np.array([-1 if r[10] is None else r[10] for r in rows], np.int64),
            against=_floats(r[11] for r in rows),
        )

    def contents(self, stage: str) -> list[str]:
        """What was asked for each row of ``answers(stage=stage)``: equal texts, equal prompts.

        Prompt tokens and the target's place in them, nothing of how or by whom it was asked.
        """
        rows = self._rows(_CONTENTS, stage)
        texts = (f"{prefix}:{suffix.hex()}:{target}" for prefix, suffix, target in rows)
        return [hashlib.blake2b(text.encode(), digest_size=12).hexdigest() for text in texts]

    def asks(self, stage: str | None = None) -> list[Ask]:
        """Every ask of the run or of a stage in ask order, answered or not."""
        prefixes = {d: _ids(b) for d, b in self._rows("SELECT digest, tokens FROM prefixes")}
        rows = self._rows(
            "SELECT id, prefix, suffix, target, expected, candidates, arm, item, block, context,"
            " pad, generate, question FROM asks WHERE ? IN (stage, '') ORDER BY ordinal",
            stage or "",
        )
        return [
            Ask(
                id=r[0],
                prefix=prefixes[r[1]],
                suffix=_ids(r[2]),
                target=r[3],
                expected=r[4],
                candidates=tuple(json.loads(r[5])),
                arm=Arm(r[6]),
                item=r[7],
                block=r[8],
                context=r[9],
                pad=r[10],
                generate=r[11],
                question=r[12],
            )
            for r in rows
        ]

    def totals(self, stage: str | None = None) -> dict[str, int | float | None]:
        """Sums over the answers of the run or of a stage.

        Keys: asked, prefilled, cached, generated, seconds. ``prefilled`` and ``cached`` are the
        runtime's own figures, None where it gives none.
        """
        row = self._rows(
            "SELECT COUNT(*), SUM(prefilled), SUM(cached), COALESCE(SUM(generated), 0),"
            " COALESCE(SUM(seconds), 0) FROM answers JOIN asks ON asks.id = answers.ask_id"
            " WHERE ? IN (stage, '')",
            stage or "",
        )[0]
        return dict(zip(("asked", "prefilled", "cached", "generated", "seconds"), row, strict=True))

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path.name} is damaged: {error}") from error


def _floats(values: Iterable[float | None]) -> NDArray[np.float64]:
    """Numbers, nan for what is not known, shape (n,)."""
    import numpy as np

    return np.array([np.nan if value is None else value for value in values], np.float64)


def _refuse_leftovers(path: Path) -> None:
    """A log that a killed run left at this name would be replayed into the new one."""
    for ending in ("-wal", "-journal"):
        if path.with_name(path.name + ending).exists():
            raise StoreError(
                f"{path.name}{ending} was left by a run that was killed and whose file was moved; "
                "put it beside that file under its new name, or choose another name for this run"
            )


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise StoreError(f"there is no run file {path.name}")


def _acquire(path: Path) -> FileLock:
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        if not path.with_name(f".{path.name}.lock").exists():
            raise StoreError(f"{path.name} cannot be locked: its folder takes no files") from None
        raise StoreError(f"another process is writing {path.name}") from None
    except OSError as error:
        raise StoreError(f"{path.name} cannot be locked: {error.strerror}") from error
    return lock


def _connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    mode = "ro" if readonly else "rw"
    db = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10
    )
    if not readonly:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        # A killed run's file can be moved without its log once the log was written back: often.
        db.execute("PRAGMA wal_autocheckpoint = 64")
        db.execute("PRAGMA foreign_keys = ON")
    return db


def _checked(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    try:
        db = _connect(path, readonly=readonly)
        known = db.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID
        sound = known and db.execute("PRAGMA quick_check").fetchone()[0] == "ok"
        row = db.execute("SELECT value FROM run WHERE key = 'schema'").fetchone() if sound else None
        schema = "" if row is None else str(row[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path.name} is damaged or not a kvphase run file") from error
    if not known:
        db.close()
        raise StoreError(f"{path.name} is not a kvphase run file")
    if not sound or not schema:
        db.close()
        raise StoreError(f"{path.name} is damaged")
    if json.loads(schema) != SCHEMA:
        db.close()
        raise StoreError(f"{path.name} has schema {schema}; this version reads {SCHEMA}")
    return db
