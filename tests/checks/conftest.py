"""Every test here starts in English, with no exercise checked yet."""

import pytest

from paged_kv import messages
from paged_kv.checks import api


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setattr(messages, "_current", "en")
    monkeypatch.setattr(api, "_states", {})
