"""The llama-server runtime against scripted answers: every request, figure and fault."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import open_runtime, recognise
from kvphase.runtimes.http import new_client
from kvphase.runtimes.llamacpp import LlamaCpp
from kvphase.types import Arm
from runtimes.doubles import PROPS, Server, ask, complete, events, stream, use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kvphase.types import Ask, Reply


def test_prefix_is_prefilled_once_with_four_tokens_more() -> None:
    server = Server()
    replies = complete(server, ask(), ask(suffix=(52, 51)), ask(suffix=(53, 51)))
    warm, *questions = server.bodies
    assert warm["prompt"][:30] == list(range(10, 40))
    assert len(warm["prompt"]) == 34
    assert warm["prompt"][30] != 50
    assert warm["n_predict"] == 0
    assert [body["prompt"][30:] for body in questions] == [[50, 51], [52, 51], [53, 51]]
    assert [reply.prefilled for reply in replies] == [34 + 2, 2, 2]
    assert [reply.cached for reply in replies] == [30, 30, 30]


def test_requests_are_greedy_with_scores_on_one_slot() -> None:
    server = Server()
    complete(server, ask(generate=3))
    body = server.bodies[-1]
    expected = {"temperature": 0, "top_k": 1, "n_probs": 20, "n_predict": 3, "id_slot": 0}
    assert expected.items() <= body.items()
    assert body["cache_prompt"]
    assert body["stream"]


def test_scores_become_logprob_and_margin() -> None:
    right, absent, null = complete(
        Server(), ask(), ask(expected=" Zoe", suffix=(5, 6)), ask(expected=" Carol", suffix=(7, 6))
    )
    assert (right.text, right.logprob, right.margin) == (" Alice", -0.25, 1.5)
    assert absent.logprob == -math.inf
    assert null.logprob == -math.inf
    assert right.finished
    assert right.generated == 1


def test_without_scores_the_text_is_all_there_is() -> None:
    def bare(_: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        del lines[0]["completion_probabilities"]
        return stream(lines)

    (reply,) = complete(Server(answer=bare), ask())
    assert (reply.text, reply.logprob, reply.margin) == (" Alice", None, None)


def test_server_without_streams_is_understood() -> None:
    def whole(_: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        return httpx2.Response(200, json={**lines[0], **lines[1], "content": " Alice"})

    (reply,) = complete(Server(answer=whole), ask())
    assert (reply.text, reply.logprob, reply.cached) == (" Alice", -0.25, 30)


def test_cold_ask_ignores_the_cache_and_the_prefix_is_warmed_again() -> None:
    server = Server()
    replies = complete(server, ask(), ask(arm=Arm.COLD), ask(suffix=(52, 51)))
    assert [body["cache_prompt"] for body in server.bodies] == [True, True, False, True, True]
    assert (replies[1].prefilled, replies[1].cached) == (32, 0)
    assert (replies[2].prefilled, replies[2].cached) == (4 + 2, 30)


def test_tempting_answer_is_scored_as_the_right_one() -> None:
    both, none, censored = complete(
        Server(),
        ask(candidates=(" Alice", " Bob")),
        ask(suffix=(5, 6)),
        ask(candidates=(" Alice", " Zoe"), suffix=(7, 6)),
    )
    assert (both.logprob, both.against) == (-0.25, -1.75)
    assert none.against is None
    assert censored.against == -math.inf


@pytest.mark.parametrize(
    ("expected", "score"),
    [(" Alice Springs", -0.25), (" Bobby", -1.75), (" Xerxes", None), ("", None)],
)
def test_answer_of_several_tokens_has_the_score_of_the_first(
    expected: str, score: float | None
) -> None:
    (reply,) = complete(Server(), ask(expected=expected, candidates=(expected, expected)))
    assert (reply.logprob, reply.against) == (score, score)


def test_each_unseen_text_is_tokenized_once() -> None:
    server = Server()
    asks = [ask(expected=" Zoe", suffix=(n, 6)) for n in range(5)]
    complete(server, *asks)
    assert server.calls.count("POST /tokenize") == 2  # the other one asks for the BOS


def test_short_prompt_without_a_prefix_may_be_asked_again_and_moves_the_prefix_away() -> None:
    server = fails(2, reset)
    whole = ask(prefix=(), suffix=tuple(range(300, 400)))

    async def job(runtime: LlamaCpp) -> list[Reply]:
        first = await runtime.complete(ask())
        with pytest.raises(TransientFault):
            await runtime.complete(whole)
        return [first, await runtime.complete(whole), await runtime.complete(ask())]

    _, short, after = use(server, job)
    assert [len(body["prompt"]) for body in server.bodies] == [34, 32, 100, 100, 34, 32]
    assert [body["cache_prompt"] for body in server.bodies] == [True] * 2 + [False] * 2 + [True] * 2
    assert (short.prefilled, short.cached) == (100, 0)
    assert (after.prefilled, after.cached) == (36, 30)


def test_long_prompt_without_a_prefix_is_a_prefill() -> None:
    with pytest.raises(RuntimeFault, match="prefill") as caught:
        complete(fails(0, reset), ask(prefix=(), suffix=tuple(range(600))))
    assert not isinstance(caught.value, TransientFault)


def test_prefix_that_leaves_no_room_for_four_tokens_is_asked_directly() -> None:
    server = Server(props={**PROPS, "default_generation_settings": {"n_ctx": 33}})
    complete(server, ask(), ask(suffix=(52, 51)))
    assert [len(body["prompt"]) for body in server.bodies] == [32, 32]


def fails(ordinal: int, fault: Callable[[], httpx2.Response]) -> Server:
    """A server whose completion with this ordinal goes wrong."""

    def answer(at: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        return fault() if at == ordinal else stream(lines)

    return Server(answer=answer)


def refused() -> httpx2.Response:
    raise httpx2.ConnectError("All connection attempts failed to some.host.example")


def reset() -> httpx2.Response:
    raise httpx2.ReadError("reset")


def silent() -> httpx2.Response:
    raise httpx2.ReadTimeout("read")


def torn() -> httpx2.Response:
    line = f"data: {json.dumps(events([1], 0)[0])[:40]}\n\n"
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=line)


def breaks_off() -> httpx2.Response:
    async def half() -> AsyncIterator[bytes]:
        yield f"data: {json.dumps(events([1], 0)[0])}\n\n".encode()
        raise httpx2.RemoteProtocolError("peer closed")

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=half())


PASSING: list[tuple[Callable[[], httpx2.Response], str]] = [
    (refused, "cannot be reached"),
    (reset, "connection broke"),
    (silent, "fell silent"),
    (torn, "torn"),
    (breaks_off, "connection broke"),
    (lambda: stream(events([1], 0)[:1]), "stops before its end"),
    (lambda: httpx2.Response(503, json={"error": {"message": "Loading model"}}), "Loading model"),
    (lambda: stream([{"error": {"code": 500, "message": "Compute error"}}]), "Compute error"),
]
LASTING: list[tuple[Callable[[], httpx2.Response], str]] = [
    (lambda: httpx2.Response(400, json={"error": {"message": "too long"}}), "too long"),
    (lambda: httpx2.Response(404, text="<html>no</html>"), "HTTP 404"),
    (lambda: httpx2.Response(401, json={"error": {"message": "no"}}), "KVPHASE_API_KEY"),
    (lambda: httpx2.Response(200, text="<!doctype html><p>Hello"), "HTML"),
    (lambda: httpx2.Response(200, text="OK"), "not JSON"),
    (lambda: httpx2.Response(200, text="[1]"), "another kind"),
    (lambda: httpx2.Response(302, headers={"location": "/x"}), "redirects"),
    (lambda: stream([{"content": 3}]), "'content' is missing or odd"),
]


@pytest.mark.parametrize(("fault", "message"), PASSING)
def test_failed_question_may_be_asked_again(
    fault: Callable[[], httpx2.Response], message: str
) -> None:
    with pytest.raises(TransientFault, match=message) as caught:
        complete(fails(1, fault), ask())
    assert "example" not in str(caught.value)


@pytest.mark.parametrize("asked", [ask(), ask(arm=Arm.COLD)])
@pytest.mark.parametrize(("fault", "message"), PASSING)
def test_failed_prefill_is_final(
    fault: Callable[[], httpx2.Response], message: str, asked: Ask
) -> None:
    with pytest.raises(RuntimeFault, match=f"{message}.*prefill") as caught:
        complete(fails(0, fault), asked)
    assert not isinstance(caught.value, TransientFault)


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize(("fault", "message"), LASTING)
def test_refusal_is_final(fault: Callable[[], httpx2.Response], message: str, ordinal: int) -> None:
    with pytest.raises(RuntimeFault, match=message) as caught:
        complete(fails(ordinal, fault), ask())
    assert not isinstance(caught.value, TransientFault)
    assert "\n" not in str(caught.value)


def test_question_that_failed_is_answered_when_asked_again() -> None:
    server = fails(1, reset)

    async def job(runtime: LlamaCpp) -> Reply:
        with pytest.raises(TransientFault):
            await runtime.complete(ask())
        return await runtime.complete(ask())

    reply: Reply = use(server, job)
    assert reply.text == " Alice"
    assert reply.prefilled == 34 + 1  # the warm-up is counted with the first answer that came
    assert len(server.bodies) == 3  # the prefix was not prefilled again


def test_server_that_went_away_gets_the_prefix_again() -> None:
    server = fails(1, refused)

    async def job(runtime: LlamaCpp) -> Reply:
        with pytest.raises(TransientFault):
            await runtime.complete(ask())
        return await runtime.complete(ask())

    use(server, job)
    assert [len(body["prompt"]) for body in server.bodies] == [34, 32, 34, 32]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens_evaluated": 20}, "20 tokens of a prompt of 34"),
        ({"timings": {"cache_n": 5, "prompt_n": 5}}, "10 tokens of a prompt of 34"),
        ({"truncated": True}, "truncated"),
    ],
)
def test_prompt_that_the_server_cut_stops_the_run(change: dict[str, Any], message: str) -> None:
    def cut(_: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        return stream([lines[0], {**lines[1], **change}])

    with pytest.raises(RuntimeFault, match=message) as caught:
        complete(Server(answer=cut), ask())
    assert not isinstance(caught.value, TransientFault)


def test_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPHASE_API_KEY", "sk-secret")
    server = fails(0, lambda: httpx2.Response(403, json={"error": {"message": "bad sk-secret"}}))
    with pytest.raises(RuntimeFault) as caught:
        complete(server, ask())
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(caught.value)


def test_about_and_limits_come_from_the_server_without_paths() -> None:
    async def job(runtime: LlamaCpp) -> LlamaCpp:
        return runtime

    runtime: LlamaCpp = use(Server(bos=[1]), job)
    about, limits = runtime.about, runtime.limits
    assert about.target == "http://127.0.0.1:8080"
    assert (about.model, about.quant) == ("Tiny-1B-Instruct.Q4_K_M.gguf", "Q4_K_M")
    assert (about.build, about.toy) == ("b1234-abcdef", False)
    assert (limits.context_tokens, limits.top_logprobs, limits.bos) == (4096, 20, (1,))
    assert "someone" not in repr(about)


def test_served_toy_is_marked_and_tells_its_window() -> None:
    async def job(runtime: LlamaCpp) -> LlamaCpp:
        return runtime

    props = {**PROPS, "model_alias": "toy:w8s4", "kvphase": {"local_window": 16}}
    runtime: LlamaCpp = use(Server(props=props), job)
    assert runtime.about.toy
    assert runtime.about.model == "toy:w8s4"
    assert runtime.limits.local_window == 16


def test_host_names_are_not_shown() -> None:
    async def main() -> str:
        transport = httpx2.MockTransport(Server())
        async with new_client("https://gpu.example.org:9000", transport) as client:
            return (await LlamaCpp.connect(client)).about.target

    assert asyncio.run(main()) == "https://host:9000"


def test_template_is_split_around_the_text_and_has_no_bos() -> None:
    async def job(runtime: LlamaCpp) -> Any:  # noqa: ANN401
        return await runtime.template(), runtime.about

    template, about = use(Server(bos=[1]), job)
    assert (template.head_text, template.tail_text) == ("[U]", "[A]")
    assert template.head == tuple(map(ord, "[U]"))
    assert about.template == template.digest != "none"


def test_server_without_template_is_a_usage_error() -> None:
    class Plain(Server):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            """Refuse the template only."""
            if request.url.path == "/apply-template":
                return httpx2.Response(400, json={"error": {"message": "no template"}})
            return await super().__call__(request)

    async def job(runtime: LlamaCpp) -> None:
        await runtime.template()

    with pytest.raises(UsageError, match="no template"):
        use(Plain(), job)


def found(answers: dict[str, httpx2.Response]) -> str:
    """What is said about a server with these answers, 404 elsewhere."""

    async def respond(request: httpx2.Request) -> httpx2.Response:
        return answers.get(request.url.path, httpx2.Response(404, json={}))

    async def main() -> None:
        async with new_client("http://127.0.0.1:1", httpx2.MockTransport(respond)) as client:
            await recognise(client)

    with pytest.raises(RuntimeFault) as caught:
        asyncio.run(main())
    return str(caught.value)


def test_other_servers_are_told_apart() -> None:
    ok = httpx2.Response(200, json={"status": "ok"})
    down = httpx2.Response(503, json={"error": {"message": "Maintenance"}})
    page = httpx2.Response(200, text="<html></html>")
    assert "--runtime" in found({"/health": ok})
    assert "HTML" in found({"/health": page})
    assert "not ready" in found({"/health": down})
    assert "none that kvphase knows" in found(
        {"/health": ok, "/props": httpx2.Response(200, json={"role": "router"})}
    )


@pytest.mark.parametrize("target", ["", "nonsense", "ftp://host:1", "localhost", "moon:x"])
def test_other_targets_are_refused_with_what_is_accepted(target: str) -> None:
    with pytest.raises(UsageError, match="toy:NAME"):
        open_runtime(target)


@pytest.mark.parametrize("target", ["http://127.0.0.1:9", "127.0.0.1:9", "http://localhost:9/v1/"])
def test_nothing_listening_is_said_in_one_sentence(target: str) -> None:
    async def main() -> None:
        async with open_runtime(target):
            pass

    with pytest.raises(RuntimeFault, match="cannot be reached"):
        asyncio.run(main())


def test_bad_port_is_a_usage_error() -> None:
    async def main() -> None:
        async with open_runtime("http://127.0.0.1:99999999"):
            pass

    with pytest.raises(UsageError):
        asyncio.run(main())


def test_another_model_or_tokenizer_than_its_own_is_refused() -> None:
    async def main(choice: Choice) -> str | None:
        async with new_client("http://127.0.0.1:1", httpx2.MockTransport(Server())) as client:
            return (await recognise(client, choice)).about.model

    name = "Tiny-1B-Instruct.Q4_K_M.gguf"
    assert asyncio.run(main(Choice(model=name))) == name
    with pytest.raises(UsageError, match="no model called 'big'; it has Tiny"):
        asyncio.run(main(Choice(model="big")))
    with pytest.raises(UsageError, match="its own tokenizer"):
        asyncio.run(main(Choice(tokenizer="tokenizer.json")))
