"""The one door between a sampler and the rows, and the bill read off the program that goes through
it.

A program is traced where there are no rows: `asked` leaves an operation in the trace that carries
the query and stands for its answer. `count_queries` walks that trace and counts these operations,
so the bill is a fact about the program:

    scan, fori_loop with a fixed number of turns     x its length
    cond, switch                                     the maximum over the branches, query by query
    vmap                                             x its size
    jit                                              what is inside
    while_loop, anything unknown                     refused when it asks
    a standing query                                 once: its curator keeps a running sum

Then `put_answers` evaluates the very trace that was counted, with an answer in the place of each
ask. Two things follow. While user code runs there are no rows, so that nothing it keeps (in a list,
a closure or a callback) can hold any. And an ask that the walk cannot see, inside an operation that
does not show what it is made of, never gets an answer: it does not compile.

The walk also refuses a key that visibly serves two asks. Every value gets a number, equal for equal
expressions, so reuse is seen through slices and fold_ins; a loop is walked twice, so a key that
does not change from turn to turn is seen as well.

Where equal keys cannot be seen, the asks must not share their noise all the same: each ask has a
number, its place in the program, and under vmap another one, its lane; a function that jit, scan or
cond would bring to two spots of the program is refused, and so is a loop that is unrolled.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun, primitives
from jax.interpreters import ad, batching, mlir

from dpmcmc.errors import PrivacyRefusal, UnboundedQueries, UnsupportedQuery
from dpmcmc.types import Answer, Key, Plan, Position, Query, is_standing

asked_p = Primitive("asked")
NUM_LANES = 2**32
# (query, place, maps, rng_key, lane, *points) -> its answer, mapped over so many axes
Find = Callable[..., Answer]


def asked(
    rng_key: Key, query: Query, points: tuple[Position, ...], place: int, trace: Callable[..., Any]
) -> Answer:
    """Leave an operation in the trace that stands for an answer, with the shapes of trace(query,
    rng_key, lane, *points).
    """
    if not jax.dtypes.issubdtype(getattr(rng_key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(
            "ask needs a typed random key: make one with jax.random.key, not jax.random.PRNGKey"
        )
    if rng_key.shape:
        raise TypeError(
            f"ask needs one random key, not an array of shape {rng_key.shape}: ask for each under "
            "jax.vmap"
        )
    operands = rng_key, np.uint32(0), *points
    with jax.enable_x64(True):
        traced = trace(
            query, *(jax.ShapeDtypeStruct(np.shape(value), value.dtype) for value in operands)
        )
    shapes = tuple((aval.shape, aval.dtype) for aval in traced.out_avals)
    params = {"shapes": shapes, "side_effects": frozenset(traced.effects)}
    return Answer(*asked_p.bind(*operands, query=query, place=place, maps=(), **params))


def _shapes(rng_key, lane, *points, shapes, side_effects, **_):
    return [ShapedArray((*lane.shape, *shape), dtype) for shape, dtype in shapes], side_effects


def _batch(arguments, dims, *, query, maps, **params):
    """The rule for vmap: still one ask, for all lanes. `maps` remembers the axes, to map the answer
    over them when it is made.
    """
    (size,) = {
        argument.shape[dim]
        for argument, dim in zip(arguments, dims, strict=True)
        if dim is not None
    }
    if dims[0] is None and size > 1:
        raise UnboundedQueries(
            f"one key would serve {size} asks of {query} at different points: split the key with "
            "jax.random.split and map over it"
        )
    rng_key, lanes, *points = arguments
    # Of the vmaps further in: 0 ... copies - 1
    lanes = lanes[None] if dims[1] is None else jnp.moveaxis(lanes, dims[1], 0)
    copies = math.prod(lanes.shape[1:])
    if copies * size > NUM_LANES:
        raise UnboundedQueries(
            f"{query} would be asked {copies * size} times at once: at most {NUM_LANES} lanes have "
            "numbers"
        )
    # Lanes may round a row in different ways: with equal keys and points they would show the
    # difference without noise.
    lanes += copies * jnp.arange(size, dtype=lanes.dtype).reshape(
        size, *(1 for _ in lanes.shape[1:])
    )
    maps = (*maps, (dims[0], 0, *dims[2:]))
    return asked_p.bind(rng_key, lanes, *points, query=query, maps=maps, **params), [0] * len(
        Answer._fields
    )


def _refuse_at_once(*arguments, query, **_):
    raise UnboundedQueries(
        f"{query} would be asked outside the program that was traced, and so on no bill: leave "
        "jax.ensure_compile_time_eval out, "
        "and let no callback ask"
    )


def _refuse_derivative(primals, tangents, *, query, **_):
    raise UnsupportedQuery(
        f"a derivative through ask({query}) would release gradients without noise: ask for a "
        "gradient query instead"
    )


def _refuse_out_of_sight(*arguments, query, **_):
    raise UnboundedQueries(
        f"{query} is asked inside an operation that does not show what it does, and so on no bill: "
        "use scan, cond, vmap, jit, "
        "or fori_loop with a fixed number of turns"
    )


asked_p.multiple_results = True
asked_p.def_impl(_refuse_at_once)
asked_p.def_effectful_abstract_eval(_shapes)
ad.primitive_jvps[asked_p] = _refuse_derivative
batching.primitive_batchers[asked_p] = _batch
mlir.register_lowering(asked_p, _refuse_out_of_sight)


def count_queries(closed_jaxpr) -> Plan:
    """How often each query is asked when the traced program runs once.

    Refuses what has no fixed count.
    """
    counts, _ = _Walk().calls(closed_jaxpr.jaxpr, [object() for _ in closed_jaxpr.jaxpr.invars])
    # Read only: it is what the program will be billed for
    return MappingProxyType(dict(total_plan((counts, 1))))


def put_answers(closed_jaxpr, arguments: list, find: Find) -> list:
    """Evaluate a program that was counted, with what `find` returns in the place of each ask."""
    return _Answering(find).calls(closed_jaxpr, arguments)


def total_plan(*parts: tuple[Mapping[Query, int], int]) -> Plan:
    """The bill of programs that run so many times each.

    A standing query is granted once, however often it is asked.
    """
    total: Counter = Counter()
    for plan, times in parts:
        total.update({query: times * count for query, count in plan.items()})
    return {query: min(count, 1) if is_standing(query) else count for query, count in total.items()}


class _Walk:
    """One walk over a program: numbers for values, and the keys that asks have used so far."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.fresh = itertools.count()
        self.used: set[int] = set()
        self.path: tuple[int, ...] = ()
        self.paths: dict[int, tuple[int, ...]] = {}  # of the asks, by their place

    def number(self, *expression) -> int:
        return self.numbers.setdefault(expression, next(self.fresh))

    def calls(self, jaxpr, inputs: list) -> tuple[Counter, list]:
        """Count the asks of a jaxpr whose inputs have the given numbers; return the numbers of its
        outputs too.
        """
        values = dict(zip(jaxpr.invars, inputs, strict=True))
        values.update(
            {variable: self.number("constant", id(variable)) for variable in jaxpr.constvars}
        )

        def read(atom):
            return (
                self.number("literal", str(atom.aval), str(atom.val))
                if isinstance(atom, Literal)
                else values[atom]
            )

        total: Counter = Counter()
        outside = self.path
        for index, equation in enumerate(jaxpr.eqns):
            self.path = (*outside, index)
            counts, outputs = self.equation(equation, [read(atom) for atom in equation.invars])
            total += counts
            values.update(zip(equation.outvars, outputs, strict=True))
        self.path = outside
        return total, [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation, inputs: list) -> tuple[Counter, list]:
        if equation.primitive is asked_p:
            return self.asked(equation, inputs)
        if not _asks_inside(equation):
            expression = (equation.primitive.name, _frozen(equation.params), *inputs)
            return Counter(), [
                self.number(*expression, index) for index, _ in enumerate(equation.outvars)
            ]
        if equation.primitive not in _RULES:
            raise UnboundedQueries(
                f"queries inside `{equation.primitive.name}` cannot be counted: use scan, cond, "
                "vmap, jit, "
                "or fori_loop with a fixed number of turns"
            )
        return getattr(self, _RULES[equation.primitive])(equation, inputs)

    def asked(self, equation, inputs: list) -> tuple[Counter, list]:
        query = equation.params["query"]
        key = inputs[0]
        if key in self.used:
            raise UnboundedQueries(
                f"a random key is used for two asks, the second of {query}: split it with "
                "jax.random.split"
            )
        self.used.add(key)
        if self.paths.setdefault(equation.params["place"], self.path) != self.path:
            raise UnboundedQueries(
                f"one function that asks {query} is used twice by jit, scan or cond (or JAX kept "
                "it from an earlier trace), and "
                "the two might share their noise: give each use a function of its own, such as a "
                "lambda around it (and leave jit "
                "out: the whole run is compiled)"
            )
        return Counter({query: math.prod(equation.invars[1].aval.shape)}), self.fresh_numbers(
            equation
        )

    def jit(self, equation, inputs: list) -> tuple[Counter, list]:
        return self.calls(_open(equation.params["jaxpr"]), inputs)

    def scan(self, equation, inputs: list) -> tuple[Counter, list]:
        if equation.params.get("unroll", 1) not in (1, False):
            raise UnboundedQueries(
                "queries inside a loop with unroll= might share their noise: its turns are "
                "compiled one by one, and rows may round "
                "to other numbers in each; leave unroll out"
            )
        jaxpr = _open(equation.params["jaxpr"])
        length = equation.params["length"]
        consts, carry, slices = _scan_parts(equation, inputs)
        counts: Counter = Counter()
        for _ in range(min(length, 2)):
            counts, outputs = self.calls(
                jaxpr, consts + carry + [self.number(object()) for _ in slices]
            )
            carry = outputs[: len(carry)]
        return Counter(
            {query: length * count for query, count in counts.items()}
        ), self.fresh_numbers(equation)

    def cond(self, equation, inputs: list) -> tuple[Counter, list]:
        before = set(self.used)
        after = set(self.used)
        total: Counter = Counter()
        outside = self.path
        for index, branch in enumerate(equation.params["branches"]):
            self.used = set(before)
            self.path = (*outside, index)
            counts, _ = self.calls(_open(branch), inputs[1:])
            total |= counts
            after |= self.used
        self.used = after
        self.path = outside
        return total, self.fresh_numbers(equation)

    def fresh_numbers(self, equation) -> list:
        """For what an equation returns: equal to no other."""
        return [self.number(object()) for _ in equation.outvars]


