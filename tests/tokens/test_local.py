"""Local tokenizers: files, folders, vocabularies of a GGUF, the packaged DeepSeek tokenizer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from kvphase.errors import RuntimeFault, UsageError
from kvphase.tokens import FileTokenizer, survey
from kvphase.tokens.local import LocalTokenizer, from_metadata, load
from kvphase.tokens.local.chat import JinjaChat
from kvphase.tokens.local.gguf import read_metadata
from tokens import ggufs

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.types import Vocab

TEMPLATE = """
{%- if tools %}{{ tools | tojson }}
{% endif %}
{%- for message in messages -%}
    {%- if loop.index > 5 %}{% break %}{% endif -%}
    <{{ message.role }}>{{ message.content }}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% if not enable_thinking %}</think>{% endif %}{% endif %}
"""
MESSAGES = [{"role": "user", "content": "where is the cat?"}]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def ids(tokenizer: LocalTokenizer, text: str, *, special: bool = False) -> list[int]:
    return asyncio.run(tokenizer.tokenize([text], special=special))[0]


@pytest.fixture(scope="module")
def vocabulary() -> tuple[list[str], list[str]]:
    return ggufs.byte_level()


@pytest.fixture
def saved(folder: Path, tmp_path: Path) -> Path:
    """A folder as transformers saves it, the template in a file of its own."""
    fast: Any = PreTrainedTokenizerFast
    made = fast(tokenizer_file=str(folder / "spaces.json"), **SPECIAL)
    made.chat_template = "{{ bos_token }}" + TEMPLATE
    made.save_pretrained(tmp_path)
    return tmp_path


def test_folder_is_read_as_transformers_reads_it(saved: Path) -> None:
    theirs: Any = PreTrainedTokenizerFast.from_pretrained(str(saved))
    ours = load(saved)
    assert ours.bos == (1,)
    assert ours.bos_text == "<s>"
    for thinking in (False, True):
        for tools in (None, [{"name": "é", "n": 1}]):
            text = theirs.apply_chat_template(
                MESSAGES,
                tools=tools,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=thinking,
            )
            body = {
                "messages": MESSAGES,
                "tools": tools,
                "chat_template_kwargs": {"enable_thinking": thinking},
            }
            assert "<s>" + ours.render(body) == text
    assert ours.render({"messages": MESSAGES}).endswith("<assistant></think>")


def test_template_is_split_at_the_users_text(saved: Path) -> None:
    ours = load(saved)
    template = asyncio.run(ours.template())
    assert (template.head_text, template.tail_text) == ("<user>", "\n<assistant></think>")
    assert list(template.head) == ids(ours, "<user>", special=True)
    assert len(template.digest) == 16


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('no ' + messages[0].role) }}", "no user"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses"),
        ("{% for n in range(9999999) %}{% endfor %}", "refuses"),
        ("{% if %}", "refuses"),
    ],
)
def test_template_that_fails_or_reaches_out_is_refused(source: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        JinjaChat(source, {}).render({"messages": MESSAGES})


def test_template_that_changes_the_text_is_refused(folder: Path) -> None:
    chat = JinjaChat("{{ messages[0].content | upper }}", {})
    tokenizer = LocalTokenizer(FileTokenizer(folder / "bytes.json"), "test", chat=chat)
    with pytest.raises(UsageError, match="does not keep the user's text"):
        asyncio.run(tokenizer.template())


def test_no_template_is_said(folder: Path) -> None:
    tokenizer = load(folder / "bytes.json")
    assert not tokenizer.has_template
    with pytest.raises(UsageError, match="no chat template"):
        asyncio.run(tokenizer.template())


_SURVEYED: dict[str, Vocab] = {}


def surveyed(tokenizer: LocalTokenizer, name: str) -> Vocab:
    """Its words, found once for all examples."""
    if name not in _SURVEYED:
        _SURVEYED[name] = asyncio.run(survey(tokenizer.tokenize))
    return _SURVEYED[name]


@pytest.mark.parametrize("name", ["bytes", "spaces"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_text_of_is_read_as_the_very_ids(folder: Path, name: str, data: st.DataObject) -> None:
    tokenizer = load(folder / f"{name}.json")
    vocab = surveyed(tokenizer, name)
    phrase = data.draw(st.sampled_from(vocab.phrases))
    records = data.draw(
        st.lists(st.tuples(st.sampled_from(vocab.keys), st.sampled_from(vocab.values)), max_size=5)
    )
    composed = [word.id for word in phrase]
    for key, value in records:
        composed += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    text = asyncio.run(tokenizer.text_of(composed))
    assert ids(tokenizer, text, special=True) == composed


def test_ids_that_no_text_is_read_as_are_refused(folder: Path) -> None:
    tokenizer = load(folder / "bytes.json")
    (whole,) = ids(tokenizer, " cat")
    letters = [FileTokenizer(folder / "bytes.json").id_of(letter) for letter in "cat"]
    with pytest.raises(RuntimeFault, match=r"from token 1 on \('ca"):
        asyncio.run(tokenizer.text_of([*letters, whole]))


def test_gguf_says_what_was_written(tmp_path: Path) -> None:
    entries = {"a.text": "é", "a.flag": True, "a.n": 7, "a.list": [1, -2], "a.words": ["x", "y z"]}
    assert read_metadata(ggufs.write(tmp_path / "a.gguf", entries)) == entries


@given(place=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 400))
@settings(max_examples=300, deadline=None)
def test_damaged_gguf_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.gguf"
    entries = {"a.text": "text", "a.list": [1, 2, 3], "a.words": ["x", "y"], "a.n": 7}
    data = bytearray(ggufs.write(path, entries).read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data[: len(data) - cut] if cut < len(data) else b"")
    with contextlib.suppress(UsageError):
        assert isinstance(read_metadata(path), dict)


def test_vocabulary_of_a_gguf(tmp_path: Path, vocabulary: tuple[list[str], list[str]]) -> None:
    entries = ggufs.metadata("llama-bpe", *vocabulary)
    entries["tokenizer.chat_template"] = "{{ bos_token }}" + TEMPLATE
    tokenizer = load(ggufs.write(tmp_path / "a.gguf", entries))
    assert tokenizer.bos == (0,)
    assert tokenizer.render({"messages": MESSAGES}).startswith("<user>where")
    assert ids(tokenizer, "<s>", special=True) == [0]
    assert 0 not in ids(tokenizer, "<s>")
    assert from_metadata(entries | {"tokenizer.ggml.add_bos_token": False}).bos == ()
    assert from_metadata(entries | {"tokenizer.ggml.pre": "qwen2"}).bos == ()


def test_cuts_follow_the_name(vocabulary: tuple[list[str], list[str]]) -> None:
    pieces = {
        pre: [tokenizer.spell([token]) for token in ids(tokenizer, "12345")]
        for pre in ("llama-bpe", "qwen2", "deepseek-v3")
        for tokenizer in [from_metadata(ggufs.metadata(pre, *vocabulary))]
    }
    assert pieces["qwen2"] == list("12345")
    assert {"".join(found) for found in pieces.values()} == {"12345"}
    assert max(map(len, pieces["llama-bpe"])) <= 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.pre": "default"}, "'default'.*not known"),
        ({"tokenizer.ggml.pre": "next-year"}, "'next-year'.*not known"),
        ({"tokenizer.ggml.model": "t5"}, "'t5' are not understood"),
        ({"tokenizer.ggml.tokens": None}, "no vocabulary is given"),
        ({"tokenizer.ggml.merges": ["a"]}, "damaged"),
        ({"tokenizer.ggml.merges": ["qqqq zzzz"]}, "damaged"),
        ({"tokenizer.ggml.model": "llama"}, "damaged"),
    ],
)
def test_what_is_not_known_is_refused(
    vocabulary: tuple[list[str], list[str]], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        from_metadata(ggufs.metadata("qwen2", *vocabulary) | change)


def piece_vocabulary() -> dict[str, Any]:
    """SentencePiece's kind: every letter, bytes, and a few words with scores."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(tokens)
    words = ["\u2581", *"acht", "at", "\u2581c", "cat", "\u2581cat", "\u2581the", "th", "the", "e"]
    tokens += words
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds + [1] * len(words),
        "tokenizer.ggml.scores": scores + [-float(len(words) - n) for n in range(len(words))],
        "tokenizer.ggml.bos_token_id": 1,
    }


