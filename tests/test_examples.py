"""Every example runs as it stands, in a process of its own, over a tiny model with random weights."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "data" / "llama-spm.gguf"
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(example: str) -> subprocess.CompletedProcess[str]:
    path = next(path for path in EXAMPLES if path.name == example)
    done = subprocess.run([sys.executable, path, MODEL], capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def test_script() -> None:
    done = run("script.py")
    assert len(done.stdout) > 20
    assert "tok/s" in done.stderr


def test_asyncio_app() -> None:
    done = run("asyncio_app.py")
    assert len(done.stdout) > 20
    assert "the event loop ran" in done.stderr
    assert "cancelled" in done.stderr or "it was faster" in done.stderr


def test_own_sampler() -> None:
    done = run("own_sampler.py")
    prompt = "My favourite colour is"
    assert done.stdout.startswith(prompt)
    written = done.stdout.removeprefix(prompt).strip()
    assert written
    assert "e" not in written.lower()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_says_what_it_shows_and_has_a_test(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text
    assert f"python examples/{path.name} [MODEL.gguf]" in text
    assert f"def test_{path.stem}()" in Path(__file__).read_text(encoding="utf-8")
