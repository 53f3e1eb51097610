"""Finds the one-token words of a tokenizer from which exact prompts can be composed.

A prompt is filler, records and more filler:

    and so it went cat: Alice; on as before dog: Bob; then they all cat:
    |filler------| |record---| |filler----| |record-| |filler-----| |question

Every piece must be one token there, next to any neighbour it can get. A (separator, terminator)
pair is drafted first: which words are one token around it. The draft is then proved: fillers at
the start of a text, after a record, before every key, and from each phrase's end to the start of
every other. What fails is dropped while enough remains.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.errors import UsageError
from kvphase.tokens.seams import Seam, Tokenize, closed, first_merge, holding
from kvphase.tokens.words import WordLists
from kvphase.types import Vocab, Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST_KEYS = 32
LEAST_VALUES = 16
LEAST_PHRASES = 1
SAMPLES = 8
"""Records tried to learn a pair's two ids: common words, so that most are one token each."""
SAMPLE_STARTS = 16
"""Fillers tried at the start of a text before all of them are."""
SAMPLE_NEIGHBOURS = 6
"""Fillers tried before each key before all of them are."""
SHARED = 0.05
"""A filler that fails before more than this share of the keys is itself at fault, not the keys."""
STRANGER = " \uf8ff\uf8ff"
"""A word that no tokenizer has: whatever single token it becomes stands for "unknown"."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """One-token words around one pair, each next to its usual neighbours only."""

    record: tuple[Word, Word, Word, Word]
    """A record all of whose seams hold."""
    keys: tuple[Word, ...]
    values: tuple[Word, ...]
    phrases: tuple[tuple[Word, ...], ...]
    lost: int
    """Words that are unusable because of this pair, not in themselves."""
    joins: bool
    """The tokenizer was seen to join words across a space."""

    @property
    def size(self) -> int:
        return len(self.keys) + len(self.values) + sum(map(len, self.phrases))

    @property
    def enough(self) -> bool:
        return (
            len(self.keys) >= LEAST_KEYS
            and len(self.values) >= LEAST_VALUES
            and len(self.phrases) >= LEAST_PHRASES
        )

    def without(self, words: Iterable[Word]) -> _Draft:
        """The same without some keys or fillers; a phrase goes as a whole."""
        bad = set(words)
        return replace(
            self,
            keys=tuple(word for word in self.keys if word not in bad),
            phrases=tuple(phrase for phrase in self.phrases if bad.isdisjoint(phrase)),
        )


async def survey(tokenize: Tokenize, words: WordLists | None = None) -> Vocab:
    """The words of one tokenizer that stay one token each wherever a prompt can put them.

    Args:
        tokenize: Ids of each text, without BOS, special tokens not parsed.
        words: Candidates; the lists that come with kvphase if not given.

    Raises:
        UsageError: the tokenizer merges across every usable seam (the pieces are named), or has
            too few of the words as single tokens (the numbers are given).
    """
    words = words or WordLists.load()
    drafts: list[_Draft] = []
    seams: list[Seam] = []
    for pair in words.pairs:
        draft = await _draft(tokenize, words, pair)
        if draft is None:
            seams += filter(None, [await _blame(tokenize, words, pair)])
            continue
        drafts.append(draft)
        if not draft.lost:
            proved = await _prove(tokenize, draft)
            if proved.enough:
                return _vocab(proved)
    for draft in sorted(drafts, key=lambda draft: -draft.size):
        proved = await _prove(tokenize, draft)
        if proved.enough:
            return _vocab(proved)
    raise _unusable(drafts, seams)


async def _draft(tokenize: Tokenize, words: WordLists, pair: tuple[str, str]) -> _Draft | None:
    """Words that are one token around ``pair``; None if the pair never stands as two tokens."""
    record = await _sample(tokenize, words, pair)
    if record is None:
        return None
    key, separator, value, terminator = (word.text for word in record)
    end = separator + value + terminator
    texts = {
        "key": [text + end for text in (*words.keys, STRANGER)],
        "value": [key + separator + text + terminator for text in words.values],
        "phrase": ["".join(phrase) + key + end for phrase in words.phrases],
    }
    ids = await closed(
        tokenize, [*texts["key"], *texts["value"], *texts["phrase"]], key + end, record[3].id
    )
    keys, rest = ids[: len(texts["key"])], ids[len(texts["key"]) :]
    values, phrases = rest[: len(words.values)], rest[len(words.values) :]
    return _collect(words, record, keys, values, phrases)


async def _sample(
    tokenize: Tokenize, words: WordLists, pair: tuple[str, str]
) -> tuple[Word, Word, Word, Word] | None:
    """A record of four tokens around ``pair``, confirmed by a second one with other words."""
    texts = [
        (key, pair[0], value, pair[1])
        for key, value in zip(words.keys[:SAMPLES], words.values[:SAMPLES], strict=False)
    ]
    ids = await tokenize(["".join(text) * 3 for text in texts])
    records = [
        (text, line[-4:])
        for text, line in zip(texts, ids, strict=True)
        if line[-4:] == line[-8:-4] and len(set(line[-4:])) == 4
    ]
    votes = Counter((line[1], line[3]) for _, line in records)
    for text, line in records:
        key, separator, value, terminator = map(Word, line, text)
        record = key, separator, value, terminator
        if votes[line[1], line[3]] > 1 and await _stands(tokenize, record):
            return record
    return None


async def _stands(tokenize: Tokenize, record: Sequence[Word]) -> bool:
    """Whether each id spells its own text: four tokens may also be cut at other places."""
    texts = [word.text for word in (record[3], *record)]
    ids = await tokenize(["".join(texts[: end + 1]) for end in range(1, len(texts))])
    return [line[-1] for line in ids] == [word.id for word in record]


def _collect(
    words: WordLists,
    record: tuple[Word, Word, Word, Word],
    keys: Sequence[Sequence[int]],
    values: Sequence[Sequence[int]],
    phrases: Sequence[Sequence[int]],
) -> _Draft:
    """Pick out what came as one token between its neighbours."""
    key, separator, value, terminator = (word.id for word in record)
    after, before = [separator, value, terminator], [key, separator]
    lost = sum(list(ids[-3:]) != after for ids in keys)
    lost += sum(list(ids[:2]) != before for ids in values)
    lost += sum(list(ids[-4:]) != [key, *after] for ids in phrases)

    found_keys = [
        Word(ids[0], text)
        for text, ids in zip((*words.keys, STRANGER), keys, strict=True)
        if len(ids) == 4 and list(ids[1:]) == after
    ]
    found_values = [
        Word(ids[2], text)
        for text, ids in zip(words.values, values, strict=True)
        if len(ids) == 4 and list(ids[:2]) == before
    ]
    found_phrases = [
        tuple(map(Word, ids, phrase))
        for phrase, ids in zip(words.phrases, phrases, strict=True)
        if len(ids) == len(phrase) + 4 and list(ids[-4:]) == [key, *after]
    ]
    single = _unambiguous([*record[1::2], *found_keys, *found_values, *sum(found_phrases, ())])
    return _Draft(
        record=record,
        keys=tuple(word for word in found_keys if word in single and word.text != STRANGER),
        values=tuple(word for word in found_values if word in single),
        phrases=tuple(phrase for phrase in found_phrases if single.issuperset(phrase)),
        lost=lost,
        joins=any(
            0 < len(ids) < len(phrase) + 4
            for phrase, ids in zip(words.phrases, phrases, strict=True)
        ),
    )


def _unambiguous(words: Iterable[Word]) -> set[Word]:
    """Words whose id stands for no other text and whose text has no other id."""
    distinct = set(words)
    ids = Counter(word.id for word in distinct)
    texts = Counter(word.text for word in distinct)
    return {word for word in distinct if ids[word.id] == 1 and texts[word.text] == 1}


async def _prove(tokenize: Tokenize, draft: _Draft) -> _Draft:
    """Drop whatever fails at the seams between fillers, records and the start of a text."""
    if not draft.enough:
        return draft
    draft = draft.without(await _bad_starts(tokenize, draft))
    fillers = _fillers(draft)
    after_record = await holding(
        tokenize, [(*draft.record, filler) for filler in fillers], draft.record
    )
    draft = draft.without(f for f, holds in zip(fillers, after_record, strict=True) if not holds)
    draft = draft.without(await _bad_before_keys(tokenize, draft))
    return await _drop_bad_turns(tokenize, draft)


async def _bad_starts(tokenize: Tokenize, draft: _Draft) -> list[Word]:
    """Fillers that are not their own token at the start of a text.

    What happens there is the same for all words (a space is put before the text, or not), so all
    are tried only if a sample fails.
    """
    fillers = _fillers(draft)
    if not await _failing_starts(tokenize, fillers[:SAMPLE_STARTS], draft.record[0]):
        return []
    return await _failing_starts(tokenize, fillers, draft.record[0])


async def _failing_starts(
    tokenize: Tokenize, fillers: Sequence[Word], follower: Word
) -> list[Word]:
    """Those of ``fillers`` that fail both with and without the first space.

    Tokenizers that put a space before every text need the text without its first one.
    """
    texts = [filler.text + follower.text for filler in fillers]
    spaced = await tokenize(texts)
    expected = [[filler.id, follower.id] for filler in fillers]
    if spaced == expected:
        return []
    bare = await tokenize([text.removeprefix(" ") for text in texts])
    return [
        filler
        for filler, ids, *forms in zip(fillers, expected, spaced, bare, strict=True)
        if ids not in forms
    ]


async def _bad_before_keys(tokenize: Tokenize, draft: _Draft) -> set[Word]:
    """Words to drop so that every filler left can stand before every key left.

    A tokenizer that cuts at spaces holds everywhere. One that joins words shows it among the
    phrases or in a sample where each key meets several fillers; then every pair is tried.
    """
    fillers, keys = _fillers(draft), draft.keys
    sample = [
        (fillers[(SAMPLE_NEIGHBOURS * i + j) % len(fillers)], key)
        for i, key in enumerate(keys)
        for j in range(min(SAMPLE_NEIGHBOURS, len(fillers)))
    ]
    if not draft.joins and all(await holding(tokenize, sample, draft.record)):
        return set()
    pairs = [(filler, key) for filler in fillers for key in keys]
    holds = await holding(tokenize, pairs, draft.record)
    failed = [pair for pair, good in zip(pairs, holds, strict=True) if not good]
    often = Counter(filler for filler, _ in failed)
    worst = {word for word, times in often.items() if times > SHARED * len(keys)}
    return worst | {key for filler, key in failed if filler not in worst}


async def _drop_bad_turns(tokenize: Tokenize, draft: _Draft) -> _Draft:
    """Drop phrases, the worst first, until each can follow each, itself included."""
    phrases = list(draft.phrases)
    turns = [(a, b) for a in phrases for b in phrases]
    holds = await holding(tokenize, [(a[-1], b[0]) for a, b in turns], draft.record)
    failed = [turn for turn, good in zip(turns, holds, strict=True) if not good]
    while failed:
        worst = Counter(phrase for turn in failed for phrase in turn).most_common(1)[0][0]
        phrases.remove(worst)
        failed = [turn for turn in failed if worst not in turn]
    return replace(draft, phrases=tuple(phrases))


def _fillers(draft: _Draft) -> list[Word]:
    """The distinct filler words, in the order in which they come up."""
    return list(dict.fromkeys(word for phrase in draft.phrases for word in phrase))


async def _blame(tokenize: Tokenize, words: WordLists, pair: tuple[str, str]) -> Seam | None:
    """The seam of the first record that does not hold around ``pair``, if it is a seam."""
    key, value = words.keys[0], words.values[0]
    return await first_merge(tokenize, [key, pair[0], value, pair[1], key])


def _unusable(drafts: Sequence[_Draft], seams: Sequence[Seam]) -> UsageError:
    """Say why no pair works: the seam of the preferred one, or the best counts reached."""
    if seams and not any(draft.enough for draft in drafts):
        return UsageError(
            f"this tokenizer merges across every seam that a record needs: {seams[0]} do not "
            "stay separate tokens, so no fact's position can be told to the token"
        )
    best = max(drafts, key=lambda draft: draft.size, default=None)
    keys, values, phrases = (
        (len(best.keys), len(best.values), len(best.phrases)) if best else (0, 0, 0)
    )
    return UsageError(
        f"this tokenizer has too few of our words as single tokens: {keys} keys (at least "
        f"{LEAST_KEYS} are needed), {values} values (at least {LEAST_VALUES}), "
        f"{phrases} filler phrases (at least {LEAST_PHRASES})"
    )


def _vocab(draft: _Draft) -> Vocab:
    _, separator, _, terminator = draft.record
    ids = [
        [word.id for word in draft.keys],
        [word.id for word in draft.values],
        [[word.id for word in phrase] for phrase in draft.phrases],
        [separator.id, terminator.id],
    ]
    return Vocab(
        keys=draft.keys,
        values=draft.values,
        phrases=draft.phrases,
        separator=separator,
        terminator=terminator,
        digest=hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16],
    )
