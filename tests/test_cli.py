"""The command line as a user runs it: in a process of its own, over a tiny model with random weights."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "data" / "llama-spm.gguf"
ON_CPU = ["--model", str(MODEL), "--device", "cpu"]
COMMAND = [sys.executable, "-m", "cera_py"]
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and pipes")


def cera(*arguments: str, stdin: str | bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command; what it prints is decoded strictly, as UTF-8."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=os.environ | environment,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def generate(*arguments: str, **more: str) -> str:
    """What a generation that succeeds writes to stdout."""
    done = cera("generate", *arguments, *ON_CPU, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def generate_json(*arguments: str) -> dict:
    return json.loads(generate("Hello world", "--json", *arguments))


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that holds the words."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("cera_py: error: ")
    for word in words:
        assert word in done.stderr


# ---- without a model ----


def test_no_command_prints_the_help() -> None:
    done = cera()
    assert done.returncode == 0
    assert "generate" in done.stdout
    assert "devices" in done.stdout
    assert done.stderr == ""


def test_help_names_every_flag_and_the_defaults() -> None:
    done = cera("generate", "--help", COLUMNS="200")
    flags = "model chat max-tokens temperature top-k top-p min-p repeat-penalty seed context device json debug"
    for flag in flags.split():
        assert f"--{flag}" in done.stdout
    for default in ("0.8", "40", "0.95", "0.05", "1.0"):
        assert f"(default: {default})" in done.stdout


def test_version() -> None:
    assert cera("--version").stdout == f"cera_py {version('cera-py')}\n"


def test_starting_up_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom cera_py.cli import main\n"
        "try: main(['generate', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('wgpu', 'tokenizers', 'gguf', 'jinja2', 'tqdm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_devices_is_a_table_and_a_reason() -> None:
    done = cera("devices")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    head, *rows, last = done.stdout.splitlines()
    for column in ("name", "backend", "type", "binding", "buffer", "subgroups", "f16", "int8 dot"):
        assert column in head
    assert rows[-1].split() == ["cpu", "NumPy"]
    assert last.startswith("auto takes ")


def test_devices_as_json() -> None:
    done = json.loads(cera("devices", "--json").stdout)
    table = cera("devices").stdout.splitlines()
    assert [row.split()[0] for row in table[1:-1]] == [str(device["index"]) for device in done["devices"]] + ["cpu"]
    assert done["reason"] == table[-1]
    chosen = [device["index"] for device in done["devices"] if device["chosen"]]
    assert done["auto"] == (chosen[0] if chosen else "cpu")


# ---- generating ----


def test_only_text_on_stdout_and_the_figures_on_stderr() -> None:
    done = cera("generate", "Hello world", *ON_CPU, "--max-tokens", "5", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n") == generate_json("--max-tokens", "5", "--temperature", "0")["text"].rstrip("\n")
    assert done.stdout.endswith("\n")
    loaded, prompt, decode = done.stderr.splitlines()  # no bar where stderr is no terminal
    assert "llama-spm.gguf" in loaded
    assert re.fullmatch(r"prompt: \d+ tokens in [\d.]+ s, [\d.]+ tok/s", prompt)
    assert re.fullmatch(r"decode: 4 tokens in [\d.]+ s, [\d.]+ tok/s, [\d.]+ GB/s of weights read", decode)


def test_json_is_one_object_with_everything() -> None:
    result = generate_json("-n", "6", "--seed", "3", "--context", "100")
    assert len(result["ids"]) == 6
    assert result["finish_reason"] == "length"
    assert result["model"] == str(MODEL)
    assert result["architecture"] == "llama"
    assert result["context"] == 100
    assert result["seed"] == 3
    assert result["device"]
    statistics = result["statistics"]
    assert statistics["prompt_tokens"] > 0
    assert statistics["decode_tokens"] == 5  # the first token is the prompt's
    assert statistics["decode_tokens_per_second"] > 0
    assert statistics["decode_gigabytes_per_second"] > 0


def test_the_ids_decode_to_the_text() -> None:
    import cera_py

    tokenizer = cera_py.load_tokenizer(MODEL)
    for count in ("29", "30"):  # one of these ends inside a character
        result = generate_json("-n", count, "--seed", "5")
        assert len(result["ids"]) == int(count)
        assert tokenizer.decode(result["ids"]).lstrip() == result["text"].lstrip()


def test_a_seed_repeats_and_another_differs() -> None:
    assert generate_json("-n", "20", "-s", "1")["ids"] == generate_json("-n", "20", "-s", "1")["ids"]
    assert generate_json("-n", "20", "-s", "1")["ids"] != generate_json("-n", "20", "-s", "2")["ids"]


def test_a_seed_that_json_told_repeats_the_text() -> None:
    first = generate_json("-n", "20")
    assert generate_json("-n", "20", "--seed", str(first["seed"]))["ids"] == first["ids"]


def test_temperature_0_is_greedy(conformance: Path) -> None:
    case = json.loads((conformance / "arch" / "llama-spm.json").read_text())["cases"][0]
    result = json.loads(generate(case["prompt"], "--json", "--temperature", "0", "-n", "32"))
    sure = next((i for i, margin in enumerate(case["margin"]) if margin < 0.01), len(case["margin"]))
    sure = min([sure, *(i for i, token in enumerate(case["greedy"]) if token == 2)])  # our text ends there
    assert result["ids"][:sure] == case["greedy"][:sure]


def test_top_k_1_is_greedy_too() -> None:
    assert generate_json("-n", "8", "--top-k", "1")["ids"] == generate_json("-n", "8", "--temp", "0")["ids"]


def test_without_a_limit_it_goes_on_to_the_end_or_a_full_context() -> None:
    result = generate_json("--context", "40", "--temperature", "0")
    statistics = result["statistics"]
    assert result["finish_reason"] in ("stop", "length")
    if result["finish_reason"] == "length":
        # The last token has no room left to be read again, but may be the 41st of the text.
        assert statistics["prompt_tokens"] + statistics["decode_tokens"] in (40, 41)


@pytest.mark.parametrize("prompt", [[], ["-"]], ids=["a pipe", "a dash"])
def test_the_prompt_from_stdin(prompt: list[str]) -> None:
    arguments = [*prompt, "--temperature", "0", "-n", "8"]
    assert generate(*arguments, stdin="Hello world\n") == generate("Hello world", *arguments[len(prompt) :])


def test_a_prompt_like_a_flag_after_two_dashes() -> None:
    done = cera("generate", *ON_CPU, "-n", "1", "--", "--chat")
    assert done.returncode == 0, done.stderr


def test_a_text_of_any_language_under_a_plain_locale() -> None:
    arguments = ("ein schöner Tag 日本", "-n", "40", "--seed", "1")
    plain = generate(*arguments, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert plain  # decoded as UTF-8 above, or it would have failed


@posix
def test_pieces_come_as_they_are_made() -> None:
    command = [*COMMAND, "generate", "Hello world", *ON_CPU, "--temperature", "0", "-n", "1500"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        first = os.read(process.stdout.fileno(), 1 << 20)
        process.stdout.read()
    assert 0 < len(first) < 1000  # a pipe that is not flushed gives 8 KiB or all at once


@posix
def test_ctrl_c_ends_with_what_was_written() -> None:
    process = interruptible()
    assert process.stdout
    start = os.read(process.stdout.fileno(), 1 << 20)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (start + rest).endswith(b"\n")
    assert b"Traceback" not in err
    assert re.search(rb"decode: \d+ tokens? in .* tok/s", err)


@posix
def test_ctrl_c_with_json_still_prints_the_object() -> None:
    process = interruptible("--json")
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    result = json.loads(out)
    assert result["finish_reason"] == "interrupted"
    assert result["statistics"]["decode_tokens"] >= len(result["ids"]) - 1


def interruptible(*arguments: str) -> subprocess.Popen[bytes]:
    """A generation that has loaded its model and goes on to a full context: greedily, it runs in a circle."""
    command = [*COMMAND, "generate", "Hello world", *ON_CPU, "--temperature", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr
    assert b"loaded" in process.stderr.readline()
    return process


@posix
def test_a_reader_that_goes_away_is_no_error() -> None:
    process = interruptible()
    assert process.stdout
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    assert process.stderr
    err = process.stderr.read()
    assert process.wait(timeout=30) == 0
    assert err == b""


# ---- what bad input gets ----


@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [
        ("--temperature", "nan", "temperature"),
        ("--temperature", "-1", "temperature"),
        ("--temperature", "inf", "temperature"),
        ("--temperature", "warm", "temperature"),
        ("--top-p", "7", "top_p"),
        ("--top-p", "0", "top_p"),
        ("--top-p", "nan", "top_p"),
        ("--top-k", "-3", "top_k"),
        ("--top-k", "2.5", "top-k"),
        ("--min-p", "-0.1", "min_p"),
        ("--min-p", "nan", "min_p"),
        ("--repeat-penalty", "0", "repeat_penalty"),
        ("--repeat-penalty", "nan", "repeat_penalty"),
        ("--seed", "-2", "seed"),
        ("--seed", "99999999999999999999", "seed"),
        ("--context", "0", "context"),
        ("--context", "-5", "context"),
        ("--max-tokens", "0", "max-tokens"),
        ("--max-tokens", "many", "max-tokens"),
    ],
)
def test_a_bad_value_is_refused_before_anything_is_fetched(flag: str, value: str, word: str, tmp_path: Path) -> None:
    # `=`, because argparse takes a separate "-1" for a flag. There is no pip index: fetching would fail otherwise.
    done = cera("generate", "hi", f"{flag}={value}", CERA_HOME=str(tmp_path), PIP_NO_INDEX="1")
    assert_refused(done, word)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_flag_or_command_is_one_line() -> None:
    assert_refused(cera("generate", "hi", "--no-such-flag"), "--no-such-flag")
    assert_refused(cera("generate", "hi", "--top-k"), "--top-k")
    assert_refused(cera("no-such-command"), "no-such-command", "generate")


@pytest.mark.parametrize("arguments", [[""], ["-"], []], ids=["argument", "dash", "pipe"])
def test_an_empty_prompt(arguments: list[str]) -> None:
    assert_refused(cera("generate", *arguments, *ON_CPU), "prompt", "empty")


def test_a_prompt_that_is_no_text() -> None:
    assert_refused(cera("generate", "-", *ON_CPU, stdin=b"caf\xe9 au lait"), "UTF-8")


@posix
def test_an_argument_that_is_no_text() -> None:
    done = subprocess.run([*COMMAND, "generate", b"caf\xe9", *ON_CPU], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr


def test_a_prompt_longer_than_the_context() -> None:
    assert_refused(cera("generate", "one two three four " * 20, *ON_CPU, "--context", "16"), "16")


def test_a_context_beyond_the_models() -> None:
    assert_refused(cera("generate", "hi", *ON_CPU, "--context", "1000000"), "1,000,000", "2,048")


def test_a_model_that_is_no_model(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("These are notes.\n" * 100)
    empty = tmp_path / "empty.gguf"
    empty.touch()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(MODEL.read_bytes()[:100_000])
    for path in (tmp_path, text, empty, cut, tmp_path / "missing.gguf"):
        assert_refused(cera("generate", "hi", "--model", str(path), "--device", "cpu"), str(path))


def test_an_architecture_or_type_that_we_lack_is_named_with_those_we_have(tmp_path: Path) -> None:
    content = MODEL.read_bytes()
    key = b"general.architecture"
    start = content.index(key) + len(key) + 4 + 8  # the value's type, then its length
    assert content[start : start + 5] == b"llama"
    other = tmp_path / "other.gguf"
    other.write_bytes(content[:start] + b"lmaal" + content[start + 5 :])
    assert_refused(cera("generate", "hi", "--model", str(other), "--device", "cpu"), "lmaal", "llama")


def test_a_device_that_is_not_there() -> None:
    done = cera("generate", "hi", "--model", str(MODEL), "--device", "no such card")
    assert_refused(done, "no such card")


def test_chat_with_a_model_that_has_no_template() -> None:
    done = cera("generate", "hi", "--chat", *ON_CPU)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "template" in done.stderr.splitlines()[-1]


def test_debug_shows_the_traceback() -> None:
    command = [*COMMAND, "generate", "hi", "--model", "missing.gguf", "--device", "cpu", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


@posix
def test_a_full_disk_and_a_closed_stdin() -> None:
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            command = [*COMMAND, "generate", "hi", "-n", "3", *ON_CPU]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 2
        assert "No space left" in done.stderr.splitlines()[-1]
    command = [*COMMAND, "generate", "-", *ON_CPU]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    assert "closed" in done.stderr


def test_what_llama_cpp_users_type() -> None:
    assert generate("Hello", "-n", "-1", "--context", "12", "--seed", "-1", "--temp", "0")
