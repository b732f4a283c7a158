"""Machine code kept on disk under a digest of every kernel's source: an edit anywhere among them is an edit of all.

A compiled kernel holds the code of the kernels it calls, whichever file they are in, and Numba's own cache looks at the
caller's file alone. Here an entry's name is made of the sources, the versions of Python and Numba, the processor and
the signature. There is no shared index, so processes that compile at the same moment, even from different sources,
cannot give each other their code.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import pickle
import re
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching as untyped_caching
from numba.core import serialize as untyped_serialize

caching: Any = untyped_caching
serialize: Any = untyped_serialize

PACKAGE = Path(__file__).resolve().parent.parent
SETTLED = 2.0
"""Seconds after which an edit is surely older than what this process has read."""
IMPORT = re.compile(rb"^\s*(?:from|import) (confide(?:\.\w+)+|confide import \w+)", re.MULTILINE)
CHECK = 32  # bytes of SHA-256 before the content: half a file is no file


def kernel_sources() -> dict[str, bytes]:
    """The files whose text may end up in a kernel, by path: all that mention this folder, and what they import."""
    texts = {path: path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    found, new = set[Path](), {path for path, text in texts.items() if b"confide.kernels" in text}
    while new:
        found |= new
        named = {name.decode() for path in new for name in IMPORT.findall(texts[path])}
        new = {path for name in named for path in _files(name) if path in texts} - found
    return {str(path): texts[path] for path in sorted(found)}


def _files(name: str) -> list[Path]:
    """The file of a module; of a package, whose names may come from any of them, all."""
    place = PACKAGE.parent.joinpath(*name.replace(" import ", ".").split("."))
    return [place.with_suffix(".py"), *place.rglob("*.py")]


def _times(paths: list[str]) -> list[tuple[int, int]]:
    return [(found.st_mtime_ns, found.st_size) for found in map(os.stat, paths)]


class _Sources:
    """The kernels' sources as this process found them when it began."""

    def __init__(self) -> None:
        read = kernel_sources()
        digest = hashlib.sha256(repr([sys.version, numba.__version__, llvmlite.__version__]).encode())
        for path, text in read.items():
            name = Path(path).relative_to(PACKAGE).as_posix()
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
        self.digest = digest.hexdigest()
        self.paths = list(read)
        self._found = _times(self.paths)
        # A file changed just now may have been imported before the change, under what is then the wrong digest.
        self._settled = all(when / 1e9 < time.time() - SETTLED for when, _ in self._found)

    def hold(self) -> bool:
        """Whether what this process has imported, or will, is surely what the digest says."""
        try:
            return self._settled and _times(self.paths) == self._found
        except OSError:
            return False


try:
    _sources: _Sources | None = _Sources()
except OSError:  # a file went away while we looked
    _sources = None


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """The machine code of one kernel, by signature and processor. Without a place for it, `RuntimeError`.

    A file that is missing, torn, another user's or writable by others is passed over, and a write that fails is
    let go: the kernel is then compiled anew.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        ours = function.__module__.startswith("confide.")  # a file that is run as a script has another name
        if not ours or _sources is None or str(Path(inspect.getfile(function)).resolve()) not in _sources.paths:
            raise RuntimeError("only kernels of this package are kept on disk: nothing watches the files of others")
        super().__init__(function)
        self._sources = _sources

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
        return Path(self.cache_path, f"{self._prefix}{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # whoever could write it could run code here


def _trusted(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
