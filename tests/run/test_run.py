"""Plans, runs and records: what is planned, that draws do not depend on how a run is cut into
blocks, and how it ends early.
"""

import json
import os
import signal
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dpmcmc
from dpmcmc import (
    Budget,
    BudgetExceeded,
    Curator,
    Federation,
    Finding,
    Neighbours,
    RunFailed,
    Sampler,
    accept_walk,
    findings,
    load,
    penalty,
    random_walk,
    sample,
    sgld,
)
from dpmcmc.accounting import statement as statements
from dpmcmc.curator import account as accounts
from dpmcmc.curator.grants import Grant, granted_of
from dpmcmc.curator.noise import stream
from dpmcmc.curator.programs.program import Traced
from dpmcmc.queries import Gradient, LogRatio
from dpmcmc.results import arviz as posteriors
from dpmcmc.results import files
from dpmcmc.run import execute, interrupts
from dpmcmc.run import plan as plans
from dpmcmc.run.progress import Progress
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")


def found_text(posterior):
    """All that was found about a run."""
    return " ".join(finding.text for finding in findings(posterior))


def bill(posterior):
    """How often each query was asked, as the saved ledger says."""
    ledger = json.loads(posterior.attrs["dpmcmc_ledger"])
    return {entry["query"]: entry["count"] for entry in ledger["entries"]}


# -- how many steps -------------------------------------------------------------------------------


def test_the_bill_is_chains_times_steps():
    """Of other numbers of chains: samplers/test_plan."""
    posterior = tiny.run()
    assert tiny.means(posterior).shape == (2, 12)
    assert bill(posterior) == {repr(tiny.RATIO): 12 * 2}


def test_without_num_steps_the_budget_is_used_to_the_last_step():
    curator = tiny.make_curator()
    most = curator.max_steps({}, {tiny.RATIO: 2})
    posterior = tiny.run(curator, num_steps=None)
    assert tiny.means(posterior).shape == (2, most)
    assert bill(posterior) == {repr(tiny.RATIO): 2 * most}
    with pytest.raises(BudgetExceeded, match="the budget is epsilon=1: ask for fewer steps"):
        tiny.make_curator().grant({tiny.RATIO: 2 * most + 2})


def test_thinned_chains_take_the_steps_that_fill_a_draw_and_no_more():
    curator = tiny.make_curator()
    thin = curator.max_steps({}, {tiny.RATIO: 2}) - 1
    posterior = tiny.run(curator, num_steps=None, thin=thin)  # one step would be left
    assert tiny.means(posterior).shape == (2, 1) and bill(posterior) == {repr(tiny.RATIO): 2 * thin}


def test_chains_share_the_budget():
    curator = tiny.make_curator()
    alone = curator.max_steps({}, {tiny.BIT: 1})
    assert curator.max_steps({}, {tiny.BIT: 4}) == alone // 4


def test_what_the_start_asks_is_on_the_bill():
    def init(rng_key, position, ask):
        ask(rng_key, tiny.RATIO, position, position + 1)
        return tiny.PENALTY.init(rng_key, position, ask)

    posterior = tiny.run(sampler=Sampler(init, tiny.PENALTY.step))
    assert bill(posterior) == {repr(tiny.RATIO): 12 * 2 + 2}
    curator = tiny.make_curator()
    alone = curator.max_steps({}, {tiny.RATIO: 1})
    assert curator.max_steps({tiny.RATIO: alone - 5}, {tiny.RATIO: 2}) == 2


# -- which draws ----------------------------------------------------------------------------------


@pytest.fixture
def one_secret(monkeypatch):
    """Every block has a secret of its own; with one for all, draws can be compared across other
    blocks.
    """
    monkeypatch.setattr(stream, "secret_of", lambda secret, run: secret)


