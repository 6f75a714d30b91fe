"""Every model, with rows that it allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist

from dpmcmc import models
from dpmcmc.types import Model

LIMITS = {"radius": 1.5, "response_bound": 4.0, "position_radius": 3.0}


class Case(NamedTuple):
    """A model, and a function that makes rows within its declared limits."""

    of: Callable[..., Model]  # the public function that it is a case of
    model: Model
    make_rows: Callable[[np.random.Generator, int], Any]

    def __str__(self) -> str:
        return self.of.__name__


def _features(generator, number):
    x = generator.normal(size=(number, 2))
    return x * 1.5 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.5)


def _points(generator, number):
    x = generator.normal(size=(number, 2))
    return x * 3.0 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 3.0)


def _real_responses(generator, number):
    return _features(generator, number), generator.uniform(-4, 4, number)


def _counts(generator, number):
    return _features(generator, number), generator.integers(0, 5, number).astype(float)


def _labels(generator, number):
    return _features(generator, number), generator.integers(0, 2, number).astype(float)


def _normal(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


ALL = [
    Case(models.gaussian, models.gaussian([[1.0, 0.6], [0.6, 2.0]], radius=3.0), _points),
    Case(models.banana, models.banana([1.0, 2.0], 0.5), _points),
    Case(
        models.circle,
        models.circle(0.1, radius=3.0),
        lambda generator, number: generator.uniform(0, 3, number),
    ),
    Case(
        models.mixture,
        models.mixture(),
        lambda generator, number: generator.uniform(-3, 3, number),
    ),
    Case(
        models.binomial,
        models.binomial(7, 2.0, 3.0),
        lambda generator, number: generator.integers(0, 8, number).astype(float),
    ),
    Case(
        models.poisson_rate,
        models.poisson_rate(9, 2.0, 0.5),
        lambda generator, number: generator.integers(0, 10, number).astype(float),
    ),
    Case(
        models.categorical,
        models.categorical(4),
        lambda generator, number: generator.integers(0, 4, number).astype(float),
    ),
    Case(models.linear, models.linear(2, 0.7, intercept=True, **LIMITS), _real_responses),
    Case(models.poisson, models.poisson(2, intercept=True, **LIMITS), _counts),
    Case(models.logistic, models.logistic(2, 1.5, intercept=True), _labels),
    Case(models.robust_linear, models.robust_linear(2, 1.5, 4.0, intercept=True), _real_responses),
    Case(
        models.from_numpyro,
        models.from_numpyro(_normal, np.zeros(5, np.float32)),
        lambda generator, number: generator.normal(size=number),
    ),
]


def public_models() -> set[Callable]:
    """Every public function that returns a `Model`."""
    members = {getattr(models, name) for name in models.__all__}
    return {
        member
        for member in members
        if inspect.isfunction(member) and inspect.signature(member).return_annotation == "Model"
    }
