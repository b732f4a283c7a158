"""What an audit was of: a digest of a game with all that decides how it is played, so that no games are mixed up.

Values count, and so does the code they came with: of a function its instructions and what it refers to, of a class the
file it stands in. What is computed once and kept (`cached_property`) does not.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

PACKAGE = __name__.partition(".")[0]
_PLACES = "stdlib", "platstdlib", "purelib", "platlib"
INSTALLED = tuple(str(Path(sysconfig.get_path(place)).resolve()) for place in _PLACES)


def digest(thing: Any) -> str:
    """A digest of any value; ValueError where it has a part that cannot be read, such as a lock or a generator.

    Examples
    --------
    >>> digest((1, "a")) == digest((1, "a")) != digest((1.0, "a"))
    True
    """
    return _Walk().of(thing).hex()


@cache
def sources() -> str:
    """A digest of this package: its version and every line of it."""
    known = sys.modules[PACKAGE].__file__
    assert known is not None
    root = Path(known).parent
    try:
        said = version(PACKAGE)
    except PackageNotFoundError:
        said = "not installed"
    parts = [path.relative_to(root).as_posix().encode() + path.read_bytes() for path in sorted(root.rglob("*.py"))]
    return hashlib.sha256(b"\0".join([said.encode(), *(hashlib.sha256(part).digest() for part in parts)])).hexdigest()


class _Walk:
    """One walk through a value; what is met again on the way down, as a function in itself, is not entered again."""

    def __init__(self) -> None:
        self.inside: set[int] = set()

    def of(self, thing: Any) -> bytes:
        if id(thing) in self.inside:
            return b"again"
        self.inside.add(id(thing))
        try:
            found = hashlib.sha256(f"{type(thing).__module__}.{type(thing).__qualname__}".encode())
            for part in self.parts(thing):
                found.update(hashlib.sha256(part).digest())
            return found.digest()
        finally:
            self.inside.discard(id(thing))

    def parts(self, thing: Any) -> Iterator[bytes]:
        if thing is None or isinstance(thing, bool | int | str | complex | Path):
            yield repr(thing).encode("utf-8", "surrogatepass")
        elif isinstance(thing, float):
            yield thing.hex().encode()
        elif isinstance(thing, bytes | bytearray):
            yield bytes(thing)
        elif isinstance(thing, np.ndarray | np.generic):
            array = np.asarray(thing)
            yield f"{array.dtype.str} {array.shape}".encode()
            yield self.of(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()
        elif isinstance(thing, list | tuple):
            yield from (self.of(one) for one in thing)
        elif isinstance(thing, dict):
            yield from (self.of(one) for pair in thing.items() for one in pair)
        elif isinstance(thing, set | frozenset):
            yield from sorted(self.of(one) for one in thing)
        else:
            yield from self.code(thing)

    def code(self, thing: Any) -> Iterator[bytes]:
        """Functions, classes and modules, and objects by what they hold."""
        if isinstance(thing, ModuleType):
            yield _file(thing.__name__)
        elif isinstance(thing, type):
            yield from (f"{thing.__module__}.{thing.__qualname__}".encode(), _file(thing.__module__))
            if not _path(thing.__module__):  # typed in, so that there is no file
                yield from (self.of(value) for value in vars(thing).values() if isinstance(value, FunctionType))
        elif isinstance(thing, FunctionType):
            yield from self.function(thing)
        elif isinstance(getattr(thing, "py_func", None), FunctionType):  # compiled
            yield self.of(thing.py_func)
        elif isinstance(thing, CodeType):
            yield thing.co_code
            yield self.of([thing.co_names, thing.co_varnames, thing.co_freevars, thing.co_consts])
        elif isinstance(thing, BuiltinFunctionType):
            yield f"{thing.__module__}.{thing.__qualname__}".encode()
        elif isinstance(thing, MethodType):
            yield from (self.of(thing.__func__), self.of(thing.__self__))
        elif isinstance(thing, partial):
            yield self.of([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, Enum):
            yield from (self.of(type(thing)), thing.name.encode())
        elif is_dataclass(thing):
            yield self.of(type(thing))
            yield from (self.of([field.name, getattr(thing, field.name)]) for field in fields(thing))
        else:
            yield from self.held(thing)

    def function(self, thing: FunctionType) -> Iterator[bytes]:
        """Its code, and what that refers to: but of a library's functions, which its version stands for, the file."""
        yield from (f"{thing.__module__}.{thing.__qualname__}".encode(), _file(thing.__module__))
        yield self.of([thing.__code__, thing.__defaults__, thing.__kwdefaults__])
        yield from (self.of(cell.cell_contents) for cell in thing.__closure__ or ())
        if _own(thing.__module__):
            names = sorted(_names(thing.__code__) & thing.__globals__.keys())
            yield from (self.of(thing.__globals__[name]) for name in names)

    def held(self, thing: Any) -> Iterator[bytes]:
        yield self.of(type(thing))
        try:
            made = thing.__reduce_ex__(4)
        except Exception:
            raise ValueError(
                f"a {type(thing).__name__} cannot be read: make games of functions, classes and values that can be "
                "pickled, or do without folder and workers"
            ) from None
        kept = {name for name, value in _attributes(type(thing)) if isinstance(value, cached_property)}
        for part in made if isinstance(made, tuple) else (made,):
            if isinstance(part, dict):
                part = {name: value for name, value in part.items() if name not in kept}
            yield self.of(list(part) if hasattr(part, "__next__") else part)


def _attributes(kind: type) -> Iterator[tuple[str, Any]]:
    for one in kind.__mro__:
        yield from vars(one).items()


def _names(code: CodeType) -> set[str]:
    """The names that a function's code, and the functions in it, refer to."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _path(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _own(module: str) -> bool:
    """Whether a module is the user's: neither Python's, nor installed, nor of this package."""
    path = _path(module)
    if path is None or module.partition(".")[0] == PACKAGE:
        return module == "__main__"
    return not str(Path(path).resolve()).startswith(INSTALLED)


@cache
def _file(module: str) -> bytes:
    """A digest of the file a module stands in and, where it is the user's, of their other files that it uses."""
    if module.partition(".")[0] == PACKAGE:
        return sources().encode()
    files, left, seen = [], [module], {module}
    while left:
        here = left.pop()
        path = _path(here)
        if path is not None and Path(path).is_file():
            files.append(here.encode() + Path(path).read_bytes())
        for value in list(vars(sys.modules[here]).values()) if _own(here) and here in sys.modules else ():
            other = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(other, str) and other not in seen and other in sys.modules and _own(other):
                seen.add(other)
                left.append(other)
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(part).digest() for part in files))).digest()
