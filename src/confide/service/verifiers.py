"""Doors for people who are known from elsewhere: by an identity service's JWT, or by a header of a proxy in front."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confide.extras import need
from confide.service.doors import Caller, NotAdmitted, bearer, check_private, subject_of

__all__ = ["JwtDoor", "ProxyDoor"]

SECRET = 32
"""Characters of a shared secret, at least: as many bytes as SHA-256 has."""


class JwtDoor:
    """People with a JSON web token of an identity service. Needs PyJWT, which the extra `jwt` brings.

    Parameters
    ----------
    key
        The issuer's public key as PEM, or the shared secret of HS256 and its like.
    algorithms
        Those that are accepted, and no other: a token does not choose.
    audience
        What must stand in its `aud`: this service. Tokens for others are refused.
    issuer
        What must stand in its `iss`: part of everybody's name here.
    claim
        Where the subject stands.
    """

    def __init__(
        self, key: str, algorithms: Sequence[str], audience: str, issuer: str, *, claim: str = "sub"
    ) -> None:
        self._jwt: Any = need("jwt", "jwt", "a door for JSON web tokens")
        if not algorithms or "none" in map(str.lower, algorithms):
            raise ValueError("algorithms must be those that the issuer signs with, such as ['EdDSA']")
        self._key, self._algorithms = key, list(algorithms)
        self._audience, self._issuer, self._claim = audience, issuer, claim

    @classmethod
    def of(cls, key: Path, **options: Any) -> JwtDoor:
        """With the key in a file."""
        return cls(cls.read(key, options["algorithms"]), **options)

    def renew(self, key: Path, algorithms: Sequence[str]) -> None:
        """Take the key in a file from now on: tokens that the old one signed are good for nothing any more.

        A key of other algorithms is refused: as a shared secret a public key would let everybody sign.
        """
        if list(algorithms) != list(self._algorithms):
            raise ValueError("doors.jwt.algorithms are other ones than those that are in use: start it again")
        self._key = self.read(key, algorithms)

    @staticmethod
    def read(key: Path, algorithms: Sequence[str]) -> str:
        """The key in a file: a shared secret without the line's end that editors write behind it."""
        shared = any(one.upper().startswith("HS") for one in algorithms)
        try:
            text = key.read_text(encoding="ascii").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"cannot read the issuer's key in {key}") from None
        if shared:
            check_private(key)
            if len(text) < SECRET:
                raise ValueError(f"the secret in {key} has fewer than {SECRET} characters, and could be guessed")
        return text

    def named(self, subject: str) -> str:
        """See `Door`."""
        return f"jwt:{self._issuer}:{subject}"

    def admit(self, headers: Mapping[str, str], peer: str | None) -> Caller:
        """See `Door`."""
        token = bearer(headers)
        if token.startswith("confide-operator."):
            raise NotAdmitted(403, "this door is for askers, and this token is not for one")
        needed = {"require": ["exp", "aud", "iss", self._claim]}
        try:
            claims = self._jwt.decode(
                token, self._key, algorithms=self._algorithms, audience=self._audience, issuer=self._issuer,
                options=needed,
            )  # fmt: skip
            return Caller(self.named(subject_of(claims[self._claim])))
        except Exception:  # its words might quote the token
            raise NotAdmitted(401, "this token is not valid here, or has expired: sign in again") from None


class ProxyDoor:
    """People whom a proxy in front has authenticated, and whom it names in a header.

    The header counts only from the proxies' own addresses, and only once: a proxy must replace what others send, and
    where it only adds its own, nobody is let in. A name comes in UTF-8; blanks around it are no part of it.

    Parameters
    ----------
    header
        Its name, such as "x-forwarded-user".
    trusted
        The proxies' addresses or networks; nobody is trusted unless named.

    Examples
    --------
    >>> door = ProxyDoor("x-forwarded-user", ["10.0.0.0/8"])
    >>> door.admit({"x-forwarded-user": "ann"}, "10.1.2.3").subject
    'proxy:ann'
    >>> door.admit({"x-forwarded-user": "ann"}, "192.0.2.7")
    Traceback (most recent call last):
    ...
    confide.service.doors.NotAdmitted: come through the proxy: requests from elsewhere are not let in
    """

    def __init__(self, header: str, trusted: Sequence[str]) -> None:
        if not trusted:
            raise ValueError("name the proxies that are trusted: their addresses, or networks such as 10.0.0.0/8")
        self._header = header.lower()
        self._trusted = [ipaddress.ip_network(one) for one in trusted]
        self.passed = ("authorization", self._header)
        """The headers that a model's owner elsewhere needs to know the same people."""

    def named(self, subject: str) -> str:
        """See `Door`."""
        return f"proxy:{subject}"

    def admit(self, headers: Mapping[str, str], peer: str | None) -> Caller:
        """See `Door`."""
        try:
            address = ipaddress.ip_address(peer or "")
            known = any(address in network for network in self._trusted)
        except ValueError:
            known = False
        if not known:
            raise NotAdmitted(401, "come through the proxy: requests from elsewhere are not let in")
        if headers.get("authorization", "").startswith("Bearer confide-operator."):
            raise NotAdmitted(403, "this door is for askers, and this token is not for one")
        try:
            (name,) = (value for known, value in headers.items() if known.lower() == self._header)
            return Caller(self.named(subject_of(name.strip(" \t").encode("latin-1").decode())))
        except UnicodeError:
            raise NotAdmitted(401, "the proxy's header is not UTF-8: let the proxy send names in UTF-8") from None
        except ValueError:
            raise NotAdmitted(401, "the proxy named nobody: sign in first") from None
