"""Who stands at the door: signed tokens that name an asker, or an operator, and nothing that mixes up the two.

An asker's token carries the id of the unit that is protected. Everything rests on it: whoever could ask under another's
id would be shown that person's answers. So tokens are signed, expire, say for which models they are, and the two kinds
have keys of their own. What is wrong with a token is told in words that quote nothing of it.

Our own tokens are signed here, by the standard library's HMAC, and are no JSON web tokens: such a token names the
algorithm by which it is to be checked, and ours have one. Those of an identity service are PyJWT's to read
(`confide.service.verifiers`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from confide.service.base import Problem

__all__ = [
    "Caller", "Door", "Keys", "Kind", "NotAdmitted", "Tokens", "bearer", "check_private", "seconds", "subject_of",
]  # fmt: skip

Kind = Literal["asker", "operator"]

LONGEST = 4096
"""Characters of a token, or of a header that stands for one, that are looked at."""

SUBJECT = 256
"""Characters of a subject."""

KNOWN = 10_000
"""Tokens that are remembered as verified."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


class NotAdmitted(Problem):
    """Somebody who is not let in: 401 where nobody is known, 403 where it is the wrong person."""

    def __init__(self, status: Literal[401, 403], message: str) -> None:
        super().__init__(status, "token", message)


@dataclass(frozen=True, slots=True, repr=False)
class Caller:
    """Somebody who was let in."""

    subject: str
    """Whose requests these are, in the door's own namespace: what the model knows this person by."""
    models: frozenset[str] | None = None
    """The models that may be used; None for all."""

    def may(self, model: str) -> bool:
        """Whether this caller may use a model."""
        return self.models is None or model in self.models

    def check(self, model: str) -> None:
        """Refuse a model that this caller may not use."""
        if self.models is not None and model not in self.models:
            raise NotAdmitted(403, "this token is for another model: ask the operator for one for this model")


class Door(Protocol):
    """Tells who sends a request: the part to replace where people are known from elsewhere."""

    def named(self, subject: str) -> str:
        """A person's name in this door's namespace, so that two doors never mean different people by one name."""

    def admit(self, headers: Mapping[str, str], peer: str | None) -> Caller:
        """Who it is, from the request's headers and the address it came from; `NotAdmitted` otherwise."""


def check_private(path: Path) -> None:
    """Refuse a secret that others than its owner may read or write, where the system can tell."""
    try:
        mode = path.stat().st_mode if os.name == "posix" else 0
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if mode & 0o077:
        raise ValueError(f"{path} is a secret, and others than its owner may use it: chmod 600 {path}")


def subject_of(name: object) -> str:
    """A person's name as every door means it: Unicode in its composed form (NFC), so that one spelling is one person.

    Headers, tokens and JSON bring the same name in different bytes; all of them come through here.

    Examples
    --------
    >>> subject_of("Rene\\u0301") == subject_of("Ren\\u00e9")
    True
    """
    found = unicodedata.normalize("NFC", name) if isinstance(name, str) else ""
    if not (0 < len(found) <= SUBJECT and found.isprintable()):
        raise ValueError(f"a subject is 1 to {SUBJECT} printable characters")
    return found


class Keys:
    """Secret keys by name, oldest first: the last one signs, all of them verify. To end a key, remove its line.

    Examples
    --------
    >>> keys = Keys({"k1": bytes(32)})
    >>> keys.newest[0]
    'k1'
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys or any(len(key) < _KEY_BYTES or not _NAME.fullmatch(name) for name, key in keys.items()):
            raise ValueError(f"keys must be at least one, each with a short name and {_KEY_BYTES} secret bytes")
        self._keys = dict(keys)

    @property
    def newest(self) -> tuple[str, bytes]:
        """The key that signs."""
        return next(reversed(self._keys.items()))

    def get(self, name: object) -> bytes | None:
        """A key by its name."""
        return self._keys.get(name) if isinstance(name, str) else None

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys in a file, one a line: its name, a space, and the secret in hexadecimal."""
        check_private(path)
        try:
            lines = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
            return cls({name: bytes.fromhex(secret) for name, secret in lines})
        except OSError as error:
            raise ValueError(f"cannot read the keys in {path}: {error.strerror}") from None
        except ValueError:  # its words might quote the file
            hint = "remove it, and a new one is made; old tokens end then"
            raise ValueError(f"{path} is no file of keys: {hint}") from None

    @classmethod
    def make(cls, path: Path) -> Keys:
        """The keys in this file, which is made with one key, for its owner's eyes only, if there is none."""
        name, secret = f"k{int(time.time()):x}", secrets.token_bytes(_KEY_BYTES)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(f"{name} {secret.hex()}\n")
        except FileExistsError:
            return cls.read(path)
        except OSError as error:
            raise ValueError(f"cannot write the keys to {path}: {error.strerror}") from None
        return cls({name: secret})


