from __future__ import annotations

import time

import pytest

from fakes import small_vocab
from kvphase.errors import UsageError
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import plan_needle
from kvphase.runs.addresses import is_private
from kvphase.runs.budget import Budget, BudgetSpent, Meter, Prices
from kvphase.runs.check import must_be_bounded
from kvphase.types import Ask, Limits, Reply


def an_ask() -> Ask:
    design = NeedleDesign("insequence", 900, 24, 1, window=16)
    plan = plan_needle(small_vocab(), Limits(4096, local_window=16, bos=(0,)), design, 1)
    return next(iter(plan.batches()))[0]


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("15m", Budget(seconds=900)),
        ("90s", Budget(seconds=90)),
        ("1.5h", Budget(seconds=5400)),
        ("2000q", Budget(questions=2000)),
        ("3Mtok", Budget(tokens=3_000_000)),
        ("250ktok", Budget(tokens=250_000)),
        ("512tok", Budget(tokens=512)),
    ],
)
def test_budgets_are_read(text: str, budget: Budget) -> None:
    assert Budget.parse([text]) == budget


def test_several_bounds_and_money() -> None:
    prices = Prices.parse("0.28,0.42,0.028")
    budget = Budget.parse(["5m", "$2", "1Mtok"], prices)
    assert (budget.seconds, budget.dollars, budget.tokens) == (300, 2, 1_000_000)
    assert prices.of(1e6, 2e6, 1e6) == pytest.approx(0.28 + 0.056 + 0.42)
    assert Prices.parse("1,2").of(0, 1e6, 0) == 1.0


@pytest.mark.parametrize(
    "text", ["", "15", "m", "-5m", "0s", "5 minutes", "$", "$-1", "1e3q", "nan", "9" * 40 + "s"]
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no budget"):
        Budget.parse([text], Prices(1, 1))


@pytest.mark.parametrize("text", ["", "1", "1,2,3,4", "a,b", "-1,2", "inf,1", "nan,1"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no price"):
        Prices.parse(text)


def test_money_needs_prices() -> None:
    with pytest.raises(UsageError, match="--price"):
        Budget.parse(["$2"])


def test_a_meter_counts_what_the_runtime_counts_or_the_prompt() -> None:
    ask = an_ask()
    meter = Meter(Budget(dollars=1.0, prices=Prices(1000.0, 0.0)))
    meter.add(ask, Reply(" x", prefilled=10, cached=890, generated=1))
    assert (meter.prefilled, meter.cached, meter.generated) == (10, 890, 1)
    meter.add(ask, Reply(" x"))
    assert meter.prefilled == 10 + len(ask.prompt)
    # 910 new tokens and 890 from the cache at 1,000 dollars a million.
    assert meter.dollars == pytest.approx(1.8)
    with pytest.raises(BudgetSpent, match=r"\$1 is used up"):
        meter.check(ask)


def test_a_prefill_that_cannot_end_in_time_is_not_begun() -> None:
    ask = an_ask()
    meter = Meter(Budget(seconds=10.0), started=time.monotonic(), prefill_rate=50.0)
    with pytest.raises(BudgetSpent, match="10 seconds"):
        meter.check(ask)  # 900 tokens take 18 s
    meter.add(ask, Reply(" x", prefilled=2, cached=898, generated=1))
    meter.check(ask)  # its prefix is there now


def test_what_is_left_shrinks() -> None:
    meter = Meter(Budget(questions=10, tokens=1000))
    meter.add(an_ask(), Reply(" x", prefilled=300, generated=1))
    left = meter.left()
    assert (left.questions, left.tokens, left.seconds, left.dollars) == (9, 699, None, None)


@pytest.mark.parametrize(
    ("target", "private"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://192.168.1.7:8080", True),
        ("http://10.0.0.5", True),
        ("http://box:8080", True),
        ("box.local:8080", True),
        ("http://gpu.internal:80/v1", True),
        ("https://api.example.com/v1", False),
        ("http://8.8.8.8:80", False),
        ("http://user:pw@evil.example:80", False),
        ("http://[fe80::1%25eth0]:80", True),
        ("http://[::ffff", False),
    ],
)
def test_whose_server_it_is(target: str, private: bool) -> None:
    assert is_private(target) is private


def test_other_peoples_servers_need_a_bound_in_tokens_or_money() -> None:
    with pytest.raises(UsageError, match="--budget 3Mtok"):
        must_be_bounded("https://api.example.com", Budget(seconds=900))
    must_be_bounded("https://api.example.com", Budget(tokens=10**6))
    must_be_bounded("http://localhost:80", Budget())
    must_be_bounded("toy:w8s4", Budget())
