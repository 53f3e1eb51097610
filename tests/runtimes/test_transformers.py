"""Models saved by transformers, as a runtime: tiny ones with random weights, made on the spot."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from typer.testing import CliRunner

from kvphase.cli import app
from kvphase.errors import RuntimeFault, UsageError
from kvphase.lab.data import load_vocabulary
from kvphase.runtimes import detect, transformers_model
from kvphase.runtimes.transformers import TransformersRuntime, open_folder
from kvphase.tokens import survey
from kvphase.types import Arm, Ask, Reply, Runtime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

transformers = pytest.importorskip("transformers")

KINDS = ("compressed_sparse_attention", "heavily_compressed_attention")
CHAT = (
    "{{ bos_token }}<user>{{ messages[0]['content'] }}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}"
)
MARKS = ["<unk>", "<user>", "<assistant>", "<think>"]
WORDS = load_vocabulary()
SPELLED = [*WORDS.tokens, *MARKS]


def words(*, bos: bool) -> Any:  # noqa: ANN401 - transformers gives no types
    """The toys' words, one token each; four marks for a chat template behind them."""
    longest = sorted(WORDS.tokens, key=len, reverse=True)
    made = Tokenizer(models.WordLevel({text: i for i, text in enumerate(SPELLED)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(longest)), "isolated")
    made.decoder = decoders.Fuse()
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", WORDS.bos)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=SPELLED[WORDS.bos],
        unk_token=MARKS[0],
        additional_special_tokens=MARKS[1:],
        chat_template=CHAT,
    )


def deepseek() -> Any:  # noqa: ANN401
    """A layer of each kind, so that both kinds of compressed cache are copied and gone on from."""
    return transformers.DeepseekV4ForCausalLM(
        transformers.DeepseekV4Config(
            vocab_size=len(SPELLED),
            hidden_size=32,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            head_dim=16,
            partial_rotary_factor=0.25,
            q_lora_rank=16,
            n_routed_experts=1,
            n_shared_experts=1,
            num_experts_per_tok=1,
            hc_mult=1,
            hc_sinkhorn_iters=1,
            layer_types=list(KINDS),
            mlp_layer_types=["moe", "moe"],
            compress_rates=dict(zip(KINDS, (4, 16), strict=True)),
            sliding_window=16,
            o_groups=1,
            o_lora_rank=32,
            index_n_heads=1,
            index_head_dim=8,
            index_topk=256,
            num_nextn_predict_layers=0,
            max_position_embeddings=1024,
            attn_implementation="eager",
        )
    )


def llama() -> Any:  # noqa: ANN401
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(SPELLED),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=None,
        )
    )


