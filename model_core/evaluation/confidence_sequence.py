"""A confidence sequence for the sum of the conditional means of bounded numbers.

Let x_1, x_2, ... lie in [-1, 1], each with any distribution given those before it.  With S = Σ x_i,
Q = Σ x_i² and M = Σ E[x_i | x_1, ..., x_i-1],

    |S - M| < radius(Q)   after every number, all of them together, with a probability of CONFIDENCE.

So the interval may be looked at after each number, and a decision taken as soon as it excludes 0.  It is
Theorem 4 of Howard, Ramdas, McAuliffe and Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic
confidence sequences", with 0 as every prediction, and a discrete mixture (their Section 3.3) as boundary.
docs/mathematics.md has the proof.
"""

import math

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel
from model_core.kernels.numerics import exp, log1p

CONFIDENCE = 0.95
ENOUGH = 40.0
"""The evidence that is enough: each side is wrong with half of 1 - CONFIDENCE, the inverse of this."""

COMPONENTS = 16
_K = np.arange(COMPONENTS, dtype=np.float64)
LAMBDAS: NDArray[np.float64] = np.exp2(-_K - 1.0)
"""λ_k of the mixture.  The best is about M / Q: 1/2 for a true prediction against one with a small error."""
WEIGHTS: NDArray[np.float64] = 1.0 / ((_K + 1.0) * (_K + 2.0))
"""Their weights, together less than 1."""
_LOG_WEIGHTS = np.log(WEIGHTS)
_COSTS = -np.log1p(-LAMBDAS) - LAMBDAS  # ψ of each
_PRECISION = 1e-12


@kernel
def evidence(total: float, squares: float) -> float:
    """Σ_k w_k exp(λ_k S - ψ(λ_k) Q) with ψ(λ) = -log(1 - λ) - λ: the evidence that M is above 0.

    While M is not above 0, it ever reaches e with a probability of at most 1 / e.  Equation 3.6.
    """
    summed = 0.0
    for k in range(COMPONENTS):
        cost = -log1p(-LAMBDAS[k]) - LAMBDAS[k]
        summed += WEIGHTS[k] * exp(LAMBDAS[k] * total - cost * squares)
    return summed


def radius(squares: float) -> float:
    """Return the S of which the evidence is ENOUGH, for Q = `squares`.

    By Newton's method from above: the logarithm of the evidence increases with S, and is convex.
    """
    costs = _COSTS * squares
    bound = float(((math.log(ENOUGH) - _LOG_WEIGHTS + costs) / LAMBDAS).min())  # by the best λ alone
    while True:
        exponents = _LOG_WEIGHTS + LAMBDAS * bound - costs
        highest = float(exponents.max())
        terms = np.exp(exponents - highest)
        step = (highest + math.log(terms.sum() / ENOUGH)) * terms.sum() / (terms @ LAMBDAS)
        if step <= _PRECISION * bound:
            return bound
        bound -= float(step)
