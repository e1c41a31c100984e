"""Who asks when, and for how many tokens; drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from paged_kv.spec import whole


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival : ndarray of float64, shape (n,)
        Seconds, not decreasing.
    prompt, output : ndarray of int64, shape (n,)
        Tokens of the prompt and of the answer, at least 1 each.
    name : str
        For people.

    Raises
    ------
    ValueError
        When there is no request, the arrays differ in length, or a value is out of
        range; the message names the first bad request.
    """

    arrival: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    name: str = ""

    def __post_init__(self) -> None:
        arrays = {
            name: np.asarray(getattr(self, name))
            for name in ("arrival", "prompt", "output")
        }
        shapes = [array.shape for array in arrays.values()]
        if shapes != [(max(1, arrays["arrival"].size),)] * 3:
            raise ValueError(
                f"arrival, prompt and output must be (n,) with n > 0, got {shapes}"
            )
        for name, array in arrays.items():
            if name != "arrival" and array.dtype.kind not in "iu":
                raise ValueError(f"{name} must hold whole numbers, got {array.dtype}")
            dtype = np.float64 if name == "arrival" else np.int64
            object.__setattr__(self, name, array.astype(dtype))
        in_order = np.diff(self.arrival, prepend=0.0) >= 0
        for name, good, rule in (
            ("arrival", in_order & np.isfinite(self.arrival), "not decreasing from 0"),
            ("prompt", self.prompt >= 1, "at least 1"),
            ("output", self.output >= 1, "at least 1"),
        ):
            if not good.all():
                at = int(np.argmin(good))
                value = getattr(self, name)[at]
                raise ValueError(f"request {at}: {name} must be {rule}, got {value}")

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def total(self) -> NDArray[np.int64]:
        """Tokens of prompt and answer together, shape (n,)."""
        return self.prompt + self.output

    def faster(self, factor: float) -> Workload:
        """Return the same requests, arriving `factor` times as often.

        Raises
        ------
        ValueError
            For a factor that is not a number above 0.
        """
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be a number > 0, got {factor!r}")
        return Workload(self.arrival / factor, self.prompt, self.output, self.name)

    def no_longer_than(self, max_len: int) -> Workload:
        """Return the requests of at most `max_len` tokens in all."""
        keep = self.total <= max_len
        return Workload(
            self.arrival[keep], self.prompt[keep], self.output[keep], self.name
        )


@dataclass(frozen=True)
class Lengths:
    """Lognormal lengths of prompts and answers.

    Parameters
    ----------
    name : str
    mean_prompt, mean_output : float
        Mean tokens.
    cv_prompt, cv_output : float
        Coefficient of variation: standard deviation over mean.
    """

    name: str
    mean_prompt: float
    mean_output: float
    cv_prompt: float = 1.5
    cv_output: float = 1.0


# Means: Kwon et al., SOSP'23, figure 11. The paper shows the spread only as a picture;
# the coefficients of variation are ours.
SHAREGPT = Lengths("ShareGPT-like", 161.31, 337.99)
ALPACA = Lengths("Alpaca-like", 19.31, 58.45)


def poisson_workload(
    lengths: Lengths, rate: float, n: int, *, seed: int = 0, max_len: int = 2048
) -> Workload:
    """Draw `n` requests that arrive independently of each other.

    Parameters
    ----------
    lengths : Lengths
        Distribution of the lengths, e.g. `SHAREGPT`.
    rate : float
        Requests per second; ``math.inf`` puts all of them at time 0.
    n : int
        Requests.
    seed : int
        The same seed gives the same requests, at any rate.
    max_len : int
        Longest prompt + answer, in tokens. Longer ones are drawn anew, and the means
        of those that remain are the given ones.

    Raises
    ------
    ValueError
        For a rate that is not positive, or means that do not fit under `max_len`.
    """
    n, max_len = whole("n", n, 1), whole("max_len", max_len, 2)
    if not rate > 0:
        raise ValueError(f"rate must be requests per second > 0, got {rate!r}")
    mu, sigma = _fit(lengths, max_len)
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(size=n)) / rate
    drawn = np.empty((2, 0), np.int64)
    while drawn.shape[1] < n:
        more = rng.lognormal(mu[:, None], sigma[:, None], (2, n))
        more = np.maximum(1, np.rint(more)).astype(np.int64)
        drawn = np.concatenate([drawn, more[:, more.sum(axis=0) <= max_len]], axis=1)
    return Workload(arrival, drawn[0, :n], drawn[1, :n], lengths.name)


def _fit(
    lengths: Lengths, max_len: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mu and sigma, of prompt and output, that give the means below `max_len`.

    The long ones that are left out lower the mean, so the rest must be longer.
    """
    means = np.array([lengths.mean_prompt, lengths.mean_output])
    cvs = np.array([lengths.cv_prompt, lengths.cv_output])
    if not (np.isfinite(means).all() and (means >= 1).all() and (cvs > 0).all()):
        raise ValueError(f"means must be at least 1 and CVs above 0, got {lengths}")
    sigma = np.sqrt(np.log1p(cvs**2))
    mu = np.log(means) - sigma**2 / 2
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / 400) for i in range(400)])
    for _ in range(50):
        prompt, output = np.exp(mu[:, None] + sigma[:, None] * z)
        kept = prompt[:, None] + output <= max_len
        if not kept.any():
            break
        of_kept = np.array([(kept.T * prompt).sum(), (kept * output).sum()])
        of_kept /= kept.sum()
        if np.allclose(of_kept, means, rtol=1e-3):
            return mu, sigma
        mu += np.log(means / of_kept)
    raise ValueError(
        f"means of {lengths.mean_prompt} + {lengths.mean_output} tokens do not fit "
        f"under max_len = {max_len}"
    )
