"""One interpreter of traced programs, with two domains: counting the asks, and answering them.

The bill is read off the program. A program is traced where there are no rows: `asked` leaves an
operation in the trace that carries the query and stands for its answer. `count_queries` interprets
that trace and counts these operations, so the bill is a fact about the program:

    scan, fori_loop with a fixed number of turns     x its length
    cond, switch                                     the maximum over the branches, query by query
    vmap                                             x its size
    jit                                              what is inside
    while_loop, anything unknown                     refused when it asks
    a standing query                                 once: its curator keeps a running sum

Then `put_answers` interprets the very trace that was counted, with an answer in the place of each
ask. Two things follow. While user code runs there are no rows, so that nothing it keeps (in a list,
a closure or a callback) can hold any. And an ask that the interpreter does not find, inside an
operation that does not show what it is made of, never gets an answer: it does not compile.

Both domains share one `Interpreter`, so what is answered is found by the rules by which it was
counted. In the counting domain a value is a number, equal for equal expressions: so a key that
serves two asks is found through slices and fold_ins, and is refused. A loop is interpreted twice,
so a key that does not change from turn to turn is found as well. A function that jit, scan or cond
would bring to two places of the program is refused, and so is a loop that is unrolled.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, primitives

from dpmcmc.curator.programs.asked import asked_p
from dpmcmc.curator.programs.jaxprs import contains, inner_jaxprs, open_jaxpr
from dpmcmc.errors import PrivacyRefusal, UnboundedQueries
from dpmcmc.types import Answer, Plan, Query, is_standing

# (query, place, maps, company, rng_key, lane, *points) -> its answer, mapped over so many axes
Find = Callable[..., Answer]


def count_queries(closed_jaxpr: Any) -> Plan:
    """How often each query is asked when the traced program runs once.

    Args:
        closed_jaxpr: The trace of the program.

    Returns:
        The number of asks of each query: read only, for the program will be billed for it.

    Raises:
        UnboundedQueries: The number of asks is not fixed, or one key serves two of them.
    """
    counting = _Counting()
    counting.run(closed_jaxpr, [object() for _ in closed_jaxpr.jaxpr.invars])
    return MappingProxyType(dict(total_plan((counting.counts, 1))))


def put_answers(closed_jaxpr, arguments: list, find: Find) -> list:
    """Evaluate a program that was counted, with what `find` returns in the place of each ask."""
    return _Answering(find).run(closed_jaxpr, arguments)


def total_plan(*parts: tuple[Mapping[Query, int], int]) -> Plan:
    """The bill of programs that run so many times each.

    A standing query is granted once, however often it is asked.
    """
    total: Counter = Counter()
    for plan, times in parts:
        total.update({query: times * count for query, count in plan.items()})
    return {query: min(count, 1) if is_standing(query) else count for query, count in total.items()}


class Interpreter:
    """Goes through a traced program, equation by equation.

    A domain decides what a value is: how constants and literals are read, and what an ask, an
    operation without asks, and a jit, scan or cond with asks inside return.
    """

    def run(self, closed_jaxpr, inputs: list) -> list:
        """The values that a jaxpr returns, from those that it is given."""
        jaxpr = open_jaxpr(closed_jaxpr)
        values = dict(zip(jaxpr.constvars, self.constants(closed_jaxpr), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom):
            return self.literal(atom) if isinstance(atom, Literal) else values[atom]

        for index, equation in enumerate(jaxpr.eqns):
            given = [read(atom) for atom in equation.invars]
            outputs = self.step(index, equation, given, jaxpr.debug_info)
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def step(self, index: int, equation, inputs: list, debug_info) -> list:
        """What one equation returns: by the rule for it."""
        if equation.primitive is asked_p:
            return self.asked(equation, inputs)
        if not _asks_inside(equation):
            return self.without_asks(equation, inputs, debug_info)
        # By JAX's own operations: another one may have their names
        if equation.primitive is primitives.jit_p:
            return self.run(equation.params["jaxpr"], inputs)
        if equation.primitive is primitives.scan_p:
            return self.scan(equation, inputs)
        if equation.primitive is primitives.cond_p:
            return self.cond(equation, inputs)
        raise UnboundedQueries(
            f"queries inside `{equation.primitive.name}` cannot be counted: use scan, cond, vmap, "
            "jit, or fori_loop with a fixed number of turns"
        )

    def constants(self, closed_jaxpr) -> list:
        raise NotImplementedError

    def literal(self, atom) -> Any:
        raise NotImplementedError

    def asked(self, equation, inputs: list) -> list:
        raise NotImplementedError

    def without_asks(self, equation, inputs: list, debug_info) -> list:
        raise NotImplementedError

    def scan(self, equation, inputs: list) -> list:
        raise NotImplementedError

    def cond(self, equation, inputs: list) -> list:
        raise NotImplementedError


class _Counting(Interpreter):
    """Counts asks. A value is a number: two values with one number are equal."""

    def __init__(self) -> None:
        self.counts: Counter[Query] = Counter()
        self.numbers: dict[Any, int] = {}
        self.fresh = itertools.count()
        self.used_keys: set[int] = set()
        self.path: tuple[int, ...] = ()
        self.paths: dict[int, tuple[int, ...]] = {}  # of the asks, by their place

    def number(self, *expression) -> int:
        return self.numbers.setdefault(expression, next(self.fresh))

    def fresh_numbers(self, equation) -> list:
        """For what an equation returns: equal to no other."""
        return [self.number(object()) for _ in equation.outvars]

    def constants(self, closed_jaxpr) -> list:
        return [
            self.number("constant", id(variable)) for variable in open_jaxpr(closed_jaxpr).constvars
        ]

    def literal(self, atom) -> int:
        return self.number("literal", str(atom.aval), str(atom.val))

    def step(self, index: int, equation, inputs: list, debug_info) -> list:
        outside = self.path
        self.path = (*outside, index)
        outputs = super().step(index, equation, inputs, debug_info)
        self.path = outside
        return outputs

    def without_asks(self, equation, inputs: list, debug_info) -> list:
        expression = (equation.primitive.name, _frozen(equation.params), *inputs)
        return [self.number(*expression, index) for index, _ in enumerate(equation.outvars)]

    def asked(self, equation, inputs: list) -> list:
        query = equation.params["query"]
        key = inputs[0]
        if key in self.used_keys:
            raise UnboundedQueries(
                f"a random key is used for two asks, the second of {query}: split it with "
                "jax.random.split"
            )
        self.used_keys.add(key)
        if self.paths.setdefault(equation.params["place"], self.path) != self.path:
            raise UnboundedQueries(
                f"one function that asks {query} is used twice by jit, scan or cond (or JAX kept "
                "it from an earlier trace), and the two might share their noise: give each use a "
                "function of its own, such as a lambda around it (and leave jit out: the whole run "
                "is compiled)"
            )
        self.counts += Counter({query: math.prod(equation.invars[1].aval.shape)})
        return self.fresh_numbers(equation)

    def scan(self, equation, inputs: list) -> list:
        if equation.params.get("unroll", 1) not in (1, False):
            raise UnboundedQueries(
                "queries inside a loop with unroll= might share their noise: its turns are "
                "compiled one by one, and rows may round to other numbers in each; leave unroll out"
            )
        length = equation.params["length"]
        consts, carry, slices = scan_parts(equation, inputs)
        outside = self.counts
        self.counts = Counter()
        for _ in range(min(length, 2)):
            self.counts = Counter()  # both turns ask the same
            given = consts + carry + [self.number(object()) for _ in slices]
            carry = self.run(equation.params["jaxpr"], given)[: len(carry)]
        of_all_turns = Counter({query: length * count for query, count in self.counts.items()})
        self.counts = outside + of_all_turns
        return self.fresh_numbers(equation)

    def cond(self, equation, inputs: list) -> list:
        path = self.path
        counts = self.counts
        used_before = set(self.used_keys)
        used_after = set(used_before)
        most: Counter[Query] = Counter()
        for index, branch in enumerate(equation.params["branches"]):
            self.path = (*path, index)
            self.counts = Counter()
            self.used_keys = set(used_before)
            self.run(branch, inputs[1:])
            most |= self.counts
            used_after |= self.used_keys
        self.path = path
        self.counts = counts + most
        self.used_keys = used_after
        return self.fresh_numbers(equation)


class _Answering(Interpreter):
    """Evaluates a program that was counted, with answers in the place of its asks.

    A jit, scan or cond with asks inside is built again around the answers, and loses hints to the
    compiler such as shardings. Every other operation is taken over as it is.
    """

    def __init__(self, find: Find) -> None:
        self.find = find
        self.companies: dict[Any, Company] = {}

    def run(self, closed_jaxpr, inputs: list) -> list:
        outside = self.companies
        self.companies = _companies(open_jaxpr(closed_jaxpr))
        outputs = super().run(closed_jaxpr, inputs)
        self.companies = outside
        return outputs

    def constants(self, closed_jaxpr) -> list:
        return closed_jaxpr.consts

    def literal(self, atom) -> Any:
        return atom.val

    def asked(self, equation, inputs: list) -> list:
        query, place, maps = (equation.params[name] for name in ("query", "place", "maps"))
        company = self.companies[_points_of(equation)]
        answers = list(self.find(query, place, maps, company, *inputs))
        shapes = [(variable.aval.shape, variable.aval.dtype) for variable in equation.outvars]
        if [(value.shape, value.dtype) for value in answers] != shapes:
            raise PrivacyRefusal(
                f"an answer to {query} is not as it was traced: leave the program as JAX has it"
            )
        return answers

    def without_asks(self, equation, inputs: list, debug_info) -> list:
        return by_itself(equation, inputs, debug_info)

    def scan(self, equation, inputs: list) -> list:
        consts, start, slices = scan_parts(equation, inputs)

        def turn(carry, slices):
            outputs = self.run(equation.params["jaxpr"], consts + carry + slices)
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
        return self.run(closed_jaxpr, list(inputs))


@dataclasses.dataclass
class Company:
    """Asks at the same points, in the same part of a program: one pass may serve them all.

    Attributes:
        queries: What is asked there.
        sums: What a pass has made for all of them; None before the first of them is answered.
    """

    queries: list[Query] = dataclasses.field(default_factory=list)
    sums: Any = None


def _companies(jaxpr) -> dict[Any, Company]:
    """The asks of a jaxpr, by their points."""
    companies: dict[Any, Company] = {}
    for equation in jaxpr.eqns:
        if equation.primitive is asked_p:
            company = companies.setdefault(_points_of(equation), Company())
            company.queries.append(equation.params["query"])
    return companies


def _points_of(equation) -> Any:
    """Equal for asks at the same points, that are mapped in the same way."""
    points = equation.invars[2:]
    if any(isinstance(atom, Literal) for atom in points):
        return id(equation)
    maps = tuple(dims[2:] for dims in equation.params["maps"])
    return maps, *map(id, points)


def by_itself(equation, inputs: list, debug_info) -> list:
    """What one equation returns, as a program of its own.

    Versions of JAX differ in how they evaluate an equation alone. `debug_info` has the place where
    the program around it was written.
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


def scan_parts(equation, inputs: list) -> tuple[list, list, list]:
    """What a loop is given: the same for every turn, carried on, and sliced.

    The rank of what is sliced is one less inside. No two versions of JAX name them alike.
    """
    jaxpr = open_jaxpr(equation.params["jaxpr"])
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


def _asks_inside(equation) -> bool:
    return any(
        contains(jaxpr, lambda equation: equation.primitive is asked_p)
        for jaxpr in inner_jaxprs(equation)
    )


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
