"""Whatever JSON arrives, the server answers or refuses; it never fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from kvphase.serve.app import build_app
from kvphase.serve.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvphase.runtimes.toy import ToyEngine

MORE_FIELDS = ["content", "tokens", "messages", "prompt", "max_tokens", "logprobs", "lora", "n"]
MORE_FIELDS += ["add_special", "parse_special", "with_pieces", "logit_bias"]
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-3, 300)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters())
)
VALUES = some.recursive(SCALARS, lambda inner: some.lists(inner, max_size=3), max_leaves=6)
FIELDS = some.sampled_from([*Settings.__slots__, *MORE_FIELDS])
PATHS = some.sampled_from(
    ["/tokenize", "/detokenize", "/apply-template", "/completion", "/v1/completions"]
)
PROMPTS: some.SearchStrategy[dict[str, object]] = some.sampled_from(
    [{"prompt": " cat:"}, {"prompt": [0, 3, 1]}, {}]
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(PATHS, some.dictionaries(FIELDS, VALUES, max_size=4), PROMPTS)
def test_no_body_breaks_the_server(
    engine: ToyEngine, path: str, odd: dict[str, object], prompt: dict[str, object]
) -> None:
    async def post() -> httpx2.Response:
        transport = httpx2.ASGITransport(build_app(engine))
        async with httpx2.AsyncClient(transport=transport, base_url="http://toy") as client:
            return await client.post(path, json={"n_predict": 2, **odd, **prompt})

    response = asyncio.run(post())
    assert response.status_code in {200, 400, 404, 501}
    if response.status_code != 200:
        assert response.json()["error"]["code"] == response.status_code


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": " cat:", "n_predict": NaN}',
        b'{"prompt": " cat:", "n_predict": 1e999}',
        b'{"prompt": " cat:", "temperature": Infinity}',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
)
def test_what_is_not_json(serve: Callable[..., httpx2.Client], body: bytes) -> None:
    assert serve().post("/completion", content=body).status_code == 400


def test_half_a_surrogate_pair(serve: Callable[..., httpx2.Client]) -> None:
    body = b'{"content": "\\ud800", "with_pieces": true}'
    answer = serve().post("/tokenize", content=body).json()
    assert answer == {"tokens": [{"id": 2**31 - 1, "piece": "?"}]}
