"""Which slots a measurement takes, what it notices of others, and what it never asks a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from kvphase.runtimes import llamacpp_slots
from kvphase.runtimes.llamacpp_slots import Slot, choose
from kvphase.types import Arm, Reply
from runtimes.doubles import PROPS, Server, ask, complete, events, slot, stream, use

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvphase.runtimes.llamacpp import LlamaCpp

ALLOWED = {
    "GET /health",
    "GET /props",
    "GET /v1/models",
    "GET /slots",
    "POST /tokenize",
    "POST /apply-template",
    "POST /completion",
}


def many(total: int, **more: Any) -> Server:  # noqa: ANN401
    return Server(props={**PROPS, "total_slots": total}, **more)


def listed(*slots: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json=list(slots))


def looks(*answers: list[dict[str, Any]]) -> Callable[[int], httpx2.Response]:
    """What the slots are at each look; the last answer stays."""
    return lambda at: listed(*answers[min(at, len(answers) - 1)])


@pytest.mark.parametrize(
    ("slots", "exclusive", "places"),
    [
        ([slot(0)], False, (0, 0)),
        ([slot(0)], True, (0, 0)),
        ([slot(0, 9)], False, (0, 0)),
        ([slot(0), slot(1)], False, (0, 1)),
        ([slot(0, 5), slot(1)], False, (1, 1)),  # slot 0 may hold a conversation
        ([slot(0, 5), slot(1)], True, (1, 0)),
        ([slot(0, 5), slot(1, 3)], False, (1, 1)),  # the least recently used
        ([slot(0, busy=True), slot(1), slot(2), slot(3, 4)], False, (1, 2)),
        ([slot(0, 7, busy=True), slot(1, 8, busy=True)], False, (0, 0)),
        ([slot(0, 2), slot(1, busy=True), slot(2, 6), slot(3, 4)], True, (0, 3)),
        ([slot(0, -1), slot(1, -1)], False, (0, 1)),  # older servers list no task as -1
        ([], True, (0, 1)),
        (None, False, (0, 0)),
        (None, True, (0, 1)),
    ],
)
def test_slots_that_are_taken(
    slots: list[dict[str, Any]] | None, exclusive: bool, places: tuple[int, int]
) -> None:
    read = None if slots is None else [Slot.model_validate(one) for one in slots]
    chosen = choose(read, 2 if read is None else max(len(read), 2), exclusive=exclusive)
    assert (chosen.screen, chosen.spare) == places


@pytest.mark.parametrize(
    ("total", "asked"), [(1, [0, 0, 0, 0, 0]), (2, [0, 0, 1, 0, 0]), (4, [0, 0, 1, 0, 0])]
)
def test_cold_ask_takes_an_unused_slot_where_there_is_one(total: int, asked: list[int]) -> None:
    server = many(total)
    *_, last = complete(server, ask(), ask(arm=Arm.COLD), ask(suffix=(52, 51)))
    assert [body["id_slot"] for body in server.bodies] == asked
    # The prefix is warmed again in either case: four tokens where it is still there.
    assert (last.prefilled, last.cached) == (4 + 2, 30)


def test_conversation_in_a_slot_is_left_alone() -> None:
    server = many(2, tasks={0: 12})
    complete(server, ask(), ask(arm=Arm.COLD), ask(prefix=(), suffix=(1, 2)))
    assert {body["id_slot"] for body in server.bodies} == {1}


def test_exclusive_use_takes_any_other_slot() -> None:
    server = many(2, tasks={0: 12})
    complete(server, ask(), ask(arm=Arm.COLD), exclusive=True)
    assert [body["id_slot"] for body in server.bodies] == [1, 1, 0]


@pytest.mark.parametrize("status", [404, 501])
def test_server_that_does_not_tell_is_asked_once(status: int) -> None:
    def refuses(_: int) -> httpx2.Response:
        return httpx2.Response(status, json={"error": {"message": "Start it with --slots"}})

    async def job(runtime: LlamaCpp) -> int | None:
        for arm in (Arm.SCREEN, Arm.ALONE, Arm.COLD):
            await runtime.complete(ask(arm=arm))
        return runtime.traffic

    server = many(4, tells=refuses)
    assert use(server, job) is None
    assert server.calls.count("GET /slots") == 1
    assert {body["id_slot"] for body in server.bodies} == {0}


def test_server_that_says_so_is_not_even_asked() -> None:
    server = Server(props={**PROPS, "endpoint_slots": False})
    complete(server, ask())
    assert "GET /slots" not in server.calls


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(500, json={}),
        httpx2.Response(200, json={"slots": []}),
        httpx2.Response(200, json=[{"id": 0, "state": 1}]),
        httpx2.Response(200, json=[]),
        httpx2.Response(200, text="[{"),
    ],
)
def test_odd_answers_about_slots_do_not_matter(answer: httpx2.Response) -> None:
    async def job(runtime: LlamaCpp) -> tuple[str, int | None]:
        return (await runtime.complete(ask())).text, runtime.traffic

    assert use(many(2, tells=lambda _: answer), job) == (" Alice", None)


def traffic(server: Server, *arms: Arm) -> int | None:
    async def job(runtime: LlamaCpp) -> int | None:
        for arm in arms:
            await runtime.complete(ask(arm=arm))
        return runtime.traffic

    seen: int | None = use(server, job)
    return seen


def test_nobody_else_is_seen_where_nobody_is() -> None:
    server = many(2)
    assert traffic(server, *[Arm.SCREEN] * 5, Arm.COLD, Arm.ALONE, Arm.SCREEN) == 0


def test_a_slot_at_work_counts() -> None:
    idle, busy = [slot(0), slot(1)], [slot(0), slot(1, 4, busy=True)]
    assert traffic(many(2, tells=looks(idle, busy)), Arm.SCREEN) == 1
    assert traffic(many(2, tells=looks(busy, busy)), Arm.SCREEN) == 2
    assert traffic(many(1, tells=looks([slot(0, 3, busy=True)], [slot(0)])), Arm.SCREEN) == 1


def test_work_between_two_looks_counts() -> None:
    before, after = [slot(0), slot(1), slot(2, 4)], [slot(0), slot(1, 8), slot(2, 9)]
    assert traffic(many(3, tells=looks(before, after)), Arm.SCREEN, Arm.SCREEN) == 1


def test_slots_are_looked_at_before_a_prefix_and_now_and_then() -> None:
    server = Server()
    asks = [ask(suffix=(n, 51)) for n in range(1000, 1120)]
    complete(server, *asks, ask(prefix=tuple(range(700, 730))))
    assert server.calls.count("GET /slots") == 1 + 1 + 2 + 1


def test_slots_are_looked_at_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp_slots, "EVERY_SECONDS", 0.0)
    server = Server()
    complete(server, ask(), ask())
    assert server.calls.count("GET /slots") >= 3


def test_alone_waits_for_others_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp_slots, "QUIET_PAUSE", 0.01)
    idle, busy = [slot(0), slot(1, 4)], [slot(0), slot(1, 4, busy=True)]
    server = many(2, tells=looks(idle, busy, busy, idle))
    assert traffic(server, Arm.ALONE) == 0
    assert server.calls.index("POST /completion") > server.calls.index("GET /slots")
    assert server.calls[: server.calls.index("POST /completion")].count("GET /slots") == 5


def test_alone_asks_anyway_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp_slots, "QUIET_PAUSE", 0.01)
    monkeypatch.setattr(llamacpp_slots, "QUIET_SECONDS", 0.05)
    idle, busy = [slot(0), slot(1, 4)], [slot(0), slot(1, 4, busy=True)]
    server = many(2, tells=looks(idle, idle, busy))

    async def job(runtime: LlamaCpp) -> tuple[Reply, int | None]:
        await runtime.complete(ask())
        return await runtime.complete(ask(arm=Arm.ALONE)), runtime.traffic

    reply, seen = use(server, job)
    assert (reply.text, seen) == (" Alice", 1)
    assert reply.seconds < 0.05  # the wait is no part of the answer's time


def test_prefix_that_somebody_displaced_is_noticed_and_warmed_again() -> None:
    server = Server()

    async def job(runtime: LlamaCpp) -> tuple[list[Reply], int, int | None]:
        replies = [await runtime.complete(ask())]
        server.slots[0] = [1, 2, 3]
        replies += [await runtime.complete(ask(suffix=(n, 51))) for n in (52, 53, 54)]
        return replies, runtime.lost_prefix, runtime.traffic

    replies, lost, seen = use(server, job)
    assert (lost, seen) == (1, 1)
    assert [reply.cached for reply in replies] == [30, 0, 30, 30]
    assert [reply.prefilled for reply in replies] == [36, 32, 6, 2]


def test_server_that_never_keeps_a_prefix_is_no_traffic() -> None:
    def forgets(_: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        return stream(events([0] * lines[1]["tokens_evaluated"], 0))

    async def job(runtime: LlamaCpp) -> tuple[int, int | None]:
        for n in range(3):
            await runtime.complete(ask(suffix=(n, 51)))
        return runtime.lost_prefix, runtime.traffic

    server = Server(answer=forgets)
    assert use(server, job) == (3, 0)
    assert len(server.bodies) == 4  # warmed once only


def test_answer_without_counts_is_no_loss() -> None:
    def bare(_: int, lines: list[dict[str, Any]]) -> httpx2.Response:
        return stream([lines[0], {**lines[1], "timings": {}}])

    async def job(runtime: LlamaCpp) -> int:
        await runtime.complete(ask())
        await runtime.complete(ask(suffix=(3, 51)))
        return runtime.lost_prefix

    assert use(Server(answer=bare), job) == 0


@pytest.mark.parametrize("exclusive", [False, True])
def test_server_is_asked_only_what_changes_nothing_of_others(exclusive: bool) -> None:
    server = many(3, tasks={2: 1})

    async def job(runtime: LlamaCpp) -> None:
        await runtime.tokenize(["a", "b"])
        await runtime.template()
        for arm in Arm:
            await runtime.complete(ask(arm=arm))
            await runtime.complete(ask(arm=arm, prefix=(), suffix=(1, 2)))

    use(server, job, exclusive=exclusive)
    assert set(server.calls) <= ALLOWED
    assert not any("action" in json.dumps(body) for body in server.bodies)