MAKE: dict[str, Callable[[], Any]] = {"deepseek": deepseek, "llama": llama}


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for each kind of model."""
    root = tmp_path_factory.mktemp("saved")
    for name, make in MAKE.items():
        torch.manual_seed(0)
        model = make()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        model.save_pretrained(root / name)
        words(bos=name == "llama").save_pretrained(root / name)
    return root


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Matrices as small as these are slower shared out, above all beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("something tried to reach the network")

    monkeypatch.setattr(socket.socket, "connect", refused)


def asked(folder: Path, use: Callable[[TransformersRuntime], Awaitable[Any]]) -> Any:  # noqa: ANN401
    async def session() -> Any:  # noqa: ANN401
        async with open_folder(str(folder)) as runtime:
            return await use(runtime)

    return asyncio.run(session())


def ids(n: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(3, len(WORDS.tokens), size=n).tolist())


def ask(prefix: tuple[int, ...], suffix: tuple[int, ...], **changes: Any) -> Ask:  # noqa: ANN401
    made = Ask(
        id="a",
        prefix=prefix,
        suffix=suffix,
        target=1,
        expected=" Alice",
        candidates=(" Alice", " Bob"),
        arm=Arm.SCREEN,
        item=0,
        block=0,
        context=0,
        pad=0,
    )
    return replace(made, **changes)


@pytest.mark.parametrize("kind", list(MAKE))
def test_a_copied_cache_answers_as_the_whole_prompt_does(saved: Path, kind: str) -> None:
    """At every residue of prefix and question, against a forward of our own without any cache."""
    model = transformers.AutoModelForCausalLM.from_pretrained(saved / kind).eval()

    async def use(runtime: TransformersRuntime) -> None:
        assert "prefix cache" not in runtime.about.extra
        for length in (1, 37, 98, 99):
            for size in (1, 2, 7, 18):
                prompt = ids(length + size, length)
                one = ask(prompt[:length], prompt[length:], generate=2)
                reply = await runtime.complete(one)
                cold = await runtime.complete(replace(one, arm=Arm.COLD))
                with torch.no_grad():
                    whole = model(torch.tensor([prompt]), use_cache=False).logits[0, -1]
                    first = int(whole.argmax())
                    longer = torch.tensor([[*prompt, first]])
                    second = int(model(longer, use_cache=False).logits[0, -1].argmax())
                scores = whole.log_softmax(0)
                assert reply.text == cold.text == SPELLED[first] + SPELLED[second]
                for got in (reply, cold):
                    (alice, bob) = (WORDS.tokens.index(name) for name in (" Alice", " Bob"))
                    assert got.logprob == pytest.approx(float(scores[alice]), abs=1e-3)
                    assert got.against == pytest.approx(float(scores[bob]), abs=1e-3)
                    best = scores.topk(2).values
                    assert got.margin == pytest.approx(float(best[0] - best[1]), abs=1e-3)

    asked(saved / kind, use)


@pytest.mark.parametrize("kind", list(MAKE))
def test_a_prefix_is_paid_for_once(saved: Path, kind: str) -> None:
    prefix, others = ids(40), [ids(40, seed) for seed in (1, 2)]

    def counts(reply: Reply) -> tuple[int | None, int | None]:
        return reply.prefilled, reply.cached

    async def use(runtime: TransformersRuntime) -> None:
        assert isinstance(runtime, Runtime)
        cold = ask(prefix, ids(2), arm=Arm.COLD)
        assert counts(await runtime.complete(cold)) == (42, 0)
        assert counts(await runtime.complete(ask(prefix, ids(2)))) == (42, 0)  # cold kept nothing
        assert counts(await runtime.complete(ask(prefix, ids(3)))) == (3, 40)
        assert counts(await runtime.complete(cold)) == (42, 0)
        assert counts(await runtime.complete(ask(prefix, ()))) == (0, 40)
        assert counts(await runtime.complete(ask((), prefix))) == (40, 0)
        for other in others:
            assert counts(await runtime.complete(ask(other, ids(2)))) == (42, 0)
        assert counts(await runtime.complete(ask(prefix, ids(2)))) == (42, 0)  # two others came
        assert counts(await runtime.complete(ask(others[1], ids(2)))) == (2, 40)
        one, two = await asyncio.gather(*(runtime.complete(ask(ids(9), ids(2))) for _ in "ab"))
        assert [one.cached, two.cached] == [0, 9]
        assert one.text == two.text

    asked(saved / kind, use)


def test_what_the_model_is(saved: Path) -> None:
    async def use(runtime: TransformersRuntime) -> TransformersRuntime:
        return runtime

    found = asked(saved / "deepseek", use)
    about, limits = found.about, found.limits
    assert (about.target, about.runtime, about.quant, about.toy) == (
        "transformers:deepseek",
        "transformers",
        "float32",
        False,
    )
    assert about.model.startswith("deepseek ")
    assert torch.__version__ in about.build
    assert transformers.__version__ in about.build
    assert about.extra["architecture"] == "DeepseekV4ForCausalLM"
    assert about.extra["compression"] == f"{KINDS[0]} 4, {KINDS[1]} 16"
    assert int(about.extra["parameters"].replace(",", "")) > 10_000
    for secret in (str(saved), str(Path.home()), str(saved.parent)):
        assert secret not in repr(about)
    assert (limits.context_tokens, limits.local_window, limits.bos) == (1024, 16, ())
    assert limits.top_logprobs == len(SPELLED)
    other = asked(saved / "llama", use)
    assert (other.limits.context_tokens, other.limits.local_window) == (512, None)
    assert other.limits.bos == (WORDS.bos,)
    assert found.traffic == 0


@pytest.mark.parametrize("kind", list(MAKE))
def test_ids_are_the_tokenizers_own(saved: Path, kind: str) -> None:
    own = transformers.AutoTokenizer.from_pretrained(saved / kind)
    texts = [" and so it went cat: Alice; dog: Bob; cat:", "", " <user> cat"]

    async def use(runtime: TransformersRuntime) -> None:
        plain = await runtime.tokenize(texts)
        bos = list(runtime.limits.bos)
        assert [bos + line for line in plain[:2]] == [own.encode(text) for text in texts[:2]]
        user = WORDS.tokens.index(" cat")
        assert own.convert_tokens_to_ids("<user>") not in plain[2]
        (marked,) = await runtime.tokenize(texts[2:], special=True)
        assert own.convert_tokens_to_ids("<user>") in marked
        assert marked[-1] == user
        vocab = await survey(runtime.tokenize)
        assert {word.text for word in vocab.keys} <= {WORDS.tokens[key] for key in WORDS.keys}

    asked(saved / kind, use)


@pytest.mark.parametrize("kind", list(MAKE))
def test_the_chat_template_is_split_with_thinking_off(saved: Path, kind: str) -> None:
    own = transformers.AutoTokenizer.from_pretrained(saved / kind)

    async def use(runtime: TransformersRuntime) -> None:
        template = await runtime.template()
        (text,) = await runtime.tokenize([" cat dog"])
        messages = [{"role": "user", "content": " cat dog"}]
        whole = own.apply_chat_template(messages, enable_thinking=False, return_dict=False)
        prompt = [*runtime.limits.bos, *template.head, *text, *template.tail]
        assert prompt == whole
        assert prompt.count(WORDS.bos) == 1
        assert template.tail_text == "<assistant>"
        assert runtime.about.template == template.digest
        body = {"messages": messages, "chat_template_kwargs": {"enable_thinking": True}}
        rendered = await runtime.render(body)
        assert rendered.endswith("<assistant><think>")
        assert rendered.startswith("<s>") is (not runtime.limits.bos)
        runtime._model.tokenizer.chat_template = "{{ 1 / 0 }}"
        with pytest.raises(UsageError, match="template refuses these messages"):
            await runtime.template()
        runtime._model.tokenizer.chat_template = "none of it"
        with pytest.raises(UsageError, match="does not show the user's text just once"):
            await runtime.template()
        runtime._model.tokenizer.chat_template = None
        with pytest.raises(UsageError, match="has no chat template"):
            await runtime.template()

    asked(saved / kind, use)


def test_a_cache_that_answers_differently_is_not_used(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the compressor forgot, between two calls, the window that is still open."""
    module = transformers.models.deepseek_v4.modeling_deepseek_v4
    honest = module.DeepseekV4HCACache.store_compression_weights

    def forgetful(self: Any, name: str, kv: Any, gate: Any) -> Any:  # noqa: ANN401
        self.buffer_kv[name] = self.buffer_gate[name] = None
        return honest(self, name, kv, gate)

    monkeypatch.setattr(module.DeepseekV4HCACache, "store_compression_weights", forgetful)
    prefix, suffix = ids(50), ids(3)

    async def use(runtime: TransformersRuntime) -> list[Reply]:
        assert "whole prompts are evaluated" in runtime.about.extra["prefix cache"]
        asks = [ask(prefix, suffix, generate=2), ask(prefix, suffix, generate=2, arm=Arm.COLD)]
        return [await runtime.complete(each) for each in asks]

    warm, cold = asked(saved / "deepseek", use)
    assert (warm.prefilled, warm.cached) == (53, 0)
    assert warm == replace(cold, seconds=warm.seconds)


