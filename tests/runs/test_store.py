from __future__ import annotations

import math
import multiprocessing
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kvphase.errors import StoreError
from kvphase.runs.store import SCHEMA, Store, grade
from kvphase.types import Arm, Ask, Reply

if TYPE_CHECKING:
    from pathlib import Path


def an_ask(i: int = 0, **changes: object) -> Ask:
    fields: dict[str, object] = {
        "id": f"ask{i}",
        "prefix": (0, 5, 6, 7),
        "suffix": (8 + i, 9),
        "target": 1,
        "expected": " Ada",
        "candidates": (" Ada",),
        "arm": Arm.SCREEN,
        "item": i,
        "block": 0,
        "context": 2,
        "pad": 3,
        **changes,
    }
    return Ask(**fields)  # type: ignore[arg-type]


def test_asks_and_answers_come_back_as_they_went_in(tmp_path: Path) -> None:
    asks = [an_ask(0), an_ask(1, arm=Arm.COLD, generate=8), an_ask(2)]
    with Store.create(tmp_path / "a.kvphase", {"seed": 7}) as store:
        store.add(asks, "needle")
        store.put(asks[2], Reply(" Ada", logprob=-0.25, margin=1.5, prefilled=6, cached=0))
        store.put(asks[0], Reply(" 名\x1b[31m", logprob=-math.inf, prefilled=2, cached=4))
    with Store.resume(tmp_path / "a.kvphase") as store:
        assert store.manifest == {"schema": SCHEMA, "seed": 7}
        assert store.asks() == asks
        assert [store.has(a) for a in asks] == [True, False, True]
        answers = store.answers()
        # Ask order, whatever the order of arrival.
        assert answers.item.tolist() == [0, 2]
        assert answers.correct.tolist() == [0, 1]
        assert answers.text.tolist() == [" 名\x1b[31m", " Ada"]
        assert answers.logprob.tolist() == [-math.inf, -0.25]
        assert np.isnan(answers.margin[0])
        assert answers.margin[1] == 1.5
        assert len(store.answers(asks[1:])) == 1
        totals = store.totals()
        assert (totals["asked"], totals["prefilled"], totals["cached"]) == (2, 8, 4)


def test_an_unreported_count_is_not_a_zero(tmp_path: Path) -> None:
    with Store.create(tmp_path / "a.kvphase", {}) as store:
        store.add([an_ask()], "needle")
        store.put(an_ask(), Reply(" Ada"))
        assert store.totals()["prefilled"] is None
        assert np.isnan(store.answers().logprob[0])


@pytest.mark.parametrize(
    ("text", "generate", "finished", "outcome"),
    [
        (" Ada", 1, True, 1),
        ("Ada", 1, True, 1),
        (" Adam", 1, True, 0),
        (" Ad", 1, True, 0),
        ("", 1, True, 0),
        (" Ada", 1, False, -1),
        ("Ada.", 8, True, 1),
        ("Ada", 8, True, 1),
        ("Adam is", 8, True, 0),
        ("It is Ada", 8, True, 0),
    ],
)
def test_grading(text: str, generate: int, finished: bool, outcome: int) -> None:
    assert grade(an_ask(generate=generate), Reply(text, finished=finished)) == outcome


def test_an_answer_is_kept_once(tmp_path: Path) -> None:
    with Store.create(tmp_path / "a.kvphase", {}) as store:
        store.add([an_ask()], "needle")
        store.add([an_ask()], "needle")
        store.put(an_ask(), Reply(" Ada"))
        with pytest.raises(StoreError):
            store.put(an_ask(), Reply(" Bob"))
        assert store.answers().text.tolist() == [" Ada"]


def _try_to_write(path: Path, found: multiprocessing.Queue[str]) -> None:
    try:
        Store.resume(path).close()
        found.put("written")
    except StoreError as error:
        found.put(str(error))


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    context = multiprocessing.get_context("spawn")
    found: multiprocessing.Queue[str] = context.Queue()
    with Store.create(path, {}) as store:
        store.add([an_ask(0), an_ask(1)], "needle")
        store.put(an_ask(0), Reply(" Ada"))
        with Store.read(path) as reader:
            assert len(reader.answers()) == 1
            store.put(an_ask(1), Reply(" Ada"))
            assert len(reader.answers()) == 2
        other = context.Process(target=_try_to_write, args=(path, found))
        other.start()
        assert found.get(timeout=60) == "another process is writing a.kvphase"
        other.join()
    other = context.Process(target=_try_to_write, args=(path, found))
    other.start()
    assert found.get(timeout=60) == "written"
    other.join()


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    path.write_text("precious")
    with pytest.raises(StoreError, match="exists already"):
        Store.create(path, {})
    assert path.read_text() == "precious"


def _damage(path: Path, how: str) -> None:
    if how == "text":
        path.write_text("not a database, but long enough to look like one" * 50)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "torn":
        path.write_bytes(path.read_bytes()[:5000])
    elif how == "foreign":
        path.unlink()
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE x (y)")
        db.close()
    elif how == "newer":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE run SET value = '\"kvphase/run@9\"' WHERE key = 'schema'")
        db.close()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("text", "damaged or not a kvphase run file"),
        ("empty", "not a kvphase run file"),
        ("torn", "damaged"),
        ("foreign", "not a kvphase run file"),
        ("newer", "kvphase/run@9"),
        ("missing", "there is no run file a.kvphase"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, how: str, says: str) -> None:
    path = tmp_path / "a.kvphase"
    with Store.create(path, {}) as store:
        store.add([an_ask(i, prefix=tuple(range(2000))) for i in range(50)], "needle")
    _damage(path, how) if how != "missing" else path.unlink()
    for opener in (Store.read, Store.resume):
        with pytest.raises(StoreError, match=says) as caught:
            opener(path)
        assert str(tmp_path) not in str(caught.value)
        assert "\n" not in str(caught.value)
