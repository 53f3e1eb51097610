"""Prompts as the text they spell, and the proof that a model's side reads them token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.errors import RuntimeFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Runtime, Template, Vocab


def spell(vocab: Vocab, ids: Sequence[int]) -> str:
    """The text of ids that were composed from ``vocab``.

    Raises:
        ValueError: an id is not one of the vocabulary's.
    """
    return "".join(_pieces(_texts(vocab), ids))


async def verify(
    runtime: Runtime, vocab: Vocab, template: Template, prompts: Sequence[Sequence[int]]
) -> None:
    """Prove that the runtime's tokenizer reads each prompt's text as exactly the prompt's ids.

    Special tokens are parsed only where the template brings them; BOS must stand at the start,
    once. A text that starts with a word may be spelled without its first space, since some
    tokenizers put one there themselves.

    Args:
        runtime: Whose tokenizer counts.
        vocab: What the prompts were composed from.
        template: The chat template around them.
        prompts: Whole prompts as ids: BOS, template head, words, template tail.

    Raises:
        RuntimeFault: a prompt differs; the first seam that does is named.
    """
    texts = _texts(vocab)
    distinct = list(dict.fromkeys(map(tuple, prompts)))
    pieces = [_parts(texts, template, _without_bos(runtime, ids)) for ids in distinct]
    expected = [list(_without_bos(runtime, ids)) for ids in distinct]
    special = bool(template.head or template.tail)
    got = await runtime.tokenize(["".join(line) for line in pieces], special=special)
    odd = [i for i, ids in enumerate(got) if ids != expected[i]]
    if not odd:
        return
    first = 1 if template.head_text else 0
    bare = [_bare(pieces[i], first) for i in odd]
    got = await runtime.tokenize(["".join(line) for line in bare], special=special)
    for i, line, ids in zip(odd, bare, got, strict=True):
        if ids != expected[i]:
            raise await _fault(runtime, template, pieces[i], line, expected[i])


def _texts(vocab: Vocab) -> dict[int, str]:
    words = [*vocab.keys, *vocab.values, vocab.separator, vocab.terminator]
    words += [word for phrase in vocab.phrases for word in phrase]
    return {word.id: word.text for word in words}


def _pieces(texts: dict[int, str], ids: Sequence[int]) -> list[str]:
    unknown = next((token for token in ids if token not in texts), None)
    if unknown is not None:
        raise ValueError(f"token {unknown} is not one of the vocabulary's")
    return [texts[token] for token in ids]


def _without_bos(runtime: Runtime, ids: Sequence[int]) -> Sequence[int]:
    """The rest of a prompt behind BOS, which must be there exactly once."""
    bos = runtime.limits.bos
    size = len(bos)
    if tuple(ids[:size]) != bos:
        raise RuntimeFault("a prompt does not start with the model's BOS token")
    if bos and tuple(ids[size : 2 * size]) == bos:
        raise RuntimeFault("a prompt starts with BOS twice, which would move every position")
    return ids[size:]


def _parts(texts: dict[int, str], template: Template, ids: Sequence[int]) -> list[str]:
    """The texts of the template's head, of each word, and of the template's tail."""
    head, tail = len(template.head), len(template.tail)
    end = len(ids) - tail
    if tuple(ids[:head]) != template.head or tuple(ids[end:]) != template.tail:
        raise RuntimeFault("a prompt does not stand inside the chat template it was composed for")
    words = _pieces(texts, ids[head:end])
    return [text for text in (template.head_text, *words, template.tail_text) if text]


def _bare(pieces: Sequence[str], first: int) -> list[str]:
    """The same with the word at ``first`` spelled without its space."""
    return [piece.removeprefix(" ") if i == first else piece for i, piece in enumerate(pieces)]


async def _fault(
    runtime: Runtime,
    template: Template,
    spelled: Sequence[str],
    bare: Sequence[str],
    expected: Sequence[int],
) -> RuntimeFault:
    """Find the piece whose arrival changes the tokens before it, in the better of two spellings."""
    sizes = [1] * len(spelled)
    if template.head_text:
        sizes[0] = len(template.head)
    if template.tail_text:
        sizes[-1] = len(template.tail)
    place = max(
        [await _broken(runtime, template, line, sizes, expected) for line in (spelled, bare)]
    )
    left = repr(spelled[place - 1]) if place else "the start of the text"
    return RuntimeFault(
        f"the server's tokenizer does not keep {left} and {spelled[place]!r} apart as composed "
        f"(piece {place + 1} of {len(spelled)}), so positions cannot be told to the token"
    )


async def _broken(
    runtime: Runtime,
    template: Template,
    line: Sequence[str],
    sizes: Sequence[int],
    expected: Sequence[int],
) -> int:
    """Index of the first piece with which the text stops giving the expected ids, by halving."""
    special = bool(template.head or template.tail)
    good, bad = 0, len(line)  # pieces known to be read as composed, pieces known not to be
    while bad - good > 1:
        middle = (good + bad) // 2
        ids = (await runtime.tokenize(["".join(line[:middle])], special=special))[0]
        if ids == list(expected[: sum(sizes[:middle])]):
            good = middle
        else:
            bad = middle
    return bad - 1