@pytest.mark.parametrize("num_blocks", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_the_draws_do_not_depend_on_the_blocks(num_blocks, one_secret, monkeypatch):
    expected = tiny.means(tiny.run())
    monkeypatch.setattr(plans, "NUM_BLOCKS", num_blocks)
    assert len(np.unique(expected)) > 4
    np.testing.assert_array_equal(tiny.means(tiny.run()), expected)


@pytest.mark.parametrize("thin", [1, 3])
@pytest.mark.parametrize("num_draws", [1, 2, 19, 20, 21, 39, 40, 41, 997, 20_000])
def test_blocks_fill_the_run(num_draws, thin):
    sizes = plans._block_sizes(num_draws * thin, thin)
    assert sum(sizes) == num_draws * thin
    # Two programs to compile at most
    assert len(set(sizes)) <= 2 and len(sizes) <= 2 * plans.NUM_BLOCKS + 1
    assert all(size % thin == 0 and size > 0 for size in sizes)


class Uniform(NamedTuple):
    position: jax.Array


def test_every_step_of_every_chain_has_its_own_key():
    def step(rng_key, state, ask):
        return Uniform(jax.random.uniform(rng_key, (1,))), ()

    posterior = tiny.run(
        sampler=Sampler(lambda rng_key, position, ask: Uniform(position), step), num_chains=3
    )
    keys = jax.random.split(jax.random.key(0), 3)
    expected = [
        [float(jax.random.uniform(jax.random.fold_in(key, step), (1,))[0]) for step in range(12)]
        for key in keys
    ]
    np.testing.assert_allclose(tiny.means(posterior), expected, rtol=1e-6)
    assert "sample_stats" not in posterior.groups()
    assert bill(posterior) == {}


class Drawn(NamedTuple):
    position: Any
    numbers: Any  # of the start, and of the chain's first state


def test_the_start_the_first_states_and_the_steps_have_keys_of_their_own():
    """With one key for two of them, what they draw would be the same numbers."""

    def draw(rng_key):
        return jax.random.uniform(rng_key, (1,))

    def step(rng_key, state, ask):
        return state._replace(position=draw(rng_key)), {"numbers": state.numbers}

    sampler = Sampler(
        lambda rng_key, position, ask: Drawn(position, jnp.stack([position, draw(rng_key)])), step
    )
    start = lambda rng_key, position, ask: Uniform(draw(rng_key))  # noqa: E731
    options = {"num_steps": 12, "num_chains": 2, "warmup": 0.0, "progress": False, "start": start}
    posterior = sample(jax.random.key(0), sampler, tiny.make_curator(), tiny.START, **options)
    from_start, from_init = np.moveaxis(
        np.asarray(posterior.sample_stats["numbers"])[:, 0, :, 0], 1, 0
    )
    assert from_start[0] == from_start[1]
    numbers = [from_start[0], *from_init, *tiny.means(posterior).ravel()]
    assert len(set(np.float32(numbers))) == 1 + 2 + 24


def test_thinning_keeps_every_third_step_and_pays_for_all(one_secret):
    thinned = tiny.run(thin=3)
    np.testing.assert_array_equal(tiny.means(thinned), tiny.means(tiny.run())[:, 2::3])
    assert bill(thinned) == {repr(tiny.RATIO): 24}
    assert thinned.attrs["thinning"] == 3


def test_warmup_is_kept_apart():
    everything = tiny.means(tiny.run())
    posterior = tiny.run(warmup=0.25)
    np.testing.assert_array_equal(posterior.warmup_posterior["mean"], everything[:, :3])
    np.testing.assert_array_equal(posterior.posterior["mean"], everything[:, 3:])
    assert posterior.warmup_sample_stats["acceptance"].shape == (2, 3)
    assert "warmup_posterior" not in tiny.run().groups()


def test_chains_may_start_apart():
    start = np.array([[5.0], [-5.0]], np.float32)
    first = tiny.means(tiny.run(start=start, num_steps=1))[:, 0]
    assert first[0] > 3 and first[1] < -3


# -- how it ends early ----------------------------------------------------------------------------


def stop_at_block(monkeypatch, number, error):
    """Let the given error strike while the progress of a block is shown."""
    advance, calls = Progress.advance, []

    def strike(self, num_steps, info):
        calls.append(num_steps)
        advance(self, num_steps, info)
        if len(calls) == number:
            raise error

    monkeypatch.setattr(Progress, "advance", strike)


def test_an_interrupt_returns_the_finished_draws(monkeypatch, capsys):
    expected = tiny.means(tiny.run())[:, :3]
    stop_at_block(monkeypatch, 3, KeyboardInterrupt())
    curator = tiny.make_curator()
    posterior = tiny.run(curator, progress=True)
    note = "interrupted after 3 of 12 steps; the grant is spent in full"
    np.testing.assert_array_equal(tiny.means(posterior), expected)
    assert note in found_text(posterior) and note in capsys.readouterr().err
    assert bill(posterior) == {repr(tiny.RATIO): 24}
    with pytest.raises(BudgetExceeded, match="has given its one grant and is closed"):
        tiny.run(curator)


def test_the_warm_up_is_a_share_of_the_draws_there_are(monkeypatch):
    """A share of those that were planned would take them all, and leave a posterior of none."""
    stop_at_block(monkeypatch, 4, KeyboardInterrupt())
    posterior = tiny.run(warmup=0.5)
    assert tiny.means(posterior).shape == posterior.warmup_posterior["mean"].shape == (2, 2)


def test_all_draws_are_looked_at_for_where_rows_count_for_nothing():
    """Those of the first block, too."""

    def step(rng_key, state, ask):
        return Uniform(jnp.abs(state.position) + 1.0), ()

    curator = tiny.make_curator(
        model=tiny.MODEL._replace(
            log_likelihood=lambda position, row: jnp.sqrt(position[0] - 1.5) + 0 * row
        )
    )
    posterior = tiny.run(curator, Sampler(lambda rng_key, position, ask: Uniform(position), step))
    assert (
        "At 8% of all positions, warm-up included, the log-likelihood of a made-up row"
        in found_text(posterior)
    )


def run_through(**options):
    """A run whose interrupt must not come through: it would end the tests."""
    try:
        return tiny.run(**options)
    except KeyboardInterrupt:
        pytest.fail("the interrupt came through")


MOMENTS = {  # where the first block is, or the run is finished -> how many steps are kept
    "a block runs": (Grant, "run", 1),
    "draws are kept": (execute.Execution, "_keep", 1),
    "progress is shown": (Progress, "advance", 1),
    "the file is written": (execute.Execution, "_save", 2),
    "the posterior is made": (execute.Execution, "record", 2),
}


@pytest.fixture
def python_interrupts():
    """Python's own handler: a process that was started in the background has none, and ignores
    Ctrl-C.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("when", MOMENTS)
def test_an_interrupt_at_any_moment_loses_no_draw(when, monkeypatch, tmp_path, python_interrupts):
    owner, name, num_kept = MOMENTS[when]
    method = getattr(owner, name)

    def strike(self, *arguments):
        signal.raise_signal(signal.SIGINT)  # more than once: people are impatient
        result = method(self, *arguments)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(owner, name, strike)
    posterior = run_through(path=tmp_path / "posterior.nc")
    note = f"interrupted after {num_kept} of 12 steps"
    assert (
        tiny.means(posterior).shape
        == tiny.means(load(tmp_path / "posterior.nc")).shape
        == (2, num_kept)
    )
    assert note in found_text(posterior) and note in found_text(load(tmp_path / "posterior.nc"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_the_program_is_compiled_spends_nothing(monkeypatch, python_interrupts):
    curator, compile_it = tiny.make_curator(), Traced.compile
    monkeypatch.setattr(
        Traced,
        "compile",
        lambda self, **_: (signal.raise_signal(signal.SIGINT), compile_it(self))[1],
    )
    with pytest.raises(KeyboardInterrupt):
        tiny.run(curator)
    assert curator._account.ledger.grants == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_after_the_last_step_changes_nothing(monkeypatch, python_interrupts):
    whole, make = tiny.means(tiny.run()), execute.Execution.record
    monkeypatch.setattr(
        execute.Execution,
        "record",
        lambda self, *notes: (signal.raise_signal(signal.SIGINT), make(self, *notes))[1],
    )
    posterior = run_through()
    np.testing.assert_array_equal(tiny.means(posterior), whole)
    assert "interrupted" not in found_text(posterior)


def test_an_interrupt_that_others_handle_is_left_to_them(monkeypatch, tmp_path, python_interrupts):
    """Theirs may raise: then the draws are handed over."""
    signal.signal(signal.SIGINT, lambda number, frame: signal.default_int_handler(number, frame))
    monkeypatch.setattr(
        execute.Execution, "_save", lambda self, result: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(
        RunFailed, match=r"could not be written .*; they are in \.posterior"
    ) as caught:
        run_through(num_steps=1, path=tmp_path / "posterior.nc")
    assert tiny.means(caught.value.posterior).shape == (2, 1)


def test_a_run_in_another_thread_leaves_interrupts_alone():
    """Python lets no other thread than the main one hold them: the run would end before it
    began."""
    with ThreadPoolExecutor(1) as pool:
        assert tiny.means(pool.submit(tiny.run, num_steps=1).result()).shape == (2, 1)


def test_an_interrupt_before_the_first_draw_says_that_the_grant_is_spent(monkeypatch, capsys):
    def strike(self, executable, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Grant, "run", strike)
    curator = tiny.make_curator()
    with pytest.raises(KeyboardInterrupt):
        tiny.run(curator, progress=True)
    assert "interrupted after 0 of 12 steps; the grant is spent in full" in capsys.readouterr().err
    assert len(curator._account.ledger.grants) == 1


def test_a_crash_hands_over_the_finished_draws(monkeypatch):
    expected = tiny.means(tiny.run())[:, :2]
    stop_at_block(monkeypatch, 2, OSError("disk"))
    told = (
        r"broke off after 2 of 12 steps; the grant is spent in full\. Its draws are in \.posterior"
    )
    with pytest.raises(RunFailed, match=told) as caught:
        tiny.run()
    np.testing.assert_array_equal(tiny.means(caught.value.posterior), expected)
    assert "broke off after 2 of 12" in found_text(caught.value.posterior)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_crash_writes_the_finished_draws_where_it_can(is_full, monkeypatch, tmp_path):
    """Those of the last block, too; and a disk that is full as well takes none of them from the
    error.
    """
    path, write = tmp_path / "posterior.nc", os.replace
    stop_at_block(monkeypatch, 2, OSError("disk"))
    monkeypatch.setattr("dpmcmc.run.execute.time.monotonic", lambda: 0.0)

    def replace(draft, to):
        if is_full:
            raise OSError("no space left")
        write(draft, to)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(
        RunFailed, match=r"broke off after 2 of 12 steps; .* Its draws are in \.posterior"
    ) as caught:
        tiny.run(path=path)
    assert tiny.means(caught.value.posterior).shape == (2, 2)
    if not is_full:
        np.testing.assert_array_equal(tiny.means(load(path)), tiny.means(caught.value.posterior))
        assert "broke off after 2 of 12 steps" in found_text(load(path))


def test_a_crash_before_the_first_draw_says_that_the_grant_is_spent(monkeypatch):
    def strike(self, executable, *arguments):
        raise MemoryError

    monkeypatch.setattr(Grant, "run", strike)
    words = r"broke off after 0 of 12 steps; the grant is spent in full\. There are no draws"
    with pytest.raises(RunFailed, match=words) as caught:
        tiny.run()
    assert caught.value.posterior is None


class Killed(BaseException):
    """Nothing handles this one, as nothing handles a kill."""


def test_the_file_survives_a_kill(monkeypatch, tmp_path):
    whole = tiny.means(tiny.run(path=tmp_path / "whole.nc"))
    np.testing.assert_array_equal(tiny.means(load(tmp_path / "whole.nc")), whole)
    assert "unfinished" not in found_text(load(tmp_path / "whole.nc"))
    stop_at_block(monkeypatch, 5, Killed())
    monkeypatch.setattr("dpmcmc.run.execute.time.monotonic", lambda: 0.0)  # saving takes no time
    with pytest.raises(Killed):
        tiny.run(path=tmp_path / "killed.nc")
    saved = load(tmp_path / "killed.nc")
    np.testing.assert_array_equal(tiny.means(saved), whole[:, :4])
    assert "unfinished after 4 of 12 steps; the grant is spent in full" in found_text(saved)


def test_saving_takes_at_most_half_of_the_time(monkeypatch, tmp_path):
    """Blocks of a second each, and ten seconds for the file: after the first block, ten blocks
    later each time, and at the end.
    """
    clock, saves, save, run = [0.0], [], files.save, Grant.run

    def slow_save(result, path):
        saves.append(clock[0])
        clock[0] += 10
        return save(result, path)

    def slow_run(*arguments):
        clock[0] += 1
        return run(*arguments)

    monkeypatch.setattr("dpmcmc.run.execute.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(files, "save", slow_save)
    monkeypatch.setattr(Grant, "run", slow_run)
    tiny.run(path=tmp_path / "posterior.nc", num_steps=24)
    assert saves == [2.0, 22.0, 42.0, 55.0]


def test_draws_that_cannot_be_written_are_handed_over(monkeypatch, tmp_path):
    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RunFailed, match=r"in \.posterior") as caught:
        tiny.run(path=tmp_path / "posterior.nc", num_steps=1)
    assert tiny.means(caught.value.posterior).shape == (2, 1)


def test_a_full_disk_on_the_way_ends_no_run(monkeypatch, tmp_path, caplog):
    save, calls = execute.Execution._save, []

    def fail(self, result):
        calls.append(result)
        if len(calls) < 12:
            raise OSError("no space left")
        save(self, result)

    monkeypatch.setattr(execute.Execution, "_save", fail)
    monkeypatch.setattr("dpmcmc.run.execute.time.monotonic", lambda: 0.0)
    whole = tiny.means(tiny.run(path=tmp_path / "posterior.nc"))
    assert len(calls) == 12
    np.testing.assert_array_equal(tiny.means(load(tmp_path / "posterior.nc")), whole)
    assert (
        caplog.text.count("could not be written to") == 1
        and "(OSError: no space left); the run goes on" in caplog.text
    )


def test_an_empty_file_is_told_from_a_posterior(tmp_path):
    """As a kill before the first block leaves it behind: nothing in it was paid for."""
    path, curator = tmp_path / "posterior.nc", tiny.make_curator()
    path.touch()
    with pytest.raises(
        ValueError,
        match="is empty: a run is writing to it, or was killed .*: remove the file, or name "
        "another",
    ):
        tiny.run(curator, path=path)
    assert curator.num_grants == 0
    with pytest.raises(ValueError, match="is empty: a run is writing to it, or was killed"):
        load(path)


def test_texts_are_in_the_file_from_its_first_block_on(monkeypatch, tmp_path):
    """They were added at the end: whoever killed a run had draws without units."""
    path = tmp_path / "posterior.nc"
    killed = types.SimpleNamespace(to_arviz=lambda: None)  # as if before it was finished
    monkeypatch.setattr(execute.Execution, "_finish", lambda self, *_: killed)
    monkeypatch.setattr("dpmcmc.run.execute.time.monotonic", lambda: 0.0)
    tiny.run(
        path=path,
        units={"mean": "days since the visit"},
        attributes={"plan": "a plan", "epsilon": "0"},
    )
    saved = load(path).posterior
    assert saved["mean"].attrs["unit"] == "days since the visit" and saved.attrs["plan"] == "a plan"
    assert saved.attrs["epsilon"] != "0"  # the statement has the last word


@pytest.mark.parametrize(
    "options",
    [
        {"attributes": {name: text}}
        for name, text in {"": "x", "x": "a\0b", "y": "\ud800", "_NCProperties": "x"}.items()
    ]
    + [{"units": {"mean": "\ud800"}}, {"units": {"men": "metres"}}],
)
def test_texts_that_cannot_be_written_cost_nothing(options, tmp_path):
    """They were found out after the grant."""
    curator = tiny.make_curator()
    with pytest.raises(
        ValueError, match="cannot be written|which is no parameter: the parameters are mean"
    ):
        tiny.run(curator, path=tmp_path / "posterior.nc", **options)
    assert curator.num_grants == 0


def test_two_runs_do_not_write_to_one_file(monkeypatch, tmp_path):
    """The second began when there was no file yet: it is refused when the first has claimed it, and
    spends nothing.
    """
    path, curator, compile_it = tmp_path / "posterior.nc", tiny.make_curator(), Traced.compile
    monkeypatch.setattr(Traced, "compile", lambda self, **_: (path.touch(), compile_it(self))[1])
    with pytest.raises(
        ValueError, match="exists: another run has made it just now; name another file"
    ):
        tiny.run(curator, path=path)
    assert curator._account.ledger.grants == [] and path.exists()


@pytest.mark.parametrize("owner", [Curator, Grant])
def test_a_run_without_draws_leaves_no_file(owner, monkeypatch, tmp_path):
    def strike(self, *arguments):
        assert os.listdir(tmp_path) == ["posterior.nc"]  # it is claimed
        raise MemoryError

    monkeypatch.setattr(owner, "grant" if owner is Curator else "run", strike)
    with pytest.raises((MemoryError, RunFailed)):
        tiny.run(path=tmp_path / "posterior.nc")
    assert os.listdir(tmp_path) == []


def test_who_is_terminated_saves_the_draws_first(monkeypatch, tmp_path):
    told, advance = [], Progress.advance

    def strike(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        advance(self, *arguments)

    monkeypatch.setattr(Progress, "advance", strike)
    monkeypatch.setattr(interrupts.signal, "raise_signal", told.append)
    run_through(path=tmp_path / "posterior.nc")
    assert told == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert "interrupted after 1 of 12 steps" in found_text(load(tmp_path / "posterior.nc"))


def test_draws_that_make_no_posterior_are_no_refusal(monkeypatch):
    """A ValueError would read as if nothing had been spent."""

    def fail(self, note):
        raise ValueError

    monkeypatch.setattr(execute.Execution, "record", fail)
    with pytest.raises(
        RunFailed, match="the grant is spent, but the draws could not be made into a posterior"
    ) as caught:
        tiny.run(num_steps=1)
    assert caught.value.posterior is None


def test_a_private_start_begins_at_one_point():
    curator = tiny.make_curator()
    with pytest.raises(
        ValueError,
        match="start= begins all chains at the point it finds: give one initial_position",
    ):
        sample(
            jax.random.key(0),
            tiny.PENALTY,
            curator,
            np.zeros((2, 1)),
            num_chains=2,
            start=lambda *_: None,
        )
    assert curator._account.ledger.grants == []


# -- what does not run ----------------------------------------------------------------------------


def asks(query, num_asks):
    """A program that asks a query so many times."""

    def program(ask, key, position):
        def body(total, key):
            return total + ask(key, query, position, position + 1).value, None

        return lax.scan(body, jnp.zeros(()), jax.random.split(key, num_asks))[0]

    return program


def test_one_ask_more_than_granted_does_not_run():
    curator = tiny.make_curator()
    arguments = jax.random.key(1), tiny.START
    executables = {
        count: curator.trace(asks(tiny.RATIO, count), *arguments).compile() for count in (1, 4)
    }
    grant = curator.grant({tiny.RATIO: 4})
    grant.run(executables[1], *arguments)
    with pytest.raises(
        BudgetExceeded, match=r"asks LogRatio\(.*\) 4 times, 3 are left of the grant"
    ):
        grant.run(executables[4], *arguments)
    for _ in range(3):
        grant.run(executables[1], *arguments)
    with pytest.raises(BudgetExceeded, match="1 times, 0 are left of the grant"):
        grant.run(executables[1], *arguments)


def test_a_query_that_was_not_granted_does_not_run():
    curator = tiny.make_curator()
    arguments = jax.random.key(1), tiny.START
    other = curator.trace(
        asks(type(tiny.RATIO)(clip=4.0, noise_multiplier=30.0), 1), *arguments
    ).compile()
    with pytest.raises(BudgetExceeded, match=r"asks LogRatio\(clip=4.0.* 1 times, 0 are left"):
        curator.grant({tiny.RATIO: 4}).run(other, *arguments)


def test_a_finished_run_leaves_nothing_of_its_grant(monkeypatch):
    grants, curator = [], tiny.make_curator()
    grant = curator.grant
    monkeypatch.setattr(curator, "grant", lambda plan: grants.append(grant(plan)) or grants[-1])
    tiny.run(curator)
    assert [set(granted_of(grant).left.values()) for grant in grants] == [{0}]


def in_a_dict(sampler):
    """A sampler of one's own, that tells what it tells in a dict."""

    def step(key, state, ask):
        state, info = sampler.step(key, state, ask)
        return state, info._asdict()

    return sampler._replace(step=step)


@pytest.mark.parametrize(
    "as_told", [lambda sampler: sampler, in_a_dict], ids=["NamedTuple", "dict"]
)
@pytest.mark.parametrize("scale, is_told", [(1e6, True), (0.01, False)])
def test_a_chain_that_does_not_move_is_told(scale, is_told, as_told, capsys):
    """R-hat says nothing of it, or that all is well."""
    sampler = as_told(accept_walk(tiny.log_prior, tiny.BIT, random_walk(scale)))
    posterior = tiny.run(sampler=sampler, curator=tiny.make_curator(budget=None), progress=True)
    assert (", 0% accepted" in capsys.readouterr().err) is is_told
    assert bool(np.any(posterior.sample_stats.acceptance)) is not is_told
    assert ("Moves were accepted at none of 24 draws" in found_text(posterior)) is is_told


@pytest.mark.parametrize("step_size, is_told", [(10.0, True), (1e-4, False)])
def test_a_gradient_with_too_much_noise_is_told(step_size, is_told, caplog):
    """In the log, too: without progress nobody might look at the findings."""
    sampler = sgld(tiny.log_prior, Gradient(1.0, 1.0), step_size)
    posterior = tiny.run(sampler=sampler, num_steps=4, curator=tiny.make_curator(budget=None))
    assert ("spread too widely" in found_text(posterior)) is is_told
    assert ("spread too widely" in caplog.text) is is_told


def test_checks_that_fail_lose_no_draws(monkeypatch):
    """Statistics of a sampler of one's own may have familiar names and mean something else."""

    def fail(*arguments):
        raise TypeError

    monkeypatch.setattr(execute.diagnostics, "of_draws", fail)
    monkeypatch.setattr("dpmcmc.results.arviz.of_chains", fail)
    result = tiny.run()
    assert tiny.means(result).shape == (2, 12)
    failed = [finding for finding in findings(result) if finding.code == "not-checked"]
    assert all("could not be checked in full (TypeError" in finding.text for finding in failed)
    # Draws that were not judged do not pass
    assert [finding.is_severe for finding in failed] == [False, True]


def test_a_step_must_return_a_state_and_info():
    for returned in (
        lambda state: state,
        lambda state: (state.position, ()),
        lambda state: (state, (), ()),
    ):
        broken = Sampler(
            tiny.BARKER.init, lambda key, state, ask, returned=returned: returned(state)
        )
        with pytest.raises(
            TypeError,
            match=r"step returned .*: (return \(state, info\)|it needs a field `position`)",
        ):
            tiny.run(sampler=broken)
    with pytest.raises(
        TypeError, match=r"init returned is a NoneType: it needs a field `position`"
    ):
        tiny.run(sampler=Sampler(lambda key, position, ask: None, tiny.BARKER.step))
    with pytest.raises(
        TypeError,
        match=r"is a function \(a function is called with what start= returns, which is missing: ",
    ):
        tiny.run(sampler=tiny.BARKER.step)


class Counting(NamedTuple):
    position: Any
    total: Any


def counting(start, change):
    """A sampler whose state has one number more."""

    def step(rng_key, state, ask):
        answer = ask(rng_key, tiny.RATIO, state.position, state.position + 0.1)
        return Counting(state.position, change(state.total, answer.value)), {"total": state.total}

    return Sampler(lambda key, position, ask: Counting(position, start), step)


@pytest.mark.parametrize(
    "start, change",
    [(0, lambda total, value: total + value), (False, lambda total, value: total | 2)],
)
def test_a_state_that_changes_its_type_is_refused_before_anything_is_spent(start, change):
    """JAX lets a plain 0 become another type in its first loop: the second block would not take
    it."""
    curator = tiny.make_curator()
    with pytest.raises(TypeError, match=r"states\.total has type"):
        tiny.run(curator, counting(start, change), num_steps=24)
    assert curator.num_grants == 0


@pytest.mark.parametrize(
    "start, change",
    [(0, lambda total, value: total + 1), (0.0, lambda total, value: total + value)],
)
def test_a_state_may_begin_with_plain_numbers(start, change):
    result = tiny.run(sampler=counting(start, change), num_steps=24)
    assert (
        result.sample_stats["total"].shape == (2, 24)
        and np.asarray(result.sample_stats["total"])[0, -1] != start
    )


def test_a_position_of_another_shape_is_refused_before_anything_is_spent():
    curator, two = (
        tiny.make_curator(),
        Sampler(
            lambda key, position, ask: Counting(jnp.stack([position] * 2), 0), tiny.PENALTY.step
        ),
    )
    with pytest.raises(
        TypeError,
        match=r"init returned has shape \(2, 1\): it must be an array of the model's shape, \(1,\)",
    ):
        tiny.run(curator, two)
    assert curator.num_grants == 0


def test_a_run_inside_a_transformation_is_refused_before_anything_is_spent():
    curator = tiny.make_curator()
    again = lambda key, start=tiny.START: sample(  # noqa: E731
        key, tiny.PENALTY, curator, start, num_steps=4, progress=False
    )
    keys = jax.random.split(jax.random.key(0), 2)
    for call in (
        lambda: jax.vmap(again)(keys),
        lambda: jax.jit(lambda: again(keys[0]))(),
        lambda: jax.vmap(lambda start: again(keys[0], start))(jnp.zeros((2, 1))),
    ):
        with pytest.raises(
            TypeError, match="sample was called inside jit, vmap or another transformation"
        ):
            call()
    with pytest.raises(
        TypeError, match="rows were given inside jit, vmap or another transformation"
    ):
        jax.vmap(lambda rows: Curator(rows, tiny.MODEL, None))(jnp.zeros((2, 40)))
    assert curator.num_grants == 0


def test_a_start_must_return_a_state():
    for found, words in (
        (
            lambda point: point,
            "the state that start returned is an array: it needs a field `position`",
        ),
        (
            lambda point: Counting(point[0], 0),
            r"start returned has shape \(\): it must be an array of the model's shape, \(1,\)",
        ),
        (lambda point: Counting([point], 0), "start returned is a list: it must be an array"),
    ):
        with pytest.raises(TypeError, match=words):
            sample(
                jax.random.key(0), tiny.PENALTY, tiny.make_curator(), tiny.START, num_steps=4,
                start=lambda key, point, ask, found=found: found(point),
            )  # fmt: skip


def test_a_part_of_epsilon_that_buys_no_draw_is_told():
    coarse = penalty(tiny.log_prior, LogRatio(clip=0.01, noise_multiplier=7.0), tiny.WALK)
    result = tiny.run(tiny.make_curator(fixed_secret=None), coarse, num_steps=None)
    assert "of 1, and no further draw fits" in found_text(result)
    assert "no further draw fits" not in found_text(
        tiny.run(tiny.make_curator(fixed_secret=None), coarse, num_steps=1)
    )
    assert "no further draw fits" not in found_text(
        tiny.run(tiny.make_curator(fixed_secret=None), num_steps=None)
    )


def test_an_if_on_an_answer_is_refused_with_the_way_out():
    def step(rng_key, state, ask):
        answer = ask(rng_key, tiny.BIT, state.position, state.position + 1.0, jnp.float32(0.0))
        return state, "accepted" if answer.value else "rejected"

    with pytest.raises(TypeError, match=r"jnp\.where or jax\.lax\.cond"):
        tiny.run(sampler=Sampler(tiny.BARKER.init, step))


# -- plans and records


def make_plan(curator, **options):
    options = {"num_steps": 12, "num_chains": 2, "warmup": 0.0} | options
    return dpmcmc.plan(jax.random.key(0), tiny.PENALTY, curator, tiny.START, **options)


def test_a_plan_spends_nothing_and_says_what_the_run_promises():
    curator = tiny.make_curator(fixed_secret=None)
    planned = make_plan(curator)
    assert curator.num_grants == 0 and planned.num_steps == 12
    assert [(entry.query, entry.count) for entry in planned.bill] == [(repr(tiny.RATIO), 24)]
    record = planned.run(progress=False)
    assert curator.num_grants == 1 and record.statement.epsilon == planned.epsilon
    assert str(planned.statement) in str(planned) and "nothing is spent yet" in str(planned)
    # The statement of the run has one more note: what was declared of the rows
    assert planned.statement.bill == record.statement.bill


def test_plans_and_records_are_json(tmp_path):
    planned = make_plan(tiny.make_curator(fixed_secret=None), attributes={"place": "north"})
    assert json.loads(json.dumps(planned.to_json()))["num_steps"] == 12
    record = planned.run(progress=False)
    document = json.loads(json.dumps(record.to_json()))
    assert statements.from_json(document["statement"]) == record.statement
    assert [Finding.from_json(each) for each in document["findings"]] == list(record.findings)
    assert document["attributes"] == {"place": "north"}
    record.save(tmp_path / "posterior.nc")
    record.report(tmp_path / "posterior.html")
    assert findings(load(tmp_path / "posterior.nc")) == list(record.findings)
    assert record.summary() == dpmcmc.summary(record.to_arviz())
    assert record.is_reliable is not any(each.is_severe for each in record.findings)


def test_a_run_of_a_plan_has_the_draws_of_sample():
    record = make_plan(tiny.make_curator()).run(progress=False)
    whole = tiny.run(tiny.make_curator(), num_steps=12, num_chains=2)
    np.testing.assert_array_equal(tiny.means(record.to_arviz()), tiny.means(whole))


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_run_makes_its_bill_once(monkeypatch, is_shared):
    """From the plan to what the ledger keeps it is one value."""
    made = []
    entries = accounts.entries
    monkeypatch.setattr(accounts, "entries", lambda *given: made.append(given) or entries(*given))
    curator = tiny.make_curator(shared_by="gaussian-dp" if is_shared else None)
    tiny.run(curator, num_steps=12)
    assert len(made) == 1


def test_convergence_is_judged_once_for_a_record(monkeypatch):
    judged = []
    of_chains = posteriors.of_chains
    monkeypatch.setattr(
        posteriors, "of_chains", lambda *given: judged.append(given) or of_chains(*given)
    )
    record = make_plan(tiny.make_curator()).run(progress=False)
    record.findings, record.to_json(), record.to_arviz(), record.summary()
    assert len(judged) == 1


def test_facts_are_public_and_json():
    curator = tiny.make_curator(fixed_secret=None)
    facts = curator.facts
    assert (facts.dimension, facts.num_rows, facts.share_left) == (1, 40, 1.0)
    make_plan(curator).run(progress=False)
    assert facts.share_left == 1.0 and curator.facts.share_left == 0.0
    assert json.loads(json.dumps(facts.to_json()))["budget"] == [1.0, 1e-6]
    private = Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
    hidden = tiny.make_curator(budget=private, capacity=64)
    assert hidden.facts.num_rows is None
    assert "40" not in json.dumps(hidden.facts.to_json())
    assert Federation({"north": hidden}).facts == {"north": hidden.facts}
