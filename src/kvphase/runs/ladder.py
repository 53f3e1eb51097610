"""Climbs the ladder: one rung after the other, each only if the budget holds it.

What depends on the clock (how many contexts fit, how many cold asks) is decided before a rung
begins and written into the run file: a resumed run asks what was decided then.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes import confirm as confirming
from kvphase.probes import flip as flips
from kvphase.probes.confirm import ConfirmDesign, ConfirmPlan
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import NeedlePlan, must_fit, needle, plan_needle
from kvphase.probes.pilot import pilot
from kvphase.runs.estimate import Rate, fits, room, timed
from kvphase.runs.execute import Observer, execute
from kvphase.runs.flips import plan_flip
from kvphase.runs.planning import (
    WHOLE,
    confirm_cost,
    fitted,
    flip_cost,
    least_cost,
    most_records,
    no_room,
    pilot_cost,
    pilot_tries,
    rung_name,
    share_of,
)
from kvphase.runs.settings import FLIP, choose, rungs, with_counts
from kvphase.runs.stages import Result, Skipped, Stage, measured, read_stages
from kvphase.stats.confirmed import Confirmation
from kvphase.tokens import verify
from kvphase.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.runs.budget import Meter
    from kvphase.runs.estimate import Cost
    from kvphase.runs.settings import Settings
    from kvphase.runs.store import Store
    from kvphase.runs.watch import Watcher
    from kvphase.types import About, Flow, Runtime, Template, Vocab

R = TypeVar("R")
UNKNOWN_GAP, SMALL_GAP, LEAST_GAP = 20.0, 8.0, 3.0
"""Percentage points: sought where no gap is known, the least that contents are made for, and the
least whose absence is said to refute anything."""
CONFIRM_SEED, PILOT_SEED = 104_729, 7_919
"""Contents of a confirmation and of a pilot are none of the screen's."""


