"""Claims are judged by planted effects; the family's members are what their names say."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kvphase.errors import UsageError
from kvphase.lab import claiming
from kvphase.lab.claims import STRIDES, judge
from kvphase.lab.compressors import ChunkedConfig
from kvphase.lab.family import MEMBERS, experiment, load_member, shipped, train_member
from kvphase.lab.figures import AXIS, PRIMARY, SEED, Measured, _plan
from kvphase.stats import measure
from kvphase.types import Answers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvphase.lab.claims import Claim
    from kvphase.types import DesignKind

KINDS: tuple[DesignKind, ...] = ("insequence", "prefix")


@cache
def planted(chance: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Measured:
    """A model that answers rightly with a chance that depends on the key's position."""
    rng = np.random.default_rng(seed)
    answers, verdicts = {}, {}
    for kind in KINDS:
        asks = [ask for batch in _plan(kind).batches() for ask in batch]
        position = np.array([ask.target for ask in asks], np.int64)
        n, nothing = len(asks), np.full(len(asks), np.nan)
        correct = (rng.random(n) < chance(position)).astype(np.int8)
        answers[kind] = Answers(
            position=position,
            correct=correct,
            logprob=np.log(np.where(correct == 1, 0.9, 0.05)),
            item=np.array([ask.item for ask in asks], np.int64),
            block=np.array([ask.block for ask in asks], np.int64),
            context=np.array([ask.context for ask in asks], np.int64),
            pad=np.array([ask.pad for ask in asks], np.int64),
            arm=np.array([ask.arm.value for ask in asks], np.str_),
            text=np.full(n, "", np.str_),
            margin=nothing,
            question=np.array([ask.question for ask in asks], np.int64),
            against=nothing,
        )
        verdicts[kind] = measure(answers[kind], kind=kind, modulus=AXIS, seed=SEED)
    return Measured(answers, verdicts)


