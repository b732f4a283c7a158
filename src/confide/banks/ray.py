"""Shards as Ray actors, on a cluster that exists or on one that is started here (`pip install "confide[ray]"`).

The protocol is `confide.banks.shards`'; this is how calls travel: to a shard on this machine through what it shares
with this process (`confide.banks.beside`), to others by Ray. An actor is never restarted, and no call is repeated by
Ray itself (`max_restarts=0`, `max_task_retries=0`): what became of a shard is decided in one place.

**Ray runs code for whoever reaches its ports**, and what passes through it is private: docs/threat-model.md. A cluster
that is started here listens on all of the machine's addresses, so it takes calls only with a token, fresh each time, in
the environment of this process and its children; it has no dashboard and reports nothing.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from confide._checks import integer
from confide.banks.beside import SPACE, Lent, Reached, Where, copied, packed, room, unpacked, written
from confide.banks.shard import Batch, Recipe, Shard
from confide.banks.shards import Lost, Place, Threads, Unheard
from confide.banks.stacked import StackedBank
from confide.contained import contained
from confide.extras import need

__all__ = ["WORTH", "Actor", "Actors", "chosen", "place_named"]

WORTH = 256
"""Rows of a batch from which on a cluster is worth its calls."""

_OPEN = (
    "Ray was loaded before Confide could close it, and a cluster started now would run code for anybody on the "
    "network: make Actors() before Ray is imported, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or give the address "
    "of a cluster"
)

STORE = 256 << 20
"""Bytes of shared memory for batches on their way, on a cluster that is started here."""

PIECE, INLINE = 96_000, 768_000
"""Bytes that Ray sends along with a call at most (an argument of 100 kB and more goes through its store), and those up
to which all that is given travels so, in pieces: a call with something in the store takes 1 ms more of processors."""


class Actor(Shard):
    """A shard that is spoken to in bytes."""

    def __init__(self, recipe: Recipe, first: int, end: int) -> None:
        super().__init__(recipe, first, end)
        self._turn, self._kept = threading.Lock(), None

    def meet(self, where: Where) -> int:
        """This process, where what the other side lends is to be had from here: a thread does what is asked there from
        then on. 0 where it is not."""
        lent = Reached.at(where)
        if lent is not None:
            threading.Thread(target=self._serve, args=(lent,), daemon=True).start()
        return 0 if lent is None else os.getpid()

    def lives(self) -> None:
        """Say that this process does."""

    def kept(self) -> Any:
        """An answer that had no room."""
        kept, self._kept = self._kept, None
        return kept

    def told(self, call: str, sizes: Sequence[int], *pieces: bytes) -> Any:
        """Do what a call says with what was packed into these pieces."""
        return self._do(call, unpacked(memoryview(bytearray().join(pieces)), sizes))

    def told_all(self, call: str, number: int, given: Sequence[Any]) -> Any:
        """Do what a call says with what is given for the shard of this number."""
        return self._do(call, given[number])

    def _serve(self, lent: Reached) -> None:
        try:
            lent.serve(lambda call, sizes: self._beside(lent.memory, call, sizes))
        except BaseException:  # nobody would hear of it, and wait
            os._exit(1)

    def _beside(self, memory: memoryview, call: str, sizes: Sequence[int]) -> tuple[str, Any]:
        """Do what a call says with what is in the memory, and leave the answer there: how it ended.

        What a call is given may be kept for longer than it lasts, but for rows that go through compiled loops.
        """
        loops = call == "apply" and isinstance(self._bank, StackedBank) and self._bank.fuses
        with contained:
            try:
                answer = self._do(call, unpacked(memory if loops else copied(memory, sizes), sizes))
                parts = packed(answer)
            except ValueError as error:
                return "refused", str(error)
            if room(parts) <= SPACE:
                return "done", written(memory, parts)
            self._kept = answer
            return "kept", None
        return "failed", None

    def _do(self, call: str, given: Any) -> Any:
        with self._turn:
            return getattr(self, call)(given)


class Known:
    """An actor, and what this process lends to it where both are on one machine."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.actor, self._ray, self._offered = actor, ray, Lent.new()
        self._met = self._offered and actor.meet.remote(self._offered.where)
        self._lent: Lent | None = None

    @property
    def lent(self) -> Lent | None:
        """What both have, once that is known."""
        if self._offered is not None:
            offered, self._offered = self._offered, None
            try:
                if (process := self._ray.get(self._met)) > 0:
                    offered.met(process)
                    self._lent = offered
            except self._ray.exceptions.RayError:  # it is lost, as its next answer says
                pass
            finally:
                offered.close()
        return self._lent


class Begun(NamedTuple):
    """A call on its way."""

    actor: Any
    lent: Lent | None
    """Through which it went."""
    answer: Any = None
    """Of Ray's, if through none."""


