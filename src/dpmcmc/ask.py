"""The one door between a sampler and the rows, and the bill read off the program that goes through it.

`mark` binds a primitive that returns a key and its points and carries the query; `answered` binds another that is the answer,
computed inside it. The program that will run is traced once; `count_queries` walks that trace and counts the marks, so the bill is
a fact about the program:

    scan, fori_loop with a fixed number of turns     x its length
    cond, switch                                     the maximum over the branches, query by query
    vmap                                             x its size (the batching rule multiplies `copies`)
    jit                                              what is inside
    while_loop, anything unknown                     refused when it asks
    a standing query                                 once: its curator keeps a running sum

The same walk refuses a key that visibly serves two asks. Every value gets a number, equal for equal expressions, so reuse is
seen through slices and fold_ins; a loop is walked twice, so a key that does not change from turn to turn is seen as well.

Where equal keys cannot be seen, the asks must not share their noise all the same: each ask has a number, its place in the program,
and under vmap another one, its lane; a function that jit, scan or cond would bring to two spots of the program is refused, and so
is a loop that is unrolled.

What depends on rows, or on the secret, and is no answer may go into answers alone: not out of the program, into an ask, or to
Python. A sampler does not have it by itself, but JAX may hand it over: the pullback of a function under jax.checkpoint is made of
what it takes to compute an answer again, and that is the rows.

An answer must be beside its mark, and there once: jax.checkpoint would compute it again on the way back, with the same noise, and
what the rows round to there is another number. An ask that the walk cannot see is not compiled (`stamped`).
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, Primitive, jaxpr_as_fun, primitives
from jax.interpreters import ad, batching, mlir

from dpmcmc.errors import PrivacyRefusal, UnboundedQueries, UnsupportedQuery
from dpmcmc.types import Answer, Array, Key, Plan, Position, Query, is_standing

asked_p, answered_p = Primitive("asked"), Primitive("answered")
NUM_LANES = 2**32


def mark(rng_key: Key, query: Query, points: tuple[Position, ...], place: int) -> tuple[Array, list[Position]]:
    """Leave a mark in the trace that `query` was asked here. Returns the words of the key, then the lane, and the points."""
    if not jax.dtypes.issubdtype(getattr(rng_key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError("ask needs a typed random key: make one with jax.random.key, not jax.random.PRNGKey")
    if rng_key.shape:
        raise TypeError(f"ask needs one random key, not an array of shape {rng_key.shape}: ask for each under jax.vmap")
    marked_key, lane, *marked_points = asked_p.bind(
        rng_key, np.uint32(0), *points, query=query, place=place, copies=1, is_seen=False
    )
    return jnp.append(jax.random.key_data(marked_key), lane), marked_points


def answered(
    function: Callable[..., Answer], check: Callable[[Any], None], shared: Any, arguments: tuple, query: Query, place: int
) -> Answer:
    """The answer function(shared, *arguments) to the ask at `place`, as one operation, its trace having been checked.

    Whatever is made of the program, this is computed as it was traced, in double precision, or else is no answer: who opens it has
    rows. `shared` is the same in all lanes.
    """
    traced = jax.make_jaxpr(function)(shared, *arguments)
    check(traced.jaxpr)
    shared, lanes = jax.tree.leaves(shared), jax.tree.leaves(arguments)
    return Answer(*_bind_answer(traced, shared, lanes, query=query, place=place, is_seen=False))


def _bind_answer(traced, shared: list, lanes: list, **params):
    """Constants go the way of what is shared, and those of 64 bits as words of 32.

    Whoever evaluates the program anew in the sampler's own precision (sparsify does, in JAX 0.8) would cut them, and the noise is
    made from such tables.
    """
    types = tuple(const.dtype for const in traced.consts)
    consts = map(_to_words, traced.consts)
    return answered_p.bind(*consts, *shared, *lanes, jaxpr=traced.jaxpr, types=types, num_shared=len(shared), **params)


def _compute(*arguments, jaxpr, types, **_):
    consts = [_from_words(const, dtype) for const, dtype in zip(arguments, types, strict=False)]
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(*arguments[len(types) :])


def _to_words(const: Any) -> Any:
    if const.dtype not in (np.int64, np.uint64, np.float64):
        return const
    return np.ascontiguousarray(const)[..., None].view(np.uint32)


def _from_words(words: Any, dtype: Any) -> Any:
    return words if words.dtype == dtype else lax.bitcast_convert_type(words, dtype)


def _batch_answer(arguments, dims, *, jaxpr, types, num_shared, **params):
    """A loop in the sampler is traced first and batched later, in the sampler's own precision: this is batched in double.

    Under vmap a cond whose predicate differs from lane to lane hands its branches everything once for each lane: what is shared,
    and constants, too. All copies are alike, so the first will do.
    """
    num_alike = len(types) + num_shared
    alike = [
        value if dim is None else lax.index_in_dim(value, 0, dim, keepdims=False)
        for value, dim in zip(arguments[:num_alike], dims, strict=False)
    ]
    lanes = arguments[num_alike:]
    if all(dim is None for dim in dims[num_alike:]):  # nothing differs: one answer
        found = answered_p.bind(*alike, *lanes, jaxpr=jaxpr, types=types, num_shared=num_shared, **params)
        return found, [None] * len(found)
    compute = functools.partial(_compute, *alike[: len(types)], jaxpr=jaxpr, types=types)
    mapped = jax.vmap(compute, (*[None] * num_shared, *dims[num_alike:]))
    with jax.enable_x64(True):
        traced = jax.make_jaxpr(mapped)(*alike[len(types) :], *lanes)
        found = _bind_answer(traced, alike[len(types) :], lanes, **params)
    return found, [0] * len(found)


def _batch(arguments, dims, *, copies, query, **params):
    sizes = {argument.shape[dim] for argument, dim in zip(arguments, dims, strict=True) if dim is not None}
    (size,) = sizes
    if dims[0] is None and size > 1:
        raise UnboundedQueries(
            f"one key would serve {size} asks of {query} at different points: split the key with jax.random.split and map over it"
        )
    if copies * size > NUM_LANES:
        raise UnboundedQueries(f"{query} would be asked {copies * size} times at once: at most {NUM_LANES} lanes have numbers")
    # Lanes may round a row in different ways: with equal keys and points they would show the difference without noise.
    rng_key, lanes, *points = arguments
    lanes = lanes[None] if dims[1] is None else jnp.moveaxis(lanes, dims[1], 0)  # of the vmaps further in: 0 ... copies - 1
    lanes += copies * jnp.arange(size, dtype=lanes.dtype).reshape(size, *(1 for _ in lanes.shape[1:]))
    return asked_p.bind(rng_key, lanes, *points, copies=copies * size, query=query, **params), (dims[0], 0, *dims[2:])


def _refuse_at_once(*arguments, query, **_):
    raise UnboundedQueries(
        f"{query} would be asked while the program is traced, and so on no bill: leave jax.ensure_compile_time_eval out"
    )


def _refuse_derivative(primals, tangents, *, query, **_):
    raise UnsupportedQuery(
        f"a derivative through ask({query}) would release gradients without noise: ask for a gradient query instead"
    )


def stamped(closed_jaxpr):
    """The same program, with a stamp on every ask and answer that `count_queries` can see. Those without are not compiled.

    An operation need not show the programs it is made of: those of JAX's `hijax` do not, in JAX 0.12 lax.custom_root among them.
    A function that asks may be used in sight and in there as well: it is the same function, and only the use in sight is stamped.
    """
    return closed_jaxpr.replace(jaxpr=_stamped(closed_jaxpr.jaxpr))


def _stamped(jaxpr):
    return jaxpr.replace(eqns=[equation.replace(params=_stamped_params(equation)) for equation in jaxpr.eqns])


def _stamped_params(equation) -> dict[str, Any]:
    if equation.primitive in (asked_p, answered_p):
        return {**equation.params, "is_seen": True}

    def inside(value):
        if not hasattr(_open(value), "eqns") or not _asks(_open(value)):
            return value
        return _stamped(value) if _open(value) is value else stamped(value)

    # Not further than `inner_jaxprs` looks.
    return {
        name: type(value)(map(inside, value)) if type(value) in (tuple, list) else inside(value)
        for name, value in equation.params.items()
    }


def _check_seen(query: Query, is_seen: bool) -> None:
    if not is_seen:
        raise UnboundedQueries(
            f"{query} is asked inside an operation that does not show what it does, and so on no bill: use scan, cond, vmap, jit, "
            "or fori_loop with a fixed number of turns"
        )


def _lower(context, *arguments, query, is_seen, **_):
    _check_seen(query, is_seen)
    return list(arguments)


def _lower_answer(context, *arguments, query, is_seen, **params):
    _check_seen(query, is_seen)
    return mlir.lower_fun(functools.partial(_compute, **params), multiple_results=True)(context, *arguments)


def _expand_answer(*arguments, query, is_seen, **params):
    """What JAX 0.12 compiles where the answer has an operation of its `hijax` in it, such as a search among sorted numbers."""
    _check_seen(query, is_seen)
    return _compute(*arguments, **params)


def _answer_shapes(*arguments, jaxpr, types, query, **_):
    """Those of what is computed, and its effects. What it is computed from must be as it was traced."""
    for argument, variable in zip(arguments[len(types) :], jaxpr.invars, strict=True):
        if (argument.shape, argument.dtype) != (variable.aval.shape, variable.aval.dtype):
            raise PrivacyRefusal(f"an answer to {query} would be computed in another precision: leave the program as JAX traces it")
    return [variable.aval for variable in jaxpr.outvars], jaxpr.effects


for primitive in (asked_p, answered_p):
    primitive.multiple_results = True
    primitive.def_impl(_refuse_at_once)
    ad.primitive_jvps[primitive] = _refuse_derivative
asked_p.def_abstract_eval(lambda *arguments, **_: list(arguments))
answered_p.def_effectful_abstract_eval(_answer_shapes)
mlir.register_lowering(asked_p, _lower)
mlir.register_lowering(answered_p, _lower_answer)
answered_p.to_lojax = _expand_answer  # type: ignore[method-assign]
batching.primitive_batchers[asked_p] = _batch
batching.primitive_batchers[answered_p] = _batch_answer


def count_queries(closed_jaxpr, private: Iterable[int] = ()) -> Plan:
    """How often each query is asked when the traced program runs once. Refuses what has no fixed count.

    Of the inputs, those at the places `private` are rows and secrets.
    """
    inputs = [object() for _ in closed_jaxpr.jaxpr.invars]
    walk = _Walk({inputs[index] for index in private})
    counts, outputs = walk.calls(closed_jaxpr.jaxpr, inputs)
    if not walk.private.isdisjoint(outputs):
        raise PrivacyRefusal(
            "the program would return what it has of the rows, or of the noise's secret, and not only what follows from answers: "
            "what jax.vjp and jax.linearize return of a function under jax.checkpoint has these in it, and so have the constants "
            "of jax.make_jaxpr and jax.closure_convert"
        )
    return MappingProxyType(dict(total_plan((counts, 1))))  # read only: it is what the program will be billed for


def total_plan(*parts: tuple[Mapping[Query, int], int]) -> Plan:
    """The bill of programs that run so many times each. A standing query is granted once, however often it is asked."""
    total: Counter = Counter()
    for plan, times in parts:
        total.update({query: times * count for query, count in plan.items()})
    return {query: min(count, 1) if is_standing(query) else count for query, count in total.items()}


class _Walk:
    """One walk over a program: numbers for values, which of them are private, and the keys that asks have used so far."""

    def __init__(self, private: set[Any]) -> None:
        self.private = private
        self.numbers: dict[Any, int] = {}
        self.fresh = itertools.count()
        self.used: set[int] = set()
        self.path: tuple[int, ...] = ()
        self.paths: dict[int, tuple[int, ...]] = {}  # of the asks, by their place
        self.answers: dict[int, tuple[int, ...]] = {}

    def number(self, *expression) -> int:
        return self.numbers.setdefault(expression, next(self.fresh))

    def calls(self, jaxpr, inputs: list) -> tuple[Counter, list]:
        """Count the asks of a jaxpr whose inputs have the given numbers; return the numbers of its outputs too."""
        values = dict(zip(jaxpr.invars, inputs, strict=True))
        values.update({variable: self.number("constant", id(variable)) for variable in jaxpr.constvars})

        def read(atom):
            return self.number("literal", str(atom.aval), str(atom.val)) if isinstance(atom, Literal) else values[atom]

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
        if equation.primitive is answered_p:
            return self.answered(equation, inputs)
        if not any(_asks(jaxpr) for jaxpr in inner_jaxprs(equation)):
            return Counter(), self.computed(equation, inputs)
        rule = _RULES.get(equation.primitive)
        if rule is None:
            raise UnboundedQueries(
                f"queries inside `{equation.primitive.name}` cannot be counted: use scan, cond, vmap, jit, "
                "or fori_loop with a fixed number of turns"
            )
        return rule(self, equation, inputs)

    def computed(self, equation, inputs: list) -> list:
        """The numbers of what an operation without asks returns: private if something that it is given is."""
        expression = (equation.primitive.name, _frozen(equation.params), *inputs)
        outputs = [self.number(*expression, index) for index, _ in enumerate(equation.outvars)]
        if not self.private.isdisjoint(inputs):
            if _is_heard(equation) or any(map(speaks, inner_jaxprs(equation))) or _writes(equation):
                raise PrivacyRefusal(
                    f"`{equation.primitive.name}` would be given what the program has of the rows, and not only what follows from "
                    "answers: leave callbacks, prints and references to it out"
                )
            self.private.update(outputs)
        return outputs

    def asked(self, equation, inputs: list) -> tuple[Counter, list]:
        query, key = equation.params["query"], inputs[0]
        if not self.private.isdisjoint(inputs):
            raise PrivacyRefusal(f"{query} would be asked about something that depends on rows, and not only on answers")
        if key in self.used:
            raise UnboundedQueries(f"a random key is used for two asks, the second of {query}: split it with jax.random.split")
        self.used.add(key)
        if self.paths.setdefault(equation.params["place"], self.path) != self.path:
            raise UnboundedQueries(
                f"one function that asks {query} is used twice by jit, scan or cond, and the two might share their noise: give "
                "each use a function of its own, such as a lambda around it (and leave jit out: the whole run is compiled)"
            )
        return Counter({query: equation.params["copies"]}), inputs

    def answered(self, equation, inputs: list) -> tuple[Counter, list]:
        query, place = equation.params["query"], equation.params["place"]
        is_beside = place in self.paths and self.paths[place][:-1] == self.path[:-1]
        if not is_beside or self.answers.setdefault(place, self.path) != self.path:
            raise UnboundedQueries(
                f"an answer to {query} would be computed away from its ask, perhaps again with the same noise, and on no bill: "
                "leave jax.checkpoint out of what asks"
            )
        return Counter(), [self.number(object()) for _ in equation.outvars]

    def jit(self, equation, inputs: list) -> tuple[Counter, list]:
        return self.calls(_open(equation.params["jaxpr"]), inputs)

    def scan(self, equation, inputs: list) -> tuple[Counter, list]:
        if equation.params.get("unroll", 1) not in (1, False):
            raise UnboundedQueries(
                "queries inside a loop with unroll= might share their noise: its turns are compiled one by one, and rows may round "
                "to other numbers in each; leave unroll out"
            )
        jaxpr, length = _open(equation.params["jaxpr"]), equation.params["length"]
        num_carry, num_slices = _scan_layout(equation, jaxpr)
        num_consts = len(inputs) - num_carry - num_slices
        consts, carry, whole = inputs[:num_consts], inputs[num_consts : num_consts + num_carry], inputs[num_consts + num_carry :]
        counts: Counter = Counter()
        outputs = carry + [object()] * (len(equation.outvars) - num_carry)
        are_private = self.are_private(carry)
        for turn in range(length):
            slices = self.fresh_numbers(self.are_private(whole))
            counts, outputs = self.calls(jaxpr, consts + carry + slices)
            before, now = are_private, self.are_private(outputs[:num_carry])
            are_private = [was or is_now for was, is_now in zip(before, now, strict=True)]
            carry = [
                self.fresh_numbers([True])[0] if is_so else number for is_so, number in zip(are_private, outputs, strict=False)
            ]
            if turn > 0 and are_private == before:
                break
        results = self.fresh_numbers(are_private + self.are_private(outputs[num_carry:]))
        return Counter({query: length * count for query, count in counts.items()}), results

    def cond(self, equation, inputs: list) -> tuple[Counter, list]:
        if inputs[0] in self.private:
            raise PrivacyRefusal("whether something is asked would depend on rows, and not only on answers")
        before, after = set(self.used), set(self.used)
        total: Counter = Counter()
        outside = self.path
        found = []
        for index, branch in enumerate(equation.params["branches"]):
            self.used, self.path = set(before), (*outside, index)
            counts, outputs = self.calls(_open(branch), inputs[1:])
            total |= counts
            after |= self.used
            found.append(self.are_private(outputs))
        self.used, self.path = after, outside
        return total, self.fresh_numbers(map(any, zip(*found, strict=True)))

    def are_private(self, numbers: list) -> list[bool]:
        return [number in self.private for number in numbers]

    def fresh_numbers(self, are_private: Iterable[bool]) -> list:
        """One for each, equal to no other."""
        numbers = [(self.number(object()), is_private) for is_private in are_private]
        self.private.update(number for number, is_private in numbers if is_private)
        return [number for number, _ in numbers]


# By JAX's own operations: another one may have their names.
_RULES = {primitives.jit_p: _Walk.jit, primitives.scan_p: _Walk.scan, primitives.cond_p: _Walk.cond}


def _scan_layout(equation, jaxpr) -> tuple[int, int]:
    """How many values a scan carries and how many it slices: those whose rank inside is one less (no version names them alike)."""
    num_carry = sum(out.aval.ndim == inner.aval.ndim for out, inner in zip(equation.outvars, jaxpr.outvars, strict=True))
    num_slices = sum(given.aval.ndim != inner.aval.ndim for given, inner in zip(equation.invars, jaxpr.invars, strict=True))
    return num_carry, num_slices


def _open(jaxpr):
    return getattr(jaxpr, "jaxpr", jaxpr)


def inner_jaxprs(equation):
    """The programs within an equation, such as the body of a loop."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(_open(item), "eqns"):
                yield _open(item)


