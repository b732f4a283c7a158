"""Machine code kept on disk under a digest of all that it may be made of: the kernel's file and whatever that imports.

A compiled kernel holds the code of the kernels it calls, whichever file they are in, and Numba's own cache looks at the
caller's file alone. Here an entry's name is made of the file, of all that it imports of this package, of what those
import and so on; of the versions of Python and Numba, the processor and the signature. A name that a kernel uses was
defined in its file or imported there, so an edit that can change the kernel changes the digest; an edit elsewhere
leaves the kernel as it is. What comes to a kernel as an argument shows in the signature, the names of a tuple's fields
included. There is no shared index, so processes that compile at the same moment, even from different sources, cannot
give each other their code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import pickle
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching as untyped_caching
from numba.core import serialize as untyped_serialize
from numba.core import types as untyped_types

caching: Any = untyped_caching
serialize: Any = untyped_serialize
types: Any = untyped_types

PACKAGE = Path(__file__).resolve().parent.parent
SETTLED = 2.0
"""Seconds after which an edit is surely older than what this process has read."""
IMPORT = re.compile(rb"^\s*(?:from|import) (confide(?:\.\w+)+|confide import \w+)", re.MULTILINE)
CHECK = 32  # bytes of SHA-256 before the content: half a file is no file


def kernel_sources() -> dict[Path, bytes]:
    """The files whose text may end up in some kernel: all that mention this folder, and what they import."""
    texts = {path: path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    return reached([path for path, text in texts.items() if b"confide.kernels" in text], texts)


def reached(begin: Iterable[Path], texts: dict[Path, bytes]) -> dict[Path, bytes]:
    """Those files, what they import, what that imports, and so on: in order."""
    found, new = set[Path](), set(begin)
    while new:
        found |= new
        named = {name for path in new for name in _imported(texts[path])}
        new = {path for name in named for path in _files(name) if path in texts} - found
    return {path: texts[path] for path in sorted(found)}


@functools.cache
def _imported(text: bytes) -> list[str]:
    return [name.decode() for name in IMPORT.findall(text)]


@functools.cache
def _files(name: str) -> list[Path]:
    """The file of a module; of a package, whose names may come from any of them, all."""
    place = PACKAGE.parent.joinpath(*name.replace(" import ", ".").split("."))
    return [place.with_suffix(".py"), *place.rglob("*.py")]


def _time(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


class _Sources:
    """What the kernels of one file may be made of, as this process found it when it began."""

    def __init__(self, read: dict[Path, bytes], found: dict[Path, tuple[int, int]], began: float) -> None:
        digest = hashlib.sha256(repr([sys.version, numba.__version__, llvmlite.__version__]).encode())
        for path, text in read.items():
            digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(text)}\0".encode() + text)
        self.digest = digest.hexdigest()
        self._found = {path: found[path] for path in read}
        # A file changed just now may have been imported before the change, under what is then the wrong digest.
        self._settled = all(when / 1e9 < began - SETTLED for when, _ in self._found.values())

    def hold(self) -> bool:
        """Whether what this process has imported, or will, is surely what the digest says."""
        try:
            return self._settled and all(_time(path) == found for path, found in self._found.items())
        except OSError:
            return False


try:
    _read = kernel_sources()
    _found, _began = {path: _time(path) for path in _read}, time.time()
except OSError:  # a file went away while we looked
    _read = {}


@functools.cache
def _sources(path: Path) -> _Sources:
    return _Sources(reached([path], _read), _found, _began)


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """The machine code of one kernel, by signature and processor. Without a place for it, `RuntimeError`.

    A file that is missing, torn, another user's or writable by others is passed over, and a write that fails is
    let go: the kernel is then compiled anew.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        ours = function.__module__.startswith("confide.")  # a file that is run as a script has another name
        file = Path(inspect.getfile(function)).resolve()
        if not ours or file not in _read:
            raise RuntimeError("only kernels of this package are kept on disk: nothing watches the files of others")
        super().__init__(function)
        self._sources = _sources(file)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel for this signature, or None."""
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        if not self._sources.hold():
            return None
        try:
            with open(self._path(key), "rb") as file:
                trusted, content = _trusted(os.fstat(file.fileno())), file.read()
        except OSError:
            return None
        if not trusted or hashlib.sha256(content[CHECK:]).digest() != content[:CHECK]:
            return None
        kept, payload = pickle.loads(content[CHECK:])
        return self._impl.rebuild(target_context, payload) if kept == key else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled kernel, and drop what other sources made of it."""
        if not self._sources.hold() or not self._impl.check_cachable(data):
            return
        key = self._index_key(sig, data.codegen)
        content, path = serialize.dumps((key, self._impl.reduce(data))), self._path(key)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            self._impl.locator.ensure_cache_path()
            with open(draft, "xb", opener=_private) as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(draft, path)
            for old in path.parent.glob(f"{self._impl.filename_base}.*.nbc"):
                if not old.name.startswith(self._prefix):
                    old.unlink()
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()

    def flush(self) -> None:
        """Forget this kernel's machine code on disk."""
        for path in Path(self.cache_path).glob(f"{self._impl.filename_base}.*.nbc"):
            path.unlink(missing_ok=True)

    @property
    def _prefix(self) -> str:
        return f"{self._impl.filename_base}.{self._sources.digest[:24]}."

    def _path(self, key: Any) -> Path:
        name = hashlib.sha256(repr((key, _tuples(getattr(key[0], "args", key[0])))).encode()).hexdigest()
        return Path(self.cache_path, f"{self._prefix}{name[:24]}.nbc")


def _tuples(kinds: Iterable[Any]) -> list[Any]:
    """Of named tuples among these types what their names do not show: where the class is, and its fields in order."""
    seen = []
    for kind in kinds:
        if isinstance(kind, types.BaseNamedTuple):
            seen.append((kind.instance_class.__module__, kind.fields))
        seen += _tuples(getattr(kind, "types", ()))
    return seen


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # whoever could write it could run code here


def _trusted(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
