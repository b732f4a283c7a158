"""Static word vectors that come with the package `wordllama`: no network, no framework, the same bits everywhere."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.extras import need

_SELF = "the encoder 'wordllama'"
_TABLE, _TOKENS = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"


class WordLlama:
    """The mean of the vectors of a text's tokens, 256 numbers.

    Only the package's files are read; none of its code runs. The vectors are half floats, so their sums are exact in
    doubles, whatever the order, and a mean is one rounding away from them. Nothing of a text is kept.

    Examples
    --------
    >>> encoder = WordLlama()
    >>> encoder.encode(["a fine film", ""]).shape
    (2, 256)
    """

    def __init__(self) -> None:
        spec = importlib.util.find_spec("wordllama")
        places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
        folder = next((place for place in places if (place / _TABLE).is_file() and (place / _TOKENS).is_file()), None)
        if folder is None:
            raise ValueError(f'{_SELF} needs one more package: pip install "confide[text]"')
        tokenizers, tensors = need("tokenizers", "text", _SELF), need("safetensors.numpy", "text", _SELF)
        self._table: NDArray[np.float16] = tensors.load_file(folder / _TABLE)["embedding.weight"]
        self._tokens = _forgetful(tokenizers, (folder / _TOKENS).read_text(encoding="utf-8"))
        self._tokens.no_truncation()
        self._tokens.no_padding()

    def encode(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One row a text; zeros for a text without tokens."""
        out = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            found = self._tokens.encode(text, add_special_tokens=False).ids
            if found:
                row[:] = self._table[found].sum(axis=0, dtype=np.float64) / len(found)
        return out

    def __repr__(self) -> str:
        return "WordLlama()"


def _forgetful(tokenizers: Any, described: str) -> Any:
    """The tokenizer without its cache: texts that it has met it would know again, and sooner."""
    tokens, parts = tokenizers.Tokenizer.from_str(described), json.loads(described)["model"]
    rest = {name: part for name, part in parts.items() if name not in ("type", "vocab", "merges") and part is not None}
    merges = [tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in parts["merges"]]
    tokens.model = tokenizers.models.BPE(parts["vocab"], merges, cache_capacity=0, **rest)
    return tokens
