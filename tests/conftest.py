"""Shared fixtures: where the conformance data lies, and a GPU device for the kernel tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "conformance"


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of reference models and logits that lies beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("the conformance data is not beside this checkout")
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """In CI, a test that skipped although the conformance data is there would hide a gap: say so, and fail."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("CI") and SHARED.is_dir():
        terminalreporter.write_line(f"{len(skipped)} tests skipped although the conformance data is present", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn skips into a failure where nothing may skip (CI beside the conformance data)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and os.environ.get("CI") and SHARED.is_dir():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
