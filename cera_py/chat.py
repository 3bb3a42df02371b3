"""Conversations as the text a chat model was trained on, by the Jinja template that its file carries.

Templates come from strangers and are written for the transformers library, so they run in Jinja's sandbox, with the
environment that library gives them: trimmed blocks, `raise_exception`, `strftime_now`, `tojson` that keeps letters
beyond ASCII, `{% break %}` and `{% continue %}`, and `{% generation %}` blocks (for training; they change nothing).
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgumentError, ModelFileError

if TYPE_CHECKING:
    import jinja2

    from .tokenizer import Tokenizer

# The form most chat models share, for a file that lost its template but has the tokens.
_CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- endif %}"""


def render(
    template: str | None,
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenizer: Tokenizer,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Write a conversation as text, by a chat template (as a rule `tokenizer.chat_template`).

    Each message has a "role" ("system", "user", "assistant", ...) and a "content". `add_generation_prompt` ends the
    text where the assistant's answer begins. `tools` are JSON schemas of functions, for templates that know of tools.
    Without a template, the ChatML form serves where the vocabulary has "<|im_start|>". The text is ready for
    `tokenizer.encode(text)`: a BOS that the template writes at the start is left out where `encode` adds one.

    Raises InvalidArgumentError for messages that are malformed or that the template refuses, and where there is no
    template to use; ModelFileError, with the line, for a template that is broken.
    """
    import jinja2

    if not messages:
        raise InvalidArgumentError("a conversation needs at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidArgumentError("each message must be a mapping with a 'role', a string, and a 'content'")
    if template is None:
        if tokenizer.token_id("<|im_start|>") is None:
            raise InvalidArgumentError("this model has no chat template: give it a plain prompt")
        template = _CHATML
    variables: dict[str, Any] = {
        "messages": messages,
        "tools": tools,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": _text(tokenizer, tokenizer.bos_id),
        "eos_token": _text(tokenizer, tokenizer.eos_id),
    }
    try:
        text = _compile(template).render(variables)
    except _RefusalError as refusal:
        raise InvalidArgumentError(f"the model's chat template refuses these messages: {_one_line(refusal)}") from None
    except jinja2.TemplateSyntaxError as error:
        raise ModelFileError(f"tokenizer.chat_template, line {error.lineno}: {_one_line(error)}") from None
    except Exception as error:  # a template is a program: anything may go wrong in it
        raise ModelFileError(
            f"tokenizer.chat_template, line {_failing_line(error)}: {type(error).__name__}: {_one_line(error)} "
            "(check that each message has all that the template asks for)"
        ) from None
    # `encode` puts BOS first where the model wants it; templates that write it too would give two.
    return text.removeprefix(variables["bos_token"]) if tokenizer.adds_bos else text


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """Write a conversation by the tokenizer's own template, and encode it. Arguments and errors as in `render`."""
    return tokenizer.encode(
        render(
            tokenizer.chat_template,
            messages,
            tokenizer=tokenizer,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
        )
    )


class _RefusalError(Exception):
    """What a template's `raise_exception` raises."""


def _text(tokenizer: Tokenizer, id: int | None) -> str:
    return "" if id is None else tokenizer.token_text(id)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _failing_line(error: BaseException) -> int | str:
    """Return the line of the template that raised: Jinja names the frames of templates so."""
    line: int | str = "?"
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


@functools.lru_cache(maxsize=16)
def _compile(template: str) -> jinja2.Template:
    """Compile a template in the sandbox."""
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    import jinja2.sandbox

    class GenerationBlock(jinja2.ext.Extension):
        """`{% generation %}...{% endgeneration %}`: just what is inside."""

        tags = {"generation"}  # noqa: RUF012  (how Jinja declares it)

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise _RefusalError(message)

    def strftime_now(format: str) -> str:
        return datetime.datetime.now().strftime(format)

    def tojson(value: Any, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment.from_string(template)