@cache
def flat(level: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda position: np.full(len(position), level)


@cache
def weak_end(
    stride: int, level: float = 0.8, dip: float = 0.5
) -> Callable[[np.ndarray], np.ndarray]:
    return lambda position: np.where(position % stride == stride - 1, level - dip, level)


@pytest.fixture(scope="module")
def models() -> dict[str, Measured]:
    """Every member behaves as the paper says."""
    made = {name: planted(weak_end(stride)) for name, stride in STRIDES.items()}
    made |= {name: planted(weak_end(4)) for name in ("w4s4-norope", "w4s4-uniform", "w4s4-kv4")}

    def eight(position: np.ndarray) -> np.ndarray:
        levels: np.ndarray = np.array([0.95, 0.95, 0.9, 0.95, 0.9, 0.5, 0.9, 0.35])
        return np.asarray(levels[position % 8])

    made["w8s8"] = made["w8s8-kv4"] = planted(eight)
    made |= {name: planted(flat(0.81)) for name in ("full", "full-kv4", "full-norope", "mla")}
    made["dsv4"], made["dsv41"] = planted(weak_end(4)), planted(weak_end(2))
    return made


def claim(models: dict[str, Measured], number: str) -> Claim:
    (found,) = [one for one in judge(models) if one.id == number]
    return found


@pytest.mark.slow
def test_a_family_as_published_confirms_every_claim(models: dict[str, Measured]) -> None:
    found = {one.id: one.status for one in judge(models)}
    expected = ("1", "2", "3", "4", "5", "6", "mla", "dsv4", "dsv41")
    assert found == dict.fromkeys(expected, "confirmed")
    flat_ones = claim(models, "2").figures
    assert flat_ones["full-kv4"]["prefix_highest_compressed"].keys() == {"w8s8-kv4"}
    assert all(flat_ones[name][f"{kind}_mean_no_lower"] for name in flat_ones for kind in KINDS)


@pytest.mark.slow
def test_what_a_model_shows_otherwise_is_not_confirmed(models: dict[str, Measured]) -> None:
    assert claim(models | {"w6s6": planted(weak_end(4))}, "1").status == "not confirmed"
    assert claim(models | {"w4s4-norope": planted(flat(0.8))}, "3").status == "not confirmed"
    assert claim(models | {"full": planted(weak_end(4))}, "2").status == "not confirmed"
    # an all but equal mean and an equal worst phase: it hides nothing
    assert claim(models | {"w8s8-kv4": models["full-kv4"]}, "5").status == "not confirmed"
    # a boundary that is the best phase
    strong = planted(lambda position: np.where(position % 8 == 7, 0.9, 0.6))
    assert claim(models | {"w8s8": strong}, "6").status == "not confirmed"


@pytest.mark.slow
def test_what_cannot_be_seen_is_not_testable(models: dict[str, Measured]) -> None:
    ceiling = planted(flat(1.0))
    assert claim(models | {"w4s4": ceiling}, "1").status == "not testable here"
    assert claim(models | {"mla": ceiling}, "mla").status == "not testable here"
    # otherwise beats untestable
    shown = models | {"w4s4": ceiling, "w6s6": planted(flat(0.8))}
    assert claim(shown, "1").status == "not confirmed"


def test_claims_without_their_models_are_left_out() -> None:
    assert judge({}) == []
    assert [one.id for one in judge({"mla": planted(flat(0.8))})] == ["mla"]


def test_members_are_what_their_names_say() -> None:
    for name in MEMBERS:
        model = experiment(name).model
        windows = name.split("-")[0]
        if windows.startswith("w"):
            assert isinstance(model.compressor, ChunkedConfig)
            window, stride = map(int, windows[1:].split("s"))
            assert (model.compressor.window, model.compressor.stride) == (window, stride)
            assert model.compressor.gates == ("uniform" if "uniform" in name else "scalar")
            assert model.compressor.maps == "slot"
        assert model.kv_heads == (4 if "kv4" in name else 1)
        assert (model.rope_dims == 0) == ("norope" in name)
    # the same batches for all, but for the seeds of the base
    trained = {json.dumps(experiment(n).to_dict()["train"]) for n in MEMBERS if "seed" not in n}
    assert len(trained) == 1
    with pytest.raises(UsageError, match="no member"):
        experiment("w5s5")


def test_a_member_is_trained_rounded_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("train.steps=3", "train.levels=[4]", "model.width=16")
    monkeypatch.setitem(MEMBERS, "w4s4", few)
    told: list[str] = []
    train_member("w4s4", tmp_path, told.append)
    assert [line[:17] for line in told] == ["w4s4: step 3/3, a"]
    model = load_member("w4s4", tmp_path)
    assert all((weight == weight.half()).all() for weight in model.parameters())
    monkeypatch.setitem(MEMBERS, "w4s4", ())
    with pytest.raises(UsageError, match="another model"):
        load_member("w4s4", tmp_path)
    with pytest.raises(UsageError, match="no checkpoint"):
        load_member("w6s6", tmp_path)


def test_figures_are_compared_with_those_recorded(tmp_path: Path) -> None:
    results = {"models": {"full": {"loss": 1.0, PRIMARY: {"mean": 0.5}}}}
    path = tmp_path / "results.json"
    assert claiming._compared(results, path) == "none"
    path.write_text(json.dumps(results))
    assert claiming._compared(results, path) == "same"
    results["models"]["full"]["loss"] = 1.1
    assert claiming._compared(results, path) == "differs: full.loss: recorded 1.0, measured 1.1"
    path.write_text("[]")
    with pytest.raises(UsageError, match="not a results file"):
        claiming._compared(results, path)


@pytest.mark.slow
def test_the_shipped_figures_come_out_again() -> None:
    # the smallest and the largest stride; all of them: `kvphase lab claims`
    found = claiming.claims(claiming.Options(only=("w4s4-uniform", "w12s12"), jobs=1))
    assert found["recorded"] == "same"
    periods = [found["models"][name]["prefix"]["period"] for name in ("w4s4-uniform", "w12s12")]
    assert periods == [4, 12]


def test_every_member_ships_with_its_figures() -> None:
    for name in MEMBERS:
        load_member(name, shipped())
    results = json.loads((shipped() / "results.json").read_text("utf-8"))
    assert results["models"].keys() == MEMBERS.keys()
