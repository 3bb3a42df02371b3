"""The command line: one function a command, each flag defined once.

Only text goes to stdout. Exit codes: 0 done, 1 a fault of ours, 2 an error of the user's, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cera_py.errors import CeraError, InvalidArgumentError
from cera_py.sampling import SamplingOptions

if TYPE_CHECKING:
    from cera_py.model import Generation, Model, Statistics

PROGRAM = "python -m cera_py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments`: those after the program's name (None: sys.argv)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # also where the locale says ASCII
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written gets removed
    warnings.showwarning = lambda message, *_: print("cera_py: warning:", message, file=sys.stderr)
    debug = False
    try:
        options = _parser().parse_args(arguments)
        debug = options.debug
        if debug:
            os.environ["CERA_CHECKED"] = "1"  # shaders with bounds checks
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except CeraError as error:
        return _fail(str(error), 2, debug)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does. Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk behind stdout, as a rule
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (what is left in its buffer can't be written at exit either)
        return _fail(f"cannot write or read: {error.strerror or error}", 2, debug)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps one that comes while a class is made
            return _fail("interrupted", 130, debug)
        return _fail(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print("cera_py: error:", " ".join(message.split()), file=sys.stderr)
    return code


# ---- the commands ----


def generate(options: argparse.Namespace) -> int:
    """Stream what the model writes after a prompt."""
    if options.max_tokens == -1:  # llama.cpp's ways to say "no limit" and "any"
        options.max_tokens = None
    if options.seed == -1:
        options.seed = None
    sampling = {name: getattr(options, name) for name in _SAMPLING_FLAGS}
    SamplingOptions(**sampling)  # what is wrong with these is said before a model is fetched or loaded
    for name in ("context", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InvalidArgumentError(f"--{name.replace('_', '-')} is {value}: it must be at least 1")
    if sampling["seed"] is None:
        sampling["seed"] = secrets.randbits(32)  # ours, so that --json can tell it
    prompt = _read_prompt(options.prompt)
    path = options.model or _default_model()
    started = time.perf_counter()
    with _load(options, path) as model:
        loaded = f"loaded in {time.perf_counter() - started:.1f} s"
        if options.chat:
            prompt = model.chat_prompt([{"role": "user", "content": prompt}])
        generation = model.generate(prompt, max_tokens=options.max_tokens, **sampling)
        # Only now: whatever was wrong with the request has been said, in one line, before this one.
        about = f"{path.name}: {model.architecture} on {model.device}, context {model.context}, {loaded}"
        print(about, file=sys.stderr, flush=True)
        text, ids, interrupted = _stream(generation, show=not options.json)
        statistics = generation.statistics
        if options.json:
            result = {
                "text": text,
                "ids": ids,
                "finish_reason": "interrupted" if interrupted else generation.finish_reason,
                "model": str(path),
                "architecture": model.architecture,
                "device": model.device,
                "context": model.context,
                "seed": sampling["seed"],
                "statistics": _rates(statistics, model.weight_bytes),
            }
            print(json.dumps(result, ensure_ascii=False))
        elif text and not text.endswith("\n"):
            print(flush=True)
        _print_statistics(statistics, model.weight_bytes)
        if interrupted:
            print("interrupted", file=sys.stderr)
    return 130 if interrupted else 0


def devices(options: argparse.Namespace) -> int:
    """List the adapters, and say which one `--device auto` takes."""
    from cera_py import gpu

    found = gpu.list_devices()
    chosen, reason = gpu.auto_choice(found)
    if options.json:
        auto = "cpu" if chosen is None else chosen.index
        print(json.dumps({"devices": [asdict(device) for device in found], "auto": auto, "reason": reason}))
        return 0
    rows: list[tuple[str, ...]] = [
        ("--device", "name", "backend", "type", "binding", "buffer", "subgroups", "f16", "int8 dot")
    ]
    for device in found:
        sizes = [f"{size / 2**20:,.0f} MiB" for size in (device.max_binding_bytes, device.max_buffer_bytes)]
        has = ["yes" if flag else "no" for flag in (device.f16, device.int8_dot)]
        rows.append((str(device.index), device.name, device.backend, device.type, *sizes, device.subgroups, *has))
    rows.append(("cpu", "NumPy", "", "", "", "", "", "", ""))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(reason)
    return 0


def _version(_: argparse.Namespace) -> int:
    """Print the version of the package."""
    from importlib.metadata import version as version_of

    print("cera_py", version_of("cera-py"))
    return 0


# ---- their parts ----


def _read_prompt(given: str | None) -> str:
    """The prompt as given, or stdin's text for `-` or, without a prompt, from a pipe."""
    if given in (None, "-") and sys.stdin is None:
        raise InvalidArgumentError("no prompt: standard input is closed")
    if given is None and sys.stdin.isatty():
        raise InvalidArgumentError(f'no prompt: give one, {PROGRAM} generate "Once upon a time", or pipe one in')
    try:
        if given is None or given == "-":
            text = sys.stdin.buffer.read().decode()
            text = text.removesuffix("\n").removesuffix("\r")  # the newline that `echo` adds is not meant
        else:
            text = _repaired(given)
    except UnicodeError as error:
        raise InvalidArgumentError(f"the prompt is not UTF-8 text: {error}") from None
    if not text:
        raise InvalidArgumentError("the prompt is empty: give at least one character")
    return text