class Tokens:
    """Confide's own tokens: `confide-asker.<claims>.<HMAC-SHA256>`, or `confide-operator.…` with the operators' keys.

    Parameters
    ----------
    kind
        Whom these tokens admit; the other kind is refused, whatever it says.
    keys
        That kind's own keys.
    clock
        Seconds since 1970; for tests.

    Examples
    --------
    >>> tokens = Tokens("asker", Keys({"k1": bytes(32)}))
    >>> token = tokens.sign("ann", expires=3600, models=["spam"])
    >>> caller = tokens.admit({"authorization": f"Bearer {token}"}, None)
    >>> caller.subject, sorted(caller.models)
    ('tokens:ann', ['spam'])
    """

    def __init__(self, kind: Kind, keys: Keys, *, clock: Callable[[], float] = time.time) -> None:
        self.kind, self._keys, self._clock = kind, keys, clock
        self._head, self._other = f"confide-{kind}", f"confide-{'operator' if kind == 'asker' else 'asker'}"
        self._known: dict[str, tuple[float, Caller]] = {}  # tokens that were verified, with their ends

    def renew(self, keys: Keys) -> None:
        """Take other keys from now on: a token whose key is not among them is good for nothing any more."""
        self._keys, self._known = keys, {}

    def named(self, subject: str) -> str:
        """See `Door`."""
        return f"tokens:{subject}"

    def sign(self, subject: str, *, expires: float, models: list[str] | None = None) -> str:
        """A token for this subject, good for so many seconds, for these models or for all."""
        subject = subject_of(subject)
        if not (math.isfinite(expires) and expires > 0):
            raise ValueError("a token expires after a number of seconds above 0")
        kid, key = self._keys.newest
        claims = {"sub": subject, "exp": int(self._clock() + expires), "kid": kid, "models": models}
        body = f"{self._head}.{_packed(json.dumps(claims, separators=(',', ':')).encode())}"
        token = f"{body}.{_packed(_mac(key, body))}"
        if len(token) > LONGEST - len("Bearer "):
            raise ValueError("a token for so many models is too long: leave them out for all, or sign several")
        return token

    def admit(self, headers: Mapping[str, str], peer: str | None) -> Caller:
        """See `Door`."""
        token = bearer(headers)
        end, caller = self._known.get(token) or self._verified(token)
        if end <= self._clock():
            raise NotAdmitted(401, "this token has expired: ask the operator for a new one")
        return caller

    def _verified(self, token: str) -> tuple[float, Caller]:
        head, _, rest = token.partition(".")
        if head == self._other:
            raise NotAdmitted(403, f"this door is for {self.kind}s, and this token is not for one")
        claims = self._claims(head, rest)
        models = claims["models"]
        known = claims["exp"], Caller(self.named(claims["sub"]), None if models is None else frozenset(models))
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[token] = known
        return known

    def _claims(self, head: str, rest: str) -> dict[str, Any]:
        """What a token says, if one of our keys has signed it: its words count for nothing before."""
        try:
            body, _, mac = rest.partition(".")
            claims = json.loads(_unpacked(body))
            key = self._keys.get(claims["kid"])
            signed = hmac.compare_digest(_unpacked(mac), _mac(key or bytes(_KEY_BYTES), f"{head}.{body}"))
            if head == self._head and key is not None and signed:
                return {"sub": subject_of(claims["sub"]), "exp": claims["exp"], "models": claims["models"]}
        except Exception:  # whatever it is
            pass
        raise NotAdmitted(401, "this is not a token that this service has signed: ask the operator for one")


def bearer(headers: Mapping[str, str]) -> str:
    """The token in a request's Authorization header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST:
        raise NotAdmitted(401, "send a token: Authorization: Bearer ...")
    return token.strip()


def seconds(text: str) -> float:
    """A length of time as people write it: 90s, 15m, 12h, 30d.

    Examples
    --------
    >>> seconds("30d") / 86_400
    30.0
    >>> seconds("soon")
    Traceback (most recent call last):
    ...
    ValueError: write a length of time as 90s, 15m, 12h or 30d
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError("write a length of time as 90s, 15m, 12h or 30d")
    return float(int(found[1]) * _UNITS[found[2]])


def _mac(key: bytes, body: str) -> bytes:
    return hmac.new(key, body.encode(), hashlib.sha256).digest()


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
