"""Shards as Ray actors, on a cluster that exists or on one that is started here (`pip install "confide[ray]"`).

The protocol is `confide.banks.shards`'; this is how calls travel. An actor is never restarted, and no call is repeated
by Ray itself (`max_restarts=0`, `max_task_retries=0`): what became of a shard is decided in one place.

**Ray runs code for whoever reaches its ports**, and what passes through it is private: docs/threat-model.md. A cluster
that is started here listens on all of the machine's addresses, so it takes calls only with a token, fresh each time, in
the environment of this process and its children; it has no dashboard and reports nothing.
"""

from __future__ import annotations

import os
import pickle
import secrets
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from confide._checks import integer
from confide.banks.shard import Recipe, Shard
from confide.banks.shards import Lost, Place, Threads, Unheard
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

_LINE = 64  # bytes of a cache line, at which arrays begin


class Actor(Shard):
    """A shard that is spoken to in bytes."""

    def told(self, call: str, sizes: Sequence[int], *pieces: bytes) -> Any:
        """Do what a call says with what was packed into these pieces."""
        blob, parts, begin = memoryview(bytearray().join(pieces)), [], 0
        for size in sizes:
            parts.append(blob[begin : begin + size])
            begin += -(-size // _LINE) * _LINE
        return getattr(self, call)(pickle.loads(parts[0], buffers=parts[1:]))

    def told_all(self, call: str, number: int, given: Sequence[Any]) -> Any:
        """Do what a call says with what is given for the shard of this number."""
        return getattr(self, call)(given[number])


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

    def start(self, recipe: Recipe, own: range) -> Any:
        """An actor, wherever the cluster has room."""
        return self._actor.remote(recipe, own.start, own.stop)

    def begin(self, shards: Sequence[Any], call: str, given: Sequence[Any]) -> list[Any]:
        """What is small goes along with each call; what is large is brought to the cluster once, for all of them."""
        begun, stored = [], None
        for number, shard in enumerate(shards):
            if stored is None:
                buffers: list[Any] = []
                head = self._ray.cloudpickle.dumps(given[number], protocol=5, buffer_callback=buffers.append)
                parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
                if sum(part.nbytes for part in parts) <= INLINE:
                    begun.append(shard.told.remote(call, [part.nbytes for part in parts], *_pieces(parts)))
                    continue
                stored = self._cluster.put(list(given))
            begun.append(shard.told_all.remote(call, number, stored))
        return begun

    def finish(self, begun: Any) -> Any:
        """However long it takes."""
        ray = self._cluster
        try:
            return ray.get(begun)
        except ValueError:  # the shard's own words
            raise
        except ray.exceptions.ActorUnavailableError:
            raise Unheard from None
        except ray.exceptions.RayError:
            raise Lost from None

    def stop(self, shard: Any) -> None:
        """At once, wherever it is."""
        self._cluster.kill(shard, no_restart=True)


def _pieces(parts: Sequence[memoryview]) -> list[bytes]:
    """These one after the other, each at the beginning of a cache line, in pieces that travel with a call."""
    blob = b"".join(one for part in parts for one in (part, bytes(-part.nbytes % _LINE)))
    return [blob[i : i + PIECE] for i in range(0, len(blob), PIECE)]


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
