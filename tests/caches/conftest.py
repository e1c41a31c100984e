"""Every test here starts in English, and leaves the language as it was."""

import pytest

from paged_kv import messages


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setattr(messages, "_current", "en")