class Actors(Place):
    """Shards as Ray actors.

    Parameters
    ----------
    address
        Of a cluster, as `ray.init` takes it; None for the one that RAY_ADDRESS names, or else one that is started here
        and ends with this process. All machines need the same Confide and the same libraries.
    shards
        How many actors; one for each processor of the cluster if left out.
    """

    shard = Actor
    """What an actor is."""

    def __init__(self, address: str | None = None, shards: int | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._shards = None if shards is None else integer(shards, "shards", 1)
        if self._address is None and "ray" not in sys.modules:
            _closed()
        self._ray: Any = need("ray", "ray", "keeping copies on a Ray cluster")

    def number(self, copies: int) -> int:
        """As many as were asked for, or as there are processors."""
        shards = int(self._cluster.cluster_resources().get("CPU", 1)) if self._shards is None else self._shards
        return max(1, min(shards, copies))

    @cached_property
    def _cluster(self) -> Any:
        """Ray, connected."""
        ray = self._ray
        if not ray.is_initialized():
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            if self._address is None:
                if "RAY_AUTH_MODE" not in os.environ:
                    raise ValueError(_OPEN)
                own = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
                ray.init(**own, **quiet, _node_ip_address="127.0.0.1")
            else:
                ray.init(address=self._address, **quiet)
        return ray

    @cached_property
    def _actor(self) -> Any:
        never = {"max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}
        return self._cluster.remote(**never, scheduling_strategy="SPREAD")(self.shard)

    def start(self, recipe: Recipe, own: range) -> Known:
        """An actor, wherever the cluster has room."""
        return Known(self._ray, self._actor.remote(recipe, own.start, own.stop))

    def begin(self, shards: Sequence[Known], call: str, given: Sequence[Any]) -> list[Begun]:
        """Through a memory on this machine. Elsewhere what is small goes along with each call; what is large is brought
        to the cluster once, for all of them."""
        begun, stored = [], None
        for number, shard in enumerate(shards):
            if stored is None:
                parts = self._packed(given[number])
                if shard.lent is not None and shard.lent.begin(call, parts):
                    begun.append(Begun(shard.actor, shard.lent))
                    continue
                if room(parts) <= INLINE:
                    sizes, pieces = [part.nbytes for part in parts], _pieces(parts)
                    begun.append(Begun(shard.actor, None, shard.actor.told.remote(call, sizes, *pieces)))
                    continue
                stored = self._cluster.put(list(given))
            begun.append(Begun(shard.actor, None, shard.actor.told_all.remote(call, number, stored)))
        return begun

    def _packed(self, given: Any) -> list[memoryview]:
        """Numbers by Python's own means, in half the time; all else, which may be somebody's own, by Ray's."""
        numbers = isinstance(given, Batch) and isinstance(given.xs, np.ndarray) and not given.xs.dtype.hasobject
        return packed(given) if numbers else packed(given, self._ray.cloudpickle.dumps)

    def finish(self, begun: Begun) -> Any:
        """However long it takes."""
        ray = self._cluster
        try:
            if begun.lent is None:
                return ray.get(begun.answer)
            ended, said = begun.lent.finish(lambda: ray.get(begun.actor.lives.remote()))
            if ended == "kept":
                return ray.get(begun.actor.kept.remote())
        except ValueError:  # the shard's own words
            raise
        except ray.exceptions.ActorUnavailableError:
            raise Unheard from None
        except (ray.exceptions.RayError, EOFError, OSError):
            raise Lost from None
        if ended == "refused":
            raise ValueError(said)
        if ended == "failed":
            raise Lost
        return said

    def stop(self, shard: Known) -> None:
        """At once, wherever it is."""
        self._cluster.kill(shard.actor, no_restart=True)


def _pieces(parts: Sequence[memoryview]) -> list[bytes]:
    """These one after the other, each at the beginning of a cache line, in pieces that travel with a call."""
    blob = memoryview(bytearray(room(parts)))
    written(blob, parts)
    return [bytes(blob[i : i + PIECE]) for i in range(0, len(blob), PIECE)]


def _closed() -> None:
    """Before Ray is loaded: a cluster that is started here is for this process and its children alone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)


def chosen(name: str, rows: int) -> str:
    """What "auto" is: the cluster that RAY_ADDRESS names, where batches of so many rows are worth it, or else "local".

    Examples
    --------
    >>> chosen("auto", rows=255), chosen("ray", rows=1)
    ('local', 'ray')
    """
    if name != "auto":
        return name
    return "ray" if rows >= WORTH and os.environ.get("RAY_ADDRESS") else "local"


def place_named(name: str) -> Place | None:
    """Where copies are to live: "threads", "ray", or None for "local", which is here."""
    if name not in ("local", "threads", "ray"):
        raise ValueError(f"bank {name!r} must be local, threads, ray or auto")
    return None if name == "local" else Threads() if name == "threads" else Actors()