def _asks(jaxpr) -> bool:
    return _contains(jaxpr, lambda equation: equation.primitive in (asked_p, answered_p))


@dataclass(frozen=True)
class OwnCallback:
    """A callback of the curator's own: it is given nothing that depends on rows."""

    function: Callable[..., Any]

    def __call__(self, *arguments):
        return self.function(*arguments)


def _writes(equation) -> bool:
    """Whether it is given a reference, which may be read elsewhere."""
    return any(hasattr(atom.aval, "inner_aval") for atom in equation.invars)


def speaks(jaxpr) -> bool:
    """Whether a traced function prints, or calls back to Python."""
    return _contains(jaxpr, _is_heard)


def tells_devices_apart(jaxpr, axis: str) -> bool:
    """Whether a program uses the name of an axis of devices for anything but sums over all of them."""
    return _contains(jaxpr, lambda equation: _names(equation, axis) and not _is_total(equation))


def _names(equation, axis: str) -> bool:
    values = itertools.chain(*(value if isinstance(value, tuple) else (value,) for value in equation.params.values()))
    return any(isinstance(value, str) and value == axis for value in values)


def _is_total(equation) -> bool:
    return equation.primitive.name == "psum" and equation.params.get("axis_index_groups") is None


def _contains(jaxpr, is_it: Callable[[Any], bool]) -> bool:
    return any(is_it(equation) or any(_contains(inner, is_it) for inner in inner_jaxprs(equation)) for equation in jaxpr.eqns)


def _is_heard(equation) -> bool:
    if isinstance(getattr(equation.params.get("callback"), "callback_func", None), OwnCallback):
        return False
    name = equation.primitive.name
    return name == "check" or any(word in name for word in ("callback", "debug", "outfeed"))


def _frozen(params) -> tuple:
    def freeze(value):
        try:
            hash(value)
        except TypeError:
            return id(value)
        return value

    return tuple(sorted(((name, freeze(value)) for name, value in params.items()), key=lambda item: item[0]))
