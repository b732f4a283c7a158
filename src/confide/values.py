"""What one value is as a number, by a rule that looks at it alone: the same at every door.

A table's library may read a whole column in another way because of one value in it: an integer beside a missing value
becomes a float, a number beside a word a text. So 3, 3.0 and NumPy's numbers are one number here, and where a number
was declared the text "3" is that number too.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MISSING", "number_in", "plain_number"]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""What stands for nothing where a number could be, in any case of letters."""

_WHOLE = float(1 << 53)


def number_in(text: str) -> float | None:
    """The number that this text is; None where it stands for nothing, ValueError where it is something else.

    Examples
    --------
    >>> number_in(" 41 "), number_in("4.1e1"), number_in("NA")
    (41.0, 41.0, None)
    >>> number_in("infinity")
    Traceback (most recent call last):
    ...
    ValueError: this text is no number
    """
    text = str.__str__(text).strip()  # a subclass may answer otherwise every time
    if text.lower() in MISSING:
        return None
    if "_" not in text and any(map(str.isdecimal, text)):  # Python reads 1_000 and infinity as numbers
        try:
            return float(text)
        except ValueError:
            pass
    raise ValueError("this text is no number") from None


def plain_number(value: Any) -> int | float:
    """A number as Python's own: an int where it is whole and below 2⁵³, whatever kind it came as.

    Examples
    --------
    >>> import numpy as np
    >>> plain_number(3.0), plain_number(np.int8(3)), plain_number(np.float32(0.5)), plain_number(-0.0)
    (3, 3, 0.5, 0)
    """
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < _WHOLE else number
