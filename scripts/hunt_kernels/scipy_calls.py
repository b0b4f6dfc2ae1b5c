"""scipy.special and scipy.linalg."""

import scipy.special as sp

BACKEND = "numpy"


def softmax(x):
    return sp.softmax(x, axis=1)


def logsumexp(x):
    return sp.logsumexp(x, axis=1)


def erf(x):
    return sp.erf(x)


def cbrt(x):
    return sp.cbrt(x)