@dataclass(frozen=True)
class _Answering:
    """Evaluates a program that was counted, with answers in the place of its asks.

    A jit, scan or cond with asks inside is built again around the answers, and loses hints to the
    compiler such as shardings. Every other operation is taken over as it is.
    """

    find: Find

    def calls(self, closed_jaxpr, inputs: list) -> list:
        jaxpr = closed_jaxpr.jaxpr
        values = dict(zip(jaxpr.constvars, closed_jaxpr.consts, strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom):
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            outputs = self.equation(
                equation, [read(atom) for atom in equation.invars], jaxpr.debug_info
            )
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation, inputs: list, debug_info) -> list:
        if equation.primitive is asked_p:
            return self.asked(equation, inputs)
        if _asks_inside(equation):
            return getattr(self, _RULES[equation.primitive])(equation, inputs)
        return _by_itself(equation, inputs, debug_info)

    def asked(self, equation, inputs: list) -> list:
        query, place, maps = (equation.params[name] for name in ("query", "place", "maps"))
        found = list(self.find(query, place, maps, *inputs))
        shapes = [(variable.aval.shape, variable.aval.dtype) for variable in equation.outvars]
        if [(value.shape, value.dtype) for value in found] != shapes:
            raise PrivacyRefusal(
                f"an answer to {query} is not as it was traced: leave the program as JAX has it"
            )
        return found

    def jit(self, equation, inputs: list) -> list:
        return self.calls(equation.params["jaxpr"], inputs)

    def scan(self, equation, inputs: list) -> list:
        consts, start, slices = _scan_parts(equation, inputs)

        def turn(carry, slices):
            outputs = self.calls(equation.params["jaxpr"], consts + carry + slices)
            return outputs[: len(carry)], outputs[len(carry) :]

        carry, stacked = lax.scan(
            turn, start, slices, equation.params["length"], equation.params["reverse"]
        )
        return carry + stacked

    def cond(self, equation, inputs: list) -> list:
        branches = [
            functools.partial(self.branch, branch) for branch in equation.params["branches"]
        ]
        platforms = equation.params.get("branches_platforms")
        if platforms is None:
            return lax.switch(inputs[0], branches, *inputs[1:])
        named = {
            name: branch
            for names, branch in zip(platforms, branches, strict=True)
            for name in names or ("default",)
        }
        return lax.platform_dependent(*inputs[1:], **named)

    def branch(self, closed_jaxpr, *inputs) -> list:
        return self.calls(closed_jaxpr, list(inputs))


