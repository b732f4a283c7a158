"""What copies of a learner share although each is an object of its own: class attributes, globals, generators.

Copying separates what hangs on `self`. It does not separate what the code reaches by a name: an attribute of the class,
a global, a default argument, what a function closes over, `random` and `numpy.random`. `reached` lists these, by what
the methods name; `marks` tells them before a lesson from after it. What no name of a method leads to (a file, a
library's own memory in C, `functools.cache`, the state of numpy, scikit-learn and PyTorch themselves) is not in the
list, nor is what is beyond 200,000 objects or in an array of more than 64 MB: there only another copy's answers can
tell. And what a learner shares with none of the rows that are made up, and with people's own later, nobody sees.
"""

from __future__ import annotations

import array
import functools
import hashlib
import itertools
import logging
import pickle
import random
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from confide.banks.inside import walk
from confide.contained import contained

_MOST_OBJECTS, _MOST_FUNCTIONS, _MOST_BYTES = 200_000, 5_000, 1 << 26
_OTHERS = {"confide", "numpy", "scipy", "sklearn", "pandas", "torch", "numba", *sys.stdlib_module_names} - {"__main__"}
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.partial, types.MethodType)
_SKIPPED = (types.ModuleType, type, *_FUNCTIONS, types.BuiltinFunctionType, logging.Logger)
_PLAIN = (str, bytes, float, complex, type(None))
_ATOMS = frozenset({*_PLAIN, int, bool})


def marks(learner: Any) -> dict[str, bytes]:
    """A mark of everything that copies of this learner share, by what it is called in a sentence."""
    held = {name: mark(thing) for name, thing in reached(learner).items()}
    held["Python's own generator, `random`"] = mark(random.getstate())
    held["numpy's own generator, `numpy.random`"] = mark(np.random.get_state(legacy=True))
    return held


def reached(learner: Any) -> dict[str, Any]:
    """What the methods of a learner, and of all objects inside it, reach by a name; by what it is called."""
    found: dict[str, Any] = {}
    kinds: dict[int, type] = {}
    functions: list[Any] = []
    for here in itertools.islice(walk(learner), _MOST_OBJECTS):
        kinds.update((id(kind), kind) for kind in type(here).__mro__)
        held = here.values() if isinstance(here, dict) else getattr(here, "__dict__", {}).values()
        functions += [each for each in held if isinstance(each, _FUNCTIONS)]
    queue: list[Any] = [*kinds.values(), *functions]
    seen: set[int] = set()
    while queue and len(seen) < _MOST_FUNCTIONS:
        here = queue.pop()
        if id(here) in seen or _of_others(here):
            continue
        seen.add(id(here))
        for name, thing in _inside_class(here) if isinstance(here, type) else _named_by(here):
            if isinstance(thing, (type, *_FUNCTIONS)):
                queue.append(thing)
            elif not isinstance(thing, _SKIPPED) and not hasattr(thing, "__wrapped__"):  # what is compiled keeps counts
                found[name] = thing
    return found


def mark(thing: Any) -> bytes:
    """What changes when anything inside `thing` does."""
    if _stands(thing) or (type(thing) is dict and not thing):  # as most of what functions name, and there are many
        return repr(thing).encode("utf-8", "surrogatepass")
    told = hashlib.blake2b(digest_size=16)
    for here in [(thing,), *itertools.islice(walk(thing), _MOST_OBJECTS)]:
        told.update(type(here).__qualname__.encode())
        for part in _parts(here):
            told.update(len(part).to_bytes(8, "big") + part)
    return told.digest()


def _stands(thing: Any) -> bool:
    """Whether nothing can change inside it: a plain value, or a tuple of such."""
    return type(thing) in _ATOMS or (type(thing) is tuple and all(map(_stands, thing)))


def _of_others(thing: Any) -> bool:
    """Whether it belongs to a library that is known to keep no state of its models outside them."""
    home = getattr(thing, "__module__", None) or ""
    return str(home).partition(".")[0] in _OTHERS


def _inside_class(kind: type) -> Iterator[tuple[str, Any]]:
    for name, thing in list(vars(kind).items()):
        if isinstance(thing, _FUNCTIONS) or not (name.startswith("__") and name.endswith("__")):
            yield f"the class attribute {kind.__name__}.{name}", thing


def _named_by(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function, or whatever wraps one, holds and names."""
    if isinstance(function, property):
        yield from (("", part) for part in (function.fget, function.fset, function.fdel) if part is not None)
    elif isinstance(function, functools.partial):
        yield from [("", function.func)]
        yield from (("an argument of a partial function", part) for part in (function.args, function.keywords))
    elif isinstance(function, staticmethod | classmethod | types.MethodType):
        yield "", function.__func__
    else:
        name = function.__qualname__
        yield f"a default argument of {name}", (function.__defaults__, function.__kwdefaults__)
        yield f"an attribute of the function {name}", vars(function)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            with contained:  # a cell may be empty still
                yield f"what {name} closes over as {variable}", cell.cell_contents
        yield from _globals(function)


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that a function's code names, and what it names of modules."""
    names = set(_names(function.__code__))
    home = function.__globals__
    for name in sorted(names & home.keys()):
        thing = home[name]
        if isinstance(thing, types.ModuleType):
            if thing.__name__.partition(".")[0] not in _OTHERS:
                held = vars(thing)
                yield from ((f"the global {each} of {thing.__name__}", held[each]) for each in names & held.keys())
        elif isinstance(thing, (type, *_FUNCTIONS)) or not (callable(thing) and _of_others(type(thing))):
            yield f"the global {name} of {function.__module__}", thing


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _parts(here: Any) -> Iterator[bytes]:
    """What stands in one object itself, without the objects that `walk` goes to next."""
    if isinstance(here, list | tuple | set | frozenset) or type(here).__name__ == "deque":
        yield from map(_atom, list(here))
    elif isinstance(here, dict):
        yield from map(_atom, itertools.chain.from_iterable(list(here.items())))
    elif isinstance(here, random.Random):
        yield repr(here.getstate()).encode()
    elif isinstance(here, np.random.RandomState):
        yield pickle.dumps(here.get_state(legacy=True))
    elif isinstance(here, np.random.Generator):
        yield pickle.dumps(here.bit_generator.state)
    elif isinstance(here, np.ndarray):
        yield repr((here.dtype.str, here.shape)).encode()
        if here.dtype != object and here.nbytes <= _MOST_BYTES:
            yield here.tobytes()
        elif here.dtype == object:
            yield from map(_atom, here.ravel().tolist())
    elif isinstance(here, bytearray | array.array):
        yield bytes(here)
    elif isinstance(here, Mapping):
        yield from map(_atom, itertools.chain.from_iterable(list(here.items())))
    else:
        yield from _held(here)


def _held(here: Any) -> Iterator[bytes]:
    slots = [name for kind in type(here).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(here, name) for name in slots if isinstance(name, str) and hasattr(here, name)}
    held |= getattr(here, "__dict__", {})
    for name, value in held.items():
        yield name.encode() + _atom(value)
    if not held and not isinstance(here, _SKIPPED):
        said = b""
        with contained:  # a library's own object
            said = pickle.dumps(here)
        yield said


def _atom(value: Any) -> bytes:
    """A value that holds no other; of one that does, or of code, which object it is."""
    if isinstance(value, bool | int):
        return hex(value).encode()
    if isinstance(value, _PLAIN):
        return repr(value).encode("utf-8", "surrogatepass")
    if isinstance(value, np.generic):
        return value.tobytes()
    return id(value).to_bytes(16, "big") if isinstance(value, _SKIPPED) else type(value).__qualname__.encode()