@dataclass(slots=True)
class Climb:
    """One sitting on the ladder."""

    runtime: Runtime
    store: Store
    vocab: Vocab
    template: Template
    settings: Settings
    meter: Meter
    watcher: Watcher | None = None
    rate: Rate = field(default_factory=lambda: Rate(prefill=1.0, ask=1.0))
    """As timed at the beginning of this sitting."""
    done: dict[str, Stage] = field(default_factory=dict)
    """Stages of this and of earlier sittings by name."""
    results: dict[str, Result] = field(default_factory=dict)
    """What the stages of this sitting found."""

    async def run(self) -> None:
        """Climb as far as the budget goes.

        Raises:
            BudgetSpent: it went out in the middle of a rung.
            RuntimeFault: the model became unusable.
        """
        self.done = {stage.name: stage for stage in read_stages(self.store.manifest)}
        self.meter.check()
        self.store.note(state="asking")
        names = list(map(self._named, self._rungs()))
        self._refuse_what_cannot_be(names)
        if self.watcher is not None:
            self.watcher.times()
        self.rate = await timed(self.runtime, self.vocab, self.meter)
        self.meter.prefill_rate = self.rate.prefill
        skipped: list[Skipped] = []
        start: int | None = None
        confirmed = False
        for place, name in enumerate(names):
            last = place == len(names) - 1
            try:
                if name == FLIP:
                    await self._flip()
                    continue
                plan, verdict, start = await self._needles(int(name), start, last=last)
            except _Skip as skip:
                skipped.append(Skipped(rung_name(name), skip.why))
                self._skips(skipped)
                continue
            if not confirmed and self._wants_confirmation(verdict):
                try:
                    await self._confirm(plan, verdict)
                    confirmed = True
                except _Skip as skip:
                    skipped.append(Skipped(f"confirm-{plan.design.context_tokens}", skip.why))
                    self._skips(skipped)
        self.store.note(skipped=[one.as_json() for one in skipped])

    def _refuse_what_cannot_be(self, names: Sequence[str]) -> None:
        """Bad input is said before anything is asked."""
        about, limits = self.runtime.about, self.runtime.limits
        for name in names:
            if name != FLIP:
                design = choose(self.settings, about, limits, self.template, int(name))
                must_fit(self.vocab, limits, design, self.template)

    def _skips(self, skipped: list[Skipped]) -> None:
        self.store.note(skipped=[one.as_json() for one in skipped])
        if self.watcher is not None:
            self.watcher.skips(skipped[-1])

    def _afford(self, price: Cost, share: float = WHOLE) -> None:
        """Go on only if ``price`` fits into a share of what is left."""
        if not fits(price, self.meter.left(), share):
            raise _Skip(self._no_room(price, share))

    def _no_room(self, price: Cost, share: float = WHOLE) -> Message:
        return no_room(price, self.meter.left(), budget=self.meter.budget, share=share)

    async def _flip(self) -> None:
        try:
            plan = await plan_flip(self.runtime, self.vocab, self.settings.seed)
        except UsageError as error:
            raise _Skip(_why(error)) from error
        if FLIP in self.done:
            plan = plan.named(self.done[FLIP].design["prompts"])
        else:
            price = flip_cost(self.rate, plan.tokens, plan.questions)
            holds = int(min(1.0, room(price, self.meter.left())) * len(plan.prompts))
            if holds < flips.FEWEST:
                fewest = price.times(flips.FEWEST / len(plan.prompts))
                raise _Skip(self._no_room(fewest))
            plan = plan.cut(holds)
        stage = Stage(
            name=FLIP,
            kind="flip",
            questions=plan.questions,
            prefills=plan.questions,
            tokens=None,
            modulus=flips.SHIFTS,
            seed=self.settings.seed,
            design=plan.as_json(),
        )
        await self._ask(stage, flips.flip(plan))

    async def _needles(
        self, context: int, start: int | None, *, last: bool
    ) -> tuple[NeedlePlan, Verdict, int]:
        """One rung of needles: its plan, its verdict, and the records it settled on."""
        about, limits = self.runtime.about, self.runtime.limits
        design = choose(self.settings, about, limits, self.template, context)
        name = f"needle-{design.context_tokens}"
        known = self.done.get(name)
        adapted = False
        if known is not None:
            design, adapted = NeedleDesign(**known.design), known.adapted
        else:
            if adapts(self.settings, about):
                design = await self._piloted(design, start)
                adapted = True
            first = str(design.context_tokens) == self._first_length()
            design = self._fitted(design, first=first, last=last)
        plan = self._plan(design)
        await verify(self.runtime, self.vocab, self.template, plan.prompts())
        stage = Stage(
            name=name,
            kind="needle",
            questions=plan.questions,
            prefills=len(plan.layouts),
            tokens=design.context_tokens,
            modulus=design.modulus,
            seed=plan.seed,
            design=design.as_json(),
            looks=plan.looks,
            balance=asdict(plan.balance),
            adapted=adapted,
        )
        verdict = await self._ask(stage, needle(plan))
        return plan, verdict, design.records

    def _plan(self, design: NeedleDesign) -> NeedlePlan:
        """Positions of a rung; what a pilot or a tight budget made of it may not be balanced."""
        settings = self.settings
        try:
            return plan_needle(
                self.vocab,
                self.runtime.limits,
                design,
                settings.seed,
                self.template,
                early=settings.early,
            )
        except UsageError as error:
            named = settings.context or settings.records or settings.questions or settings.frozen
            if named:
                raise
            raise _Skip(_why(error)) from error

    def _first_length(self) -> str:
        return next(self._named(name) for name in self._rungs() if name != FLIP)

    def _rungs(self) -> list[str]:
        return rungs(self.settings, self.runtime.about, self.runtime.limits)

    def _named(self, rung: str) -> str:
        """A toy's own length by its tokens; any other rung as it is."""
        if rung != "0":
            return rung
        about, limits = self.runtime.about, self.runtime.limits
        return str(choose(self.settings, about, limits, self.template).context_tokens)

    def _fitted(self, design: NeedleDesign, *, first: bool, last: bool) -> NeedleDesign:
        """As many contexts and cold asks as fit; those that the user named stay as they are."""
        if self.settings.frozen or self.settings.questions is not None:
            return design
        made = fitted(
            design,
            self.rate,
            self.meter.left(),
            first=first,
            last=last,
            toy=self.runtime.about.toy,
            cold=self.settings.cold,
        )
        if made is None:
            share = share_of(last=last, toy=self.runtime.about.toy)
            raise _Skip(self._no_room(least_cost(self.rate, design), share))
        return made

    async def _piloted(self, design: NeedleDesign, start: int | None) -> NeedleDesign:
        """The same with the number of records that a pilot settles on."""
        begun = self.done.get(f"pilot-{design.context_tokens}")
        if begun is not None:
            tries = begun.prefills  # a resumed pilot goes on as it was begun
        else:
            tries = pilot_tries(design, self.rate, self.meter.left())
            self._afford(least_cost(self.rate, design) + pilot_cost(self.rate, design, 1))
        limits = self.runtime.limits
        most = most_records(design, self.vocab, limits, self.template)

        def plans(records: int, attempt: int) -> NeedlePlan:
            one = replace(design, records=records, contexts=1, cold=0, repeats=0, alone=0)
            seed = self.settings.seed + PILOT_SEED * (attempt + 1)
            return plan_needle(self.vocab, limits, one, seed, self.template, balanced=False)

        stage = Stage(
            name=f"pilot-{design.context_tokens}",
            kind="pilot",
            questions=tries * design.modulus,
            prefills=tries,
            tokens=design.context_tokens,
            modulus=design.modulus,
            seed=self.settings.seed,
            design=design.as_json(),
        )
        flow = pilot(plans, start or design.records, design.modulus, most, design.modulus, tries)
        records = await self._ask(stage, flow)
        piloted = replace(design, records=records)
        return with_counts(piloted, self.settings, self.runtime.about)

    def _wants_confirmation(self, verdict: Verdict) -> bool:
        """After a finding of the needles or of the flip; or because the user says so."""
        wish = self.settings.confirm
        if wish != "auto":
            return wish == "always"
        flip = self.done.get(FLIP)
        flipped = None if flip is None else measured(flip, self.store).verdict
        return verdict.period is not None or (flipped is not None and _significant(flipped))

    async def _confirm(self, plan: NeedlePlan, verdict: Verdict) -> None:
        """Shift whole contexts of this rung's kind."""
        design = plan.design
        if design.kind != "insequence":
            raise _Skip(message("run.confirm-insequence"))
        name = f"confirm-{design.context_tokens}"
        known = self.done.get(name)
        if known is not None:
            wanted = ConfirmDesign(
                **{k: known.design[k] for k in ("period", "contents", "questions", "expected_pp")}
            )
        else:
            wanted = self._confirm_design(plan, verdict)
        made = self._confirm_plan(plan, wanted)
        await verify(self.runtime, self.vocab, self.template, made.prompts())
        stage = Stage(
            name=name,
            kind="confirm",
            questions=made.questions,
            prefills=wanted.prefills,
            tokens=made.base.design.context_tokens,
            modulus=wanted.period,
            seed=made.base.seed,
            design={**wanted.as_json(), "base": made.base.design.as_json()},
        )
        await self._ask(stage, confirming.confirm(made))

    def _confirm_design(self, plan: NeedlePlan, verdict: Verdict) -> ConfirmDesign:
        """Contents enough for the gap found, or as many as the budget holds."""
        design = plan.design
        period = verdict.period or self._flip_period() or 4
        questions = min(confirming.QUESTIONS, design.asked)
        sought, expected = _gaps(verdict)
        contents = confirming.contents_for(period, questions, verdict.mean, sought)
        while contents >= confirming.FEWEST:
            wanted = ConfirmDesign(period, contents, questions, expected)
            price = confirm_cost(self.rate, design, wanted)
            if fits(price, self.meter.left(), 0.9):
                return wanted
            contents -= 1
        raise _Skip(self._no_room(price, 0.9))

    def _flip_period(self) -> int | None:
        """The period that the flip found, whatever it follows."""
        flip = self.done.get(FLIP)
        if flip is None:
            return None
        return flips.measured(self.store.answers(stage=FLIP), flip.seed).period

    def _confirm_plan(self, plan: NeedlePlan, wanted: ConfirmDesign) -> ConfirmPlan:
        design, limits = plan.design, self.runtime.limits
        room = limits.context_tokens - 1 - confirming.extra_tokens(wanted.period)
        base = replace(
            design,
            contexts=wanted.contents,
            context_tokens=min(design.context_tokens, room),
            repeats=0,
            cold=0,
            alone=0,
        )
        seed = plan.seed + CONFIRM_SEED
        try:
            contents = plan_needle(self.vocab, limits, base, seed, self.template, balanced=False)
            return ConfirmPlan(contents, wanted)
        except UsageError as error:
            raise _Skip(_why(error)) from error

    async def _ask(self, stage: Stage, flow: Flow[R]) -> R:
        """Run a stage to its end, or go on with it."""
        if stage.name not in self.done:
            self._keep(stage)
        begun = self.done[stage.name]
        observe: Observer | None = None
        if self.watcher is not None:
            self.watcher.begins(begun)
            observe = self.watcher.answered
        found = await execute(flow, self.runtime, self.store, self.meter, observe, stage=stage.name)
        self._keep(replace(begun, state="done"))
        self.store.note(traffic=self.runtime.traffic)
        result = Result(
            self.done[stage.name],
            found if isinstance(found, Verdict) else None,
            found if isinstance(found, Confirmation) else None,
            self.store.totals(stage.name),
        )
        self.results[stage.name] = result
        if self.watcher is not None:
            self.watcher.ends(result)
        return found

    def _keep(self, stage: Stage) -> None:
        self.done[stage.name] = stage
        self.store.note(stages=[asdict(one) for one in self.done.values()])


class _Skip(Exception):
    """A rung that is left out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _why(error: UsageError) -> str:
    text: Any = error.args[0]
    return str(text) if not isinstance(text, str) else text


def _gaps(verdict: Verdict) -> tuple[float, float | None]:
    """The gap to be ready for, and the one whose absence would refute the finding.

    The screen's gap is an estimate: half way to its lower bound is what the contents are made for,
    and only where even the lower bound would have shown is nothing found a refutation.
    """
    gap, interval = verdict.gap.crossfit_pp, verdict.gap.ci95
    if verdict.period is None or gap is None or interval is None:
        return UNKNOWN_GAP, None
    low = max(interval[0], LEAST_GAP)
    return max((max(gap, low) + low) / 2, SMALL_GAP), round(low, 2)


def _significant(verdict: Verdict) -> bool:
    return verdict.p_value is not None and verdict.p_value <= verdict.alpha


def adapts(settings: Settings, about: About) -> bool:
    """Whether a pilot chooses the number of records."""
    fixed = settings.records is not None or bool(settings.frozen)
    return settings.adapt and settings.design == "insequence" and not fixed and not about.toy
