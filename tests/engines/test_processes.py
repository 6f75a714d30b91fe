"""Two processes that `jax.distributed` has joined: the bits of one, and what is refused."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines
ROOT = Path(__file__).parents[2]


def found_by(number_of_all):
    """What each of so many processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.engines.process"]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    started = [
        subprocess.Popen(
            [*command, str(number), str(number_of_all), str(port)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(number_of_all)
    ]
    try:
        return [json.loads(each.communicate(timeout=280)[0].splitlines()[-1]) for each in started]
    finally:
        for each in started:
            each.kill()


@pytest.fixture(scope="module")
def two():
    return found_by(2)


@pytest.fixture(scope="module")
def one():
    return found_by(1)[0]


@pytest.mark.parametrize("name", ["answers", "private number", "draws"])
def test_the_bits_are_those_of_one_process(one, two, name):
    assert [found[name] for found in two] == [one[name]] * 2


def test_all_processes_have_one_secret(one, two):
    """Else one bill would buy two answers, as in the twin with a secret in each process."""
    assert two[0]["secret"] == two[1]["secret"] != one["secret"]
    assert two[0]["twin"] != two[1]["twin"]


def test_a_grant_that_one_process_refuses_is_refused_in_all(two):
    assert all("a grant is given out in all processes or in none" in each["plans"] for each in two)
    assert "a grant is given out in all processes or in none" in two[0]["withdrawn"]
    assert "the rows were withdrawn" in two[1]["withdrawn"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("parts", "the processes were given different rows"),
        ("ledger", "ledger= is for one process"),
        ("some devices", "devices of other processes, and not all of them"),
    ],
)
def test_what_is_refused(two, name, reason):
    assert all(reason in found[name] for found in two)


def test_the_statement_says_who_sees_sums_without_noise(two):
    for found in two:
        (line,) = found["statement"]
        assert "seen by these 2 processes, whose connections are not encrypted" in line