def test_sentence_piece_vocabulary() -> None:
    tokenizer = from_metadata(piece_vocabulary())
    assert tokenizer.bos == (1,)
    read = ids(tokenizer, "the cat\n")
    assert [tokenizer.spell([token]) for token in read] == [" the", " cat", "\n"]
    assert asyncio.run(tokenizer.text_of(read)) == "the cat\n"
    bare = from_metadata(piece_vocabulary() | {"tokenizer.ggml.add_space_prefix": False})
    assert asyncio.run(bare.text_of(read)) == " the cat\n"
    for field, name in (("general.name", "Phi-3 mini"), ("general.architecture", "phi3")):
        with pytest.raises(UsageError, match="swallow white space"):
            from_metadata(piece_vocabulary() | {field: name})


@pytest.mark.parametrize("text", ['{"chat_template": 1', "[]", "\xff"])
def test_bad_settings_are_named(folder: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "bytes.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"tokenizer_config\.json beside"):
        load(tmp_path)


def test_template_among_several_is_the_default_one(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "bytes.json").read_bytes())
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]
    config = {"chat_template": named, "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load(tmp_path).render({"messages": MESSAGES}) == "yes"


@pytest.mark.parametrize("where", ["none.gguf", "none.json", "nowhere"])
def test_missing_file(tmp_path: Path, where: str) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load(tmp_path / where)
