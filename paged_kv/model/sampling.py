"""Choose the next token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pick(logits: NDArray[Any], temperature: float, rng: np.random.Generator) -> int:
    """Return the id of the next token.

    Parameters
    ----------
    logits : ndarray, shape (vocab_size,)
    temperature : float
        0 takes the best; above, token i is drawn with probability proportional to
        exp(logits[i] / temperature).
    rng : numpy.random.Generator
        Advances by one draw when the temperature is above 0.
    """
    if temperature == 0:
        return int(logits.argmax())
    below_best = logits.astype(np.float64) - logits.max()
    with np.errstate(over="ignore"):  # −inf, where the temperature is next to 0
        cumulative = np.exp(below_best / temperature).cumsum()
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], "right"))


def check_temperature(temperature: float) -> float:
    """Return the temperature, or raise ValueError unless it is a number from 0 on."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    return float(temperature)