# What may ask inside, and how both walks call it. By JAX's own operations: another one may have
# their names.
_RULES = {primitives.jit_p: "jit", primitives.scan_p: "scan", primitives.cond_p: "cond"}


def _by_itself(equation, inputs: list, debug_info) -> list:
    """What one equation returns, as a program of its own: versions of JAX differ in how they
    evaluate an equation alone.

    `debug_info` tells where the program around it was written.
    """
    atoms = [
        (atom, value)
        for atom, value in zip(equation.invars, inputs, strict=True)
        if not isinstance(atom, Literal)
    ]
    unnamed = debug_info._replace(arg_names=None, result_paths=None)
    jaxpr = Jaxpr(
        [], [atom for atom, _ in atoms], equation.outvars, [equation], equation.effects, unnamed
    )
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*(value for _, value in atoms))


def _scan_parts(equation, inputs: list) -> tuple[list, list, list]:
    """What a loop is given: the same for every turn, carried on, and sliced, whose rank inside is
    one less.

    No two versions of JAX name them alike.
    """
    jaxpr = _open(equation.params["jaxpr"])
    num_carry = sum(
        out.aval.ndim == inner.aval.ndim
        for out, inner in zip(equation.outvars, jaxpr.outvars, strict=True)
    )
    num_slices = sum(
        given.aval.ndim != inner.aval.ndim
        for given, inner in zip(equation.invars, jaxpr.invars, strict=True)
    )
    first = len(inputs) - num_carry - num_slices
    return inputs[:first], inputs[first : first + num_carry], inputs[first + num_carry :]


