import pytest

from paged_kv import messages
from paged_kv.serving import CostModel


@pytest.fixture
def cost():
    """An engine whose every term counts."""
    return CostModel(5e6, 2e3, 1e9, 1e-5, 2e-3, 1e-4)


@pytest.fixture
def speak(monkeypatch):
    """Return what sets the language until the end of the test."""
    return lambda lang: monkeypatch.setattr(messages, "_current", lang)
