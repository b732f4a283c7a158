"""Files with secrets are their owner's alone, and a line's end is no part of a secret."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest

from confide.service.doors import Keys, NotAdmitted
from confide.service.verifiers import JwtDoor

SECRET = "s" * 40
OPTIONS = {"algorithms": ["HS256"], "audience": "a", "issuer": "i"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o660])
def test_keys_that_others_may_use_are_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    Keys.make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    for read in (Keys.read, Keys.make):
        with pytest.raises(ValueError, match=f"chmod 600 {path}"):
            read(path)
    path.chmod(0o400)
    assert Keys.read(path).newest


def secret(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_end_of_a_line_is_no_part_of_a_shared_secret(tmp_path: Path, end: str) -> None:
    door = JwtDoor.of(secret(tmp_path, SECRET + end), **OPTIONS)
    token = jwt.encode({"sub": "ann", "aud": "a", "iss": "i", "exp": 4_000_000_000}, SECRET, "HS256")
    assert door.admit({"authorization": f"Bearer {token}"}, None).subject == "jwt:i:ann"


def test_a_shared_secret_is_private_and_long(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chmod 600"):
        JwtDoor.of(secret(tmp_path, SECRET, 0o644), **OPTIONS)
    with pytest.raises(ValueError, match="fewer than 32 characters") as refused:
        JwtDoor.of(secret(tmp_path, "weak\n"), **OPTIONS)
    assert "weak" not in str(refused.value)
    JwtDoor.of(secret(tmp_path, "an issuer's public key", 0o644), **{**OPTIONS, "algorithms": ["EdDSA"]})


def test_a_renewed_key_is_of_the_algorithms_in_use(tmp_path: Path) -> None:
    """As a shared secret a public key would let everybody sign who knows it, and that is everybody."""
    door, public = JwtDoor.of(secret(tmp_path, SECRET), **OPTIONS), "an issuer's public key, which all may know"
    claims = {"aud": OPTIONS["audience"], "iss": OPTIONS["issuer"], "sub": "eve", "exp": 1 << 33}
    with pytest.raises(ValueError, match="start it again"):
        door.renew(secret(tmp_path, public, 0o644), ["EdDSA"])
    with pytest.raises(NotAdmitted):
        door.admit({"authorization": f"Bearer {jwt.encode(claims, public, 'HS256')}"}, None)
    fresh = SECRET[::-1] + "another"
    door.renew(secret(tmp_path, fresh), OPTIONS["algorithms"])
    assert door.admit({"authorization": f"Bearer {jwt.encode(claims, fresh, 'HS256')}"}, None).subject == "jwt:i:eve"
