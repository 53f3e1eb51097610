"""`benchmarks/lab.py`: all that it times computes the same, and its ratios come out."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kvphase.lab.compressors import ChunkedConfig
from lab.family import ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvphase.lab.model_config import ModelConfig

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "lab.py"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="benchmarks are not packed with tests")


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("lab_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILE.parent))  # where its own command finds its neighbours
        spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"sink": True, "query_rank": 6},
        {"tied_kv": False, "kv_heads": 2, "rope_dims": 32},
        {"compressor": ChunkedConfig(4, 4, "vector", "slot"), "local_window": 1},
        {"compressor": ChunkedConfig(12, 4, "vector", "shared"), "qk_norm": False, "sink": True},
    ],
)
def test_fused_equals_eager_forward_and_backward(bench: Any, change: dict[str, Any]) -> None:  # noqa: ANN401
    """Over more than two blocks, the last one partial."""
    config: ModelConfig = replace(bench.PLAIN, width=32, **change)
    ours = config.build(0).double()
    for attention in ours.attentions:
        if attention.sink is not None:
            torch.nn.init.normal_(attention.sink)
    eager = bench.eager_decoder(ours)
    text, found = ids(150), []
    for model in (ours, eager):
        logits = model(text)
        logits.square().sum().backward()
        found.append([logits.detach(), *(each.grad for each in model.parameters())])
    for one, other in zip(*found, strict=True):
        # angles are single precision and their sines come from another function
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.slow
def test_the_quick_benchmark_gives_ratios(
    bench: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers")
    bench.main(["--quick", "--json", str(tmp_path / "a.json")])
    result = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert max(result["differences"].values()) < 1e-3
    by = {(r["kind"], r["family"], r["who"]): r["over_ours"]["processor"] for r in result["races"]}
    assert len(by) == 12
    for (_, _, who), (median, low, high) in by.items():
        assert low <= median <= high
        assert median == 1 if who == "ours" else median > 0.2  # loose: machines are shared
    assert all(row["exponent"]["wall"][0] < 4 for row in result["growth"])
