"""vLLM, SGLang, and servers of which only OpenAI's API is known: requests, figures, checks."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2
import pytest

from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Choice
from kvphase.types import Arm
from runtimes.speakers import (
    BOS,
    HEAD,
    PROMPT,
    TAIL,
    WORDS,
    Local,
    Speaker,
    complete,
    opened,
    use,
)
from runtimes.speakers import question as q

if TYPE_CHECKING:
    from typing import Any

KINDS = ("vllm", "sglang", "completions", "chat")
NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "completions": "OpenAI completions",
    "chat": "OpenAI chat",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_is_known_by_what_it_says(kind: str) -> None:
    about = opened(Speaker(kind)).about
    assert about.runtime == NAMES[kind]
    assert about.model == "tiny"
    assert about.target == "http://127.0.0.1:9999"


def test_a_named_kind_overrules_what_the_server_says() -> None:
    assert opened(Speaker("vllm"), Local(runtime="openai")).about.runtime == "OpenAI completions"
    assert opened(Speaker("vllm"), Local(runtime="chat")).about.runtime == "OpenAI chat"
    with pytest.raises(UsageError, match="llama-server, vllm, sglang"):
        opened(Speaker("vllm"), Local(runtime="cuneiform"))


def test_versions_and_context_are_the_servers_own() -> None:
    vllm, sglang = opened(Speaker("vllm")), opened(Speaker("sglang"))
    assert (vllm.about.build, sglang.about.build) == ("0.99.1", "0.9.9")
    assert vllm.limits.context_tokens == sglang.limits.context_tokens == 4096
    plain = opened(Speaker("completions", context=None))
    assert plain.limits.context_tokens == 16_384
    assert "assumed" in plain.about.extra["context"]


def test_servers_with_a_tokenizer_need_none_of_ours() -> None:
    for kind in ("vllm", "sglang"):
        limits = opened(Speaker(kind), Choice()).limits
        assert limits.bos == (BOS,)
        assert limits.offset_known
        assert limits.counted
    for kind in ("completions", "chat"):
        with pytest.raises(UsageError, match="--tokenizer"):
            opened(Speaker(kind), Choice())


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_several_models_must_be_named(kind: str) -> None:
    server = Speaker(kind, models=("tiny", "/home/someone/big.gguf"))
    with pytest.raises(UsageError, match=r"2 models .* --model: tiny, big\.gguf") as caught:
        opened(server)
    assert caught.value.exit_code == 2
    assert "someone" not in str(caught.value)
    assert not server.bodies
    with pytest.raises(UsageError, match=r"no model called 'huge'; it has tiny, big\.gguf"):
        opened(server, Local(model="huge"))
    assert opened(server, Local(model="big.gguf")).about.model == "big.gguf"
    if kind != "sglang":
        assert server.bodies[-1]["model"] == "/home/someone/big.gguf"


@pytest.mark.parametrize("kind", ["vllm", "sglang", "completions"])
def test_ids_are_sent_as_composed_and_the_prefix_is_paid_for_once(kind: str) -> None:
    server = Speaker(kind)
    replies = complete(server, q(0), q(1), q(2))
    sent = [body.get("prompt", body.get("input_ids")) for body in server.bodies[-3:]]
    assert sent == [list(q(n).prompt) for n in range(3)]
    size = len(q().prompt)
    assert [reply.prefilled for reply in replies] == [size, *[size - size // 16 * 16] * 2]
    assert [reply.text for reply in replies] == [" Alice"] * 3
    assert all(reply.finished for reply in replies)


@pytest.mark.parametrize(("kind", "salt"), [("vllm", "cache_salt"), ("sglang", "extra_key")])
def test_a_cold_ask_has_a_salt_of_its_own(kind: str, salt: str) -> None:
    server = Speaker(kind)
    replies = complete(server, q(0), q(0, arm=Arm.COLD), q(1, arm=Arm.COLD), q(2))
    assert [reply.cached for reply in replies] == [0, 0, 0, len(q().prompt) // 16 * 16]
    salts = [body.get(salt) for body in server.bodies[-4:]]
    assert salts[0] is salts[3] is None
    assert len({salts[1], salts[2]} - {None}) == 2


def test_a_salt_that_hides_nothing_makes_no_cold_asks() -> None:
    assert opened(Speaker("vllm")).limits.cold
    assert not opened(Speaker("vllm", salts=False)).limits.cold
    assert not opened(Speaker("sglang", salts=False)).limits.cold
    assert not opened(Speaker("completions")).limits.cold


def test_who_tells_of_hits_only_tells() -> None:
    assert opened(Speaker("vllm")).limits.cache_report
    assert not opened(Speaker("vllm", tells=False)).limits.cache_report
    first, second = complete(Speaker("vllm"), q(0), q(1))
    assert (first.cached, second.cached) == (0, len(q().prompt) // 16 * 16)
    (silent,) = complete(Speaker("vllm", tells=False), q(0))
    assert silent.cached is silent.prefilled is None


def test_scores_by_id_by_text_and_as_asked_for() -> None:
    wanted = q(0, candidates=(" Alice", " Bob"))
    absent = q(1, expected=" Zoe", candidates=(" Zoe", " Carol"))
    for kind in ("vllm", "completions", "chat"):
        one, other = complete(Speaker(kind), wanted, absent)
        assert (one.logprob, one.against, one.margin) == (-0.25, -1.75, 1.5), kind
        assert (other.logprob, other.against) == (-math.inf, -math.inf), kind
    one, other = complete(Speaker("sglang"), wanted, absent)
    assert (one.logprob, one.against, one.margin) == (-0.25, -1.75, 1.5)
    assert (other.logprob, other.against) == (-5.5, -5.5)  # asked for by id, never censored


@pytest.mark.parametrize(("most", "found"), [(20, 20), (7, 5), (0, 0)])
def test_fewer_scores_are_asked_for_where_so_many_are_refused(most: int, found: int) -> None:
    server = Speaker("completions", most_scores=most)
    assert opened(server).limits.top_logprobs == found
    (reply,) = complete(server, q())
    assert (reply.logprob is None) is (found == 0)
    assert reply.text == " Alice"


@pytest.mark.parametrize("adds_bos", [True, False])
def test_texts_are_sent_where_ids_are_not_taken(adds_bos: bool) -> None:
    server = Speaker("completions", ids=False, adds_bos=adds_bos)
    limits = opened(server).limits
    assert not limits.ids
    assert limits.bos == (BOS,)
    complete(server, q())
    text = WORDS.decode(q().prompt[1:])
    assert server.bodies[-1]["prompt"] == (text if adds_bos else f"<s>{text}")


def test_a_server_that_counts_nothing_proves_nothing() -> None:
    limits = opened(Speaker("completions", counts=False, ids=False)).limits
    assert not limits.counted
    assert not limits.offset_known


def test_a_chat_has_its_template_counted_where_it_is_known() -> None:
    server = Speaker("chat")
    runtime = opened(server)
    assert runtime.limits.bos == (BOS, *WORDS.encode(HEAD))
    assert runtime.limits.offset_known
    assert runtime.about.template == "imaginary"
    asked = q(prefix=(*runtime.limits.bos, *PROMPT))
    (reply,) = complete(server, asked)
    assert reply.text == "Alice"
    content = server.bodies[-1]["messages"][0]["content"]
    assert content == WORDS.decode(asked.prompt[2:])
    assert server.bodies[-1]["max_tokens"] >= 8
    off = server.bodies[-1]["chat_template_kwargs"]
    assert off == {"enable_thinking": False, "thinking": False}


def test_a_chat_with_another_template_is_right_up_to_a_constant() -> None:
    server = Speaker("chat", head="<system> be brief <user>")
    runtime = opened(server)
    assert not runtime.limits.offset_known
    assert runtime.limits.counted
    assert runtime.limits.bos == ()
    assert runtime.about.template == "unknown"
    asked = q(prefix=PROMPT)
    complete(server, asked, replace(asked, id="b"))


def test_a_chat_that_changes_its_template_stops_the_run() -> None:
    def longer(at: int, said: dict[str, Any]) -> httpx2.Response:
        said["usage"]["prompt_tokens"] += at > 4
        return httpx2.Response(200, json=said)

    server = Speaker("chat", head="<other>", answer=longer)
    asked = q(prefix=PROMPT)
    with pytest.raises(RuntimeFault, match="put something into the prompt"):
        complete(server, *(replace(asked, id=str(n)) for n in range(6)))


def test_a_chat_without_the_switch_for_thinking_is_measured_all_the_same() -> None:
    server = Speaker("chat", refuses=("chat_template_kwargs",))
    assert opened(server).about.thinking == "unknown"
    assert "chat_template_kwargs" not in server.bodies[-1]
    assert opened(Speaker("chat")).about.thinking == "off"


def test_the_number_of_answer_tokens_is_called_what_the_server_calls_it() -> None:
    class Renamed(Speaker):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            """Refuse the older name, and say the newer one."""
            if b'"max_tokens"' in request.content:
                text = "Unsupported parameter: use 'max_completion_tokens' instead."
                return httpx2.Response(400, json={"error": {"message": text}})
            return await super().__call__(request)

    server = Renamed("chat")
    assert opened(server).limits.top_logprobs == 20
    assert server.bodies[-1]["max_completion_tokens"] >= 8


def test_what_a_gateway_forbids_is_not_there() -> None:
    class Gated(Speaker):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            """Forbid every page but the list of models."""
            if request.method == "GET" and request.url.path != "/v1/models":
                return httpx2.Response(403, json={"message": "Missing Authentication Token"})
            return await super().__call__(request)

    assert opened(Gated("chat")).about.runtime == "OpenAI chat"


def test_thoughts_are_no_answer_and_an_answer_cut_in_them_is_unfinished() -> None:
    asked = q(prefix=(BOS, *WORDS.encode(HEAD), *PROMPT))
    (both,) = complete(Speaker("chat", reasoning="It was Bob."), asked)
    assert (both.text, both.finished) == ("Alice", True)
    (cut,) = complete(Speaker("chat", reasoning="Hmm", text=""), asked)
    assert (cut.text, cut.finished) == ("", False)
    (empty,) = complete(Speaker("completions", text=""), q())
    assert (empty.text, empty.finished) == ("", True)


CHANGES: list[tuple[str, Any, str]] = [
    ("cut", lambda said: said["usage"].update(prompt_tokens=300), "cut or changed the prompt"),
    ("bos", lambda said: said["usage"].update(prompt_tokens=len(q().prompt) + 1), "second BOS"),
    ("model", lambda said: said.update(model="/home/someone/other"), "other instead of tiny"),
    (
        "ids",
        lambda said: said["choices"][0].update(prompt_token_ids=[1, 2, 3]),
        "other tokens than",
    ),
]


@pytest.mark.parametrize(("name", "change", "says"), CHANGES, ids=[c[0] for c in CHANGES])
def test_another_prompt_or_model_stops_the_run(name: str, change: Any, says: str) -> None:  # noqa: ANN401
    del name
    trials: list[int] = []

    def changed(at: int, said: dict[str, Any]) -> httpx2.Response:
        if trials and at > trials[0]:
            change(said)
        return httpx2.Response(200, json=said)

    server = Speaker("vllm", answer=changed)
    trials.append(len(_opened_bodies()))
    with pytest.raises(RuntimeFault, match=says) as caught:
        complete(server, q(0), q(1))
    assert not isinstance(caught.value, TransientFault)
    assert "someone" not in str(caught.value)
    assert caught.value.exit_code == 3


def _opened_bodies() -> list[dict[str, Any]]:
    """What opening a vLLM server takes."""
    server = Speaker("vllm")
    opened(server)
    return server.bodies


def test_the_template_is_the_servers_own() -> None:
    async def job(runtime: Any) -> Any:  # noqa: ANN401
        return await runtime.template(), runtime.about

    for kind in ("vllm", "sglang"):
        template, about = use(Speaker(kind), job, Choice())
        assert (template.head_text, template.tail_text) == (HEAD, TAIL)
        assert about.template == template.digest


@pytest.mark.parametrize(
    ("said", "read"),
    [("Ivan, the cat", "Ivan"), (" Ivan", " Ivan"), ("Ivanovich!", "Ivanovich"), ("**Ivan**",) * 2],
)
def test_of_a_chat_the_first_word_counts_where_one_token_was_wanted(said: str, read: str) -> None:
    asked = q(prefix=(BOS, *WORDS.encode(HEAD), *PROMPT))
    one, more = complete(chatty(said), asked, replace(asked, generate=8))
    assert (one.text, more.text) == (read, said)


def chatty(text: str) -> Speaker:
    """A chat that says just this."""

    def answer(_: int, said: dict[str, Any]) -> httpx2.Response:
        said["choices"][0]["message"]["content"] = text
        return httpx2.Response(200, json=said)

    return Speaker("chat", answer=answer)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_questions_go_together_once_their_prefix_is_there(kind: str) -> None:
    """The first ones pay for the prefix alone, however many are sent at once."""
    under_way, most = 0, []

    class Slow(Speaker):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            """Take a while over each question."""
            nonlocal under_way
            under_way += 1
            await asyncio.sleep(0.01)
            found = await super().__call__(request)
            most.append(under_way)
            under_way -= 1
            return found

    async def job(runtime: Any) -> list[Any]:  # noqa: ANN401
        assert runtime.limits.concurrency > 1
        most.clear()
        return await asyncio.gather(*(runtime.complete(q(n)) for n in range(9)))

    replies = use(Slow(kind), job)
    assert most[:2] == [1, 1]
    assert max(most) > 3
    assert [reply.cached == 0 for reply in replies] == [True] + [False] * 8
