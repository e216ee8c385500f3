"""The stubs beside the module that they describe."""

import subprocess
import sys

import pytest


def test_stubs_and_module_agree():
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy.stubtest", "farlane"]
    checked = subprocess.run(words, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