def test_a_cache_that_fails_is_not_used(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(transformers.DynamicCache, "__deepcopy__", fails, raising=False)

    async def use(runtime: TransformersRuntime) -> str:
        return runtime.about.extra["prefix cache"]

    assert "cannot be extended (NotImplementedError)" in asked(saved / "llama", use)


def test_a_prompt_that_cannot_be_answered_is_refused(saved: Path) -> None:
    async def use(runtime: TransformersRuntime) -> None:
        with pytest.raises(UsageError, match="do not fit the 512 tokens"):
            await runtime.complete(ask(ids(500), ids(12)))
        await runtime.complete(ask(ids(500), ids(11)))
        for odd in (-1, 9999):
            with pytest.raises(UsageError, match="outside the model's vocabulary"):
                await runtime.complete(ask((odd,), ids(2)))
        with torch.no_grad():
            runtime._model.model.lm_head.weight.fill_(float("nan"))
        with pytest.raises(RuntimeFault, match="scores are not numbers"):
            await runtime.complete(ask(ids(3), ids(2)))

    asked(saved / "llama", use)


def test_an_answer_ends_where_the_model_ends_it(saved: Path) -> None:
    async def use(runtime: TransformersRuntime) -> None:
        one = ask(ids(30), ids(2), generate=4)
        free = await runtime.complete(one)
        assert free.generated == 4
        first = await runtime.complete(replace(one, generate=1))
        (stop,) = (await runtime.tokenize([first.text]))[0]
        runtime._model.stops = frozenset({stop})
        ended = await runtime.complete(one)
        assert (ended.text, ended.generated, ended.finished) == ("", 1, True)

    asked(saved / "llama", use)


def drop(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def edit(**changes: Any) -> Callable[[Path], None]:  # noqa: ANN401
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def partly(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (shutil.rmtree, "there is no folder"),
        (drop("config.json"), "there is no config.json in"),
        (drop("tokenizer.json"), "there is no tokenizer.json in"),
        (drop("model.safetensors"), "there is no model.safetensors in"),
        (pickled, "are a pickle, which can run code"),
        (partly, "1 of the model's weights are missing from the folder, model.norm.weight"),
        (write("model.safetensors", "no weights"), "model.safetensors cannot be read"),
        (write("tokenizer.json", "{}"), "tokenizer.json cannot be read"),
        (write("config.json", "{"), "does not know this model"),
        (edit(model_type="mine", auto_map={"AutoConfig": "mine.Mine"}), "code from the folder"),
        (edit(architectures=["T5ForConditionalGeneration"]), "not a causal language model"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    saved: Path, tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(saved / "llama", folder)
    damage(folder)

    async def use(_: TransformersRuntime) -> None:
        raise AssertionError("opened all the same")

    with pytest.raises(UsageError, match=says) as caught:
        asked(folder, use)
    assert len(str(caught.value).splitlines()) == 1


def test_an_index_that_names_missing_files_is_refused(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(saved / "llama", folder)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    for text, says in (
        ('{"weight_map": {"a": "b.safetensors"}}', "no b.safetensors"),
        ("[]", "index.json cannot be read"),
    ):
        index.write_text(text)
        with pytest.raises(UsageError, match=says):
            transformers_model.load(folder)


def test_the_commands_take_it(saved: Path, tmp_path: Path) -> None:
    entry = detect.plugins()["transformers"]
    assert entry.value == "kvphase.runtimes.transformers:open_folder"
    run = CliRunner()
    info = run.invoke(app, ["info", f"transformers:{saved / 'deepseek'}", "--json"])
    assert info.exit_code == 0, info.output
    assert json.loads(info.stdout)["chat_template"] is True
    refused = run.invoke(app, ["info", f"transformers:{tmp_path / 'none'}"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.exit_code == 2


@pytest.mark.slow
def test_a_check_from_end_to_end(saved: Path, tmp_path: Path) -> None:
    target, out = f"transformers:{saved / 'deepseek'}", tmp_path / "a.kvphase"
    options = ["--context", "420", "--records", "24", "--questions", "240", "--confirm", "never"]
    done = CliRunner().invoke(app, ["check", target, *options, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    verdict = json.loads(done.stdout)
    assert verdict["runtime"] == "transformers"
    assert verdict["audit"]["cold_flips"] == 0
    assert verdict["tokens"]["cached"] > verdict["tokens"]["prefilled"]