def _open(jaxpr):
    return getattr(jaxpr, "jaxpr", jaxpr)


def inner_jaxprs(equation):
    """The programs within an equation, such as the body of a loop."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(_open(item), "eqns"):
                yield _open(item)


def _asks_inside(equation) -> bool:
    return any(
        _contains(jaxpr, lambda equation: equation.primitive is asked_p)
        for jaxpr in inner_jaxprs(equation)
    )


@dataclass(frozen=True)
class OwnCallback:
    """A callback of the curator's own: it is given nothing that depends on rows."""

    function: Callable[..., Any]

    def __call__(self, *arguments):
        return self.function(*arguments)


def speaks(jaxpr) -> bool:
    """Whether a traced function prints, or calls back to Python."""
    return _contains(jaxpr, _is_heard)


def _contains(jaxpr, is_it: Callable[[Any], bool]) -> bool:
    return any(
        is_it(equation) or any(_contains(inner, is_it) for inner in inner_jaxprs(equation))
        for equation in jaxpr.eqns
    )


def _is_heard(equation) -> bool:
    if isinstance(getattr(equation.params.get("callback"), "callback_func", None), OwnCallback):
        return False
    name = equation.primitive.name
    return name == "check" or any(word in name for word in ("callback", "debug"))


def _frozen(params) -> tuple:
    def freeze(value):
        try:
            hash(value)
        except TypeError:
            return id(value)
        return value

    return tuple(
        sorted(((name, freeze(value)) for name, value in params.items()), key=lambda item: item[0])
    )
