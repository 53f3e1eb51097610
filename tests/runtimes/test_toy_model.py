from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.evaluate import evaluate, summarise
from kvphase.lab.export import export, load_exported
from kvphase.lab.transformer import Decoder, ModelConfig
from kvphase.runtimes.toy_model import ToyModel

TOYS = Path(str(resources.files("kvphase").joinpath("data/toys")))
SHIPPED = {path.stem: path for path in sorted(TOYS.glob("*.npz"))}
SMALL = ModelConfig(vocab_size=40, width=16, heads=4, head_dim=8, mlp_width=24, rope_dims=4)
CONFIGS = {
    "v4": SMALL,
    "full": replace(SMALL, compressor=NoneConfig(), tied_kv=False, kv_heads=2),
    "scalar": replace(
        SMALL, compressor=ChunkedConfig(4, 4, "scalar", "slot"), tied_kv=False, kv_heads=2
    ),
    "uniform": replace(
        SMALL, compressor=ChunkedConfig(8, 6, "uniform", "shared"), rope_dims=0, layers=3
    ),
    "no-bias": replace(
        SMALL, compressor=ChunkedConfig(12, 4, gate_bias=False), rope_dims=8, local_window=1
    ),
}


def one_shot(model: ToyModel, ids: list[int]) -> np.ndarray:
    return model.extend(model.start(), ids)


def text(model: ToyModel, seed: int, length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(model.vocab_size, size=length).tolist()
    return ids


@pytest.fixture(scope="module", params=sorted(SHIPPED))
def shipped(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Decoder, ToyModel]:
    """The same random weights in torch and in numpy."""
    path = tmp_path_factory.mktemp("toy") / "toy.npz"
    export(CONFIGS[request.param].build(3), path, {"seed": 3})
    return load_exported(path), ToyModel.load(path)


def test_four_toys_ship() -> None:
    assert set(SHIPPED) == {"full", "w4s4", "w8s4", "w8s8"}


def test_shipped_files_are_small_and_hold_no_pickle(shipped: str) -> None:
    path = SHIPPED[shipped]
    assert path.stat().st_size <= 2_000_000
    with np.load(path, allow_pickle=False) as file:
        dtypes = {file[name].dtype for name in file if name not in ("config", "training")}
        assert json.loads(str(file["config"]))["vocab_size"] == 231
        assert json.loads(str(file["training"]))["seed"] >= 0
    assert dtypes == {np.dtype(np.float16)}


def test_random_weights_agree_with_torch(pair: tuple[Decoder, ToyModel]) -> None:
    model, toy = pair
    ids = text(toy, 1, 150)
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(one_shot(toy, ids), expected, rtol=0, atol=1e-4)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_shipped_weights_agree_with_torch_over_any_split(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SHIPPED)))
    toy, model = ToyModel.load(SHIPPED[name]), load_exported(SHIPPED[name])
    ids = text(toy, data.draw(st.integers(0, 1000)), data.draw(st.integers(1, 300)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    cache, pieces = toy.start(), []
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        pieces.append(toy.extend(cache, ids[start:end]))
    logits = np.concatenate(pieces)
    assert cache.length == len(ids)
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    whole = one_shot(toy, ids)
    np.testing.assert_allclose(logits, whole, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(logits.argmax(1), whole.argmax(1))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 90), st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_forks_are_independent(prefix: int, left: int, right: int, seed: int) -> None:
    toy = random_toy()
    ids = text(toy, seed, prefix + left + right)
    base, one, two = ids[:prefix], ids[prefix : prefix + left], ids[prefix + left :]
    parent = toy.start()
    toy.extend(parent, base)
    fork = parent.fork()
    first = toy.extend(fork, one)
    second = toy.extend(parent.fork(), two)
    deeper = toy.extend(fork.fork(), two)
    assert (parent.length, fork.length) == (prefix, prefix + left)
    np.testing.assert_allclose(first, one_shot(toy, base + one)[prefix:], rtol=0, atol=1e-6)
    np.testing.assert_allclose(second, one_shot(toy, base + two)[prefix:], rtol=0, atol=1e-6)
    expected = one_shot(toy, base + one + two)[prefix + left :]
    np.testing.assert_allclose(deeper, expected, rtol=0, atol=1e-6)
    again = toy.extend(parent, one)  # the parent itself may grow after its forks did
    np.testing.assert_array_equal(again, first)


def random_toy() -> ToyModel:
    model = SMALL.build(3).state_dict()
    weights = {name: weight.double().numpy() for name, weight in model.items()}
    return ToyModel(weights, SMALL.to_dict())


def test_splits_agree_for_every_design(pair: tuple[Decoder, ToyModel]) -> None:
    toy = pair[1]
    ids = text(toy, 2, 80)
    whole = one_shot(toy, ids)
    for step in (1, 3, 7, 70):
        cache = toy.start()
        pieces = [toy.extend(cache, ids[at : at + step]) for at in range(0, 80, step)]
        np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=0, atol=1e-6)


def test_nothing_to_process_gives_no_logits() -> None:
    toy = random_toy()
    cache = toy.start()
    assert toy.extend(cache, []).shape == (0, 40)
    assert cache.length == 0


@pytest.mark.parametrize("bad", [-1, 40])
def test_foreign_ids_are_refused(bad: int) -> None:
    toy = random_toy()
    cache = toy.start()
    with pytest.raises(ValueError, match=r"token ids must lie in 0\.\.39"):
        toy.extend(cache, [1, bad])
    assert cache.length == 0


def test_bad_files_give_one_sentence(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    export(SMALL.build(0), good)
    cut = tmp_path / "cut.npz"
    cut.write_bytes(good.read_bytes()[:500])
    text_file = tmp_path / "text.npz"
    text_file.write_text("not a model")
    other = tmp_path / "other.npz"
    np.savez(other, config=np.array('{"layers": 1}'))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, config=np.array([{}], dtype=object))
    for path in (tmp_path / "absent.npz", cut, text_file, other, pickled):
        with pytest.raises(ValueError, match="cannot be read as a toy model") as caught:
            ToyModel.load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_weights_beyond_fp16_are_refused(tmp_path: Path) -> None:
    model = SMALL.build(0)
    model.embedding.weight.data[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"embedding\.weight is not finite"):
        export(model, tmp_path / "toy.npz")


def test_torch_is_not_needed() -> None:
    code = "import sys, kvphase.runtimes.toy_model as t; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_questions_are_cheap(shipped: str) -> None:
    """Loose bounds on processor time; a prefix cache that recomputes would miss them by far."""
    toy = ToyModel.load(SHIPPED[shipped])
    ids = text(toy, 0, 500)
    cache = toy.start()
    started = time.process_time()
    toy.extend(cache, ids)
    prefill = time.process_time() - started
    started = time.process_time()
    for _ in range(50):
        toy.extend(cache.fork(), ids[:2])
    question = (time.process_time() - started) / 50
    assert prefill < 0.5
    assert question < 0.01


def test_the_recorded_numbers_come_out_again(shipped: str) -> None:
    record = json.loads((TOYS / f"{shipped}.json").read_text("utf-8"))
    toy = ToyModel.load(SHIPPED[shipped])
    for design, expected in record["results"].items():
        again = summarise(evaluate(toy, record["records"], design, 6, expected["seed"]))
        error = 0.5 / np.sqrt(again["questions"])
        # few contexts ask some residues more often than others, so compare at equal residues
        recorded = np.average(expected["by_residue_mod_8"], weights=again["asked"])
        assert abs(again["mean"] - recorded) < 5 * error