def _repaired(argument: str) -> str:
    """An argument as UTF-8, which Python hides in surrogates where the locale says ASCII. Raises UnicodeError."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return os.fsencode(argument).decode()
    return argument


def _default_model() -> Path:
    from cera_py import pull

    return pull.default_model()


def _load(options: argparse.Namespace, path: Path) -> Model:
    import cera_py

    with _LoadProgress() as progress:
        return cera_py.load(path, device=options.device, context=options.context, progress=progress)


class _LoadProgress:
    """A bar on stderr while a model loads, where stderr is a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self.bar: Any = None

    def __enter__(self) -> _LoadProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}% |{bar}|", leave=False)
        return self

    def __call__(self, stage: str, fraction: float) -> None:
        if self.bar is not None:
            self.bar.set_description_str(stage, refresh=False)
            self.bar.n = fraction
            self.bar.refresh()

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()


def _stream(generation: Generation, show: bool) -> tuple[str, list[int], bool]:
    """Run a generation to its end or to Ctrl-C; returns its text, its ids, and whether it was interrupted.

    `show` writes each piece to stdout at once.
    """
    pieces: list[str] = []
    ids: list[int] = []
    with _CtrlC() as ctrl_c, contextlib.closing(generation):
        try:
            for piece in generation:
                ctrl_c.waits = True
                ids.append(piece.id)
                pieces.append(piece.text)
                if show:
                    sys.stdout.write(piece.text)
                    sys.stdout.flush()
                if ctrl_c.pressed:
                    break
        except KeyboardInterrupt:
            ctrl_c.pressed = True
    return "".join(pieces), ids, ctrl_c.pressed


class _CtrlC:
    """While pieces stream, the first Ctrl-C only sets `pressed`, for the loop to stop between two pieces.

    Before the first piece, and the second time, it raises KeyboardInterrupt as usual.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.waits = False
        self.previous: Any = None

    def __enter__(self) -> _CtrlC:
        if threading.current_thread() is threading.main_thread():
            self.previous = signal.signal(signal.SIGINT, self._press)
        return self

    def _press(self, *_: object) -> None:
        again, self.pressed = self.pressed, True
        if again or not self.waits:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        if self.previous is not None:
            signal.signal(signal.SIGINT, self.previous)


def _rates(statistics: Statistics, weight_bytes: int) -> dict[str, float]:
    """The statistics with what follows from them: tokens a second, and GB a second of weights read in decoding."""
    prompt_rate, decode_rate = statistics.prompt_tokens_per_second, statistics.decode_tokens_per_second
    return asdict(statistics) | {
        "prompt_tokens_per_second": prompt_rate,
        "decode_tokens_per_second": decode_rate,
        "decode_gigabytes_per_second": decode_rate * weight_bytes / 1e9,
    }


def _print_statistics(statistics: Statistics, weight_bytes: int) -> None:
    if not statistics.prompt_seconds:  # interrupted before the first token
        return
    rates = _rates(statistics, weight_bytes)
    for kind in ("prompt", "decode"):
        tokens, seconds, rate = (rates[f"{kind}_{what}"] for what in ("tokens", "seconds", "tokens_per_second"))
        line = f"{kind}: {tokens} token{'' if tokens == 1 else 's'} in {seconds:.2f} s, {rate:.1f} tok/s"
        if kind == "decode":
            line += f", {rates['decode_gigabytes_per_second']:.2f} GB/s of weights read"
        print(line, file=sys.stderr)


# ---- the flags ----

_SAMPLING_FLAGS: dict[str, dict[str, Any]] = {
    "temperature": {"names": ["--temp"], "type": float, "help": "0: always the most likely token"},
    "top_k": {"type": int, "help": "sample among the K most likely tokens; 0: all"},
    "top_p": {"type": float, "help": "sample among the most likely tokens that reach this probability; 1: all"},
    "min_p": {"type": float, "help": "drop tokens less likely than this times the most likely; 0: none"},
    "repeat_penalty": {"type": float, "help": "above 1: recent tokens become less likely"},
    "seed": {
        "names": ["-s"],
        "type": int,
        "help": "the same seed gives the same text on the same device (default, and -1: any)",
    },
}


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as every other error: in one line."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgumentError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    about = "Runs GGUF language models on any GPU through WebGPU, or on the CPU through NumPy."
    parser = _Parser(prog=PROGRAM, description=about, allow_abbrev=False)
    parser.add_argument("--version", action="store_const", dest="command", const=_version, help="print the version")
    parser.set_defaults(command=lambda _: _print_help(parser), debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(run: Any) -> argparse.ArgumentParser:
        about = run.__doc__.strip()
        one = commands.add_parser(run.__name__, help=about, description=about, allow_abbrev=False)
        one.set_defaults(command=run)
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument(
            "--debug", action="store_true", help="show a traceback with an error, and check the bounds in shaders"
        )
        return one

    one = command(generate)
    one.add_argument("prompt", nargs="?", metavar="PROMPT", help="the text to go on from; `-` or a pipe: read stdin")
    one.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    one.add_argument(
        "-n", "--max-tokens", type=int, metavar="N", help="stop after N tokens (default, and -1: when the model ends)"
    )
    _add_model_flags(one)
    _add_sampling_flags(one)
    command(devices)
    return parser


def _print_help(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return 0


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model", type=Path, metavar="PATH", help="a GGUF file (default: SmolLM2-135M, fetched once)"
    )
    parser.add_argument("--device", default="auto", help="auto, gpu, cpu, an index or a part of a name (default: auto)")
    parser.add_argument(
        "-c", "--context", type=int, metavar="N", help="tokens of context (default: the model's, up to 4096)"
    )


def _add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    for name, flag in _SAMPLING_FLAGS.items():
        default = getattr(SamplingOptions, name)
        group.add_argument(
            *flag.get("names", []),
            f"--{name.replace('_', '-')}",
            dest=name,
            type=flag["type"],
            default=default,
            metavar="N",
            help=f"{flag['help']} (default: {'random' if default is None else default})",
        )
