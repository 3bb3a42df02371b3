"""Chat templates: the environment they are written for, and what goes wrong in them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cera_py.chat import encode_chat, render
from cera_py.errors import CeraError, InvalidArgumentError, ModelFileError
from cera_py.gguf_file import GgufFile
from cera_py.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "ja"}]


def fake_tokenizer(adds_bos: bool = False, tokens: tuple[str, ...] = ("<bos>", "<eos>", "<|im_start|>")) -> Any:
    """As much of a tokenizer as templates need."""
    return SimpleNamespace(
        bos_id=0,
        eos_id=1,
        adds_bos=adds_bos,
        token_text=tokens.__getitem__,
        token_id=lambda text: tokens.index(text) if text in tokens else None,
    )


def show(template: str, messages: Any = MESSAGES, **options: Any) -> str:
    return render(template, messages, tokenizer=fake_tokenizer(), **options)


def test_smollm2_chat(smollm2: Path, data: Path) -> None:
    tokenizer = Tokenizer.from_metadata(GgufFile(smollm2).metadata)
    cases = json.loads((data / "smollm2-135m.json").read_text())["cases"]
    case = next(case for case in cases if case["name"] == "chat")
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    assert render(tokenizer.chat_template, messages, tokenizer=tokenizer) == case["prompt"]
    assert render(None, messages, tokenizer=tokenizer) == case["prompt"]  # SmolLM2 speaks ChatML
    assert encode_chat(tokenizer, messages) == case["ids"]


def test_blocks_are_trimmed_as_templates_expect() -> None:
    template = (
        "{% for m in messages %}\n    {% if true %}\n{{ m.role }}: {{ m.content }}\n    {% endif %}\n{% endfor %}\n."
    )
    assert show(template) == "user: Grüße\nassistant: ja\n."


def test_variables_and_functions() -> None:
    assert show("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}") == "<bos><eos>True"
    assert show("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert show("{{ messages[0] | tojson }}") == '{"role": "user", "content": "Grüße"}'
    assert show("{{ tools | tojson(indent=1) }}", tools=[{"name": "f<>"}]) == '[\n {\n  "name": "f<>"\n }\n]'
    assert show("{% if tools is none and documents is none %}none{% endif %}") == "none"
    assert show("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "012"
    assert show("{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}") == "023"
    assert show("a{% generation %}b{{ messages[1].content }}{% endgeneration %}c") == "abjac"
    assert show("{{ strftime_now('%Y') }}") in {str(datetime.datetime.now().year - i) for i in (0, 1)}


def test_chatml_without_a_template() -> None:
    expected = "<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\nja<|im_end|>\n"
    assert render(None, MESSAGES, tokenizer=fake_tokenizer()) == expected + "<|im_start|>assistant\n"
    assert render(None, MESSAGES, tokenizer=fake_tokenizer(), add_generation_prompt=False) == expected


def test_no_template_and_no_chatml_tokens() -> None:
    with pytest.raises(InvalidArgumentError, match="no chat template"):
        render(None, MESSAGES, tokenizer=fake_tokenizer(tokens=("<s>", "</s>")))


def test_bos_comes_once() -> None:
    template = "{{ bos_token }}{{ messages[0].content }}{{ bos_token }}"
    assert render(template, MESSAGES, tokenizer=fake_tokenizer(adds_bos=False)) == "<bos>Grüße<bos>"
    assert render(template, MESSAGES, tokenizer=fake_tokenizer(adds_bos=True)) == "Grüße<bos>"
    assert render("hi", MESSAGES, tokenizer=fake_tokenizer(adds_bos=True)) == "hi"
    no_bos = fake_tokenizer()
    no_bos.bos_id = None
    assert render("[{{ bos_token }}]", MESSAGES, tokenizer=no_bos) == "[]"


@pytest.mark.parametrize("messages", [[], [{}], [{"role": 5, "content": "x"}], ["user"], [None]])
def test_malformed_conversations(messages: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="message"):
        show("x", messages)


def test_a_template_may_refuse() -> None:
    with pytest.raises(InvalidArgumentError, match=r"refuses these messages: roles must alternate, please$"):
        show("a\n{{ raise_exception('roles must\n alternate, please') }}")


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("a\n{% if %}", 2),
        ("a\n\n{{ oh no }}", 3),
        ("{% for x in y %}", 1),
        ("a\n\n{{ 1 / 0 }}", 3),
        ("a\n{{ nothing.at.all }}", 2),
        ("a\n{{ messages[0].content + 5 }}", 2),
        ("{% macro f(x) %}\n{{ x.y.z }}\n{% endmacro %}\n\n{{ f(1) }}", 2),
        ("a\n{{ messages.append(1) }}", 2),
        ("a\n{{ ''.__class__.__mro__ }}", 2),
        ("a\n{{ range(10000000) | list }}", 2),
        ("a\n{% include 'x' %}", 2),
        ("a\n{{ 'x' | no_such_filter }}", 2),
    ],
)
def test_broken_templates_name_the_line(template: str, line: int) -> None:
    with pytest.raises(CeraError, match=f"tokenizer.chat_template, line {line}:") as caught:
        show(template)
    assert isinstance(caught.value, ModelFileError)
    assert "\n" not in str(caught.value)
