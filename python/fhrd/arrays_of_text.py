"""Text as arrays of bytes, which a safetensors file can hold."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["text_array", "text_of"]


def text_array(text: str) -> numpy.ndarray[Any, Any]:
    """The UTF-8 bytes of a text."""
    return numpy.frombuffer(text.encode(), numpy.uint8)


def text_of(array: Any) -> str:
    """The text of `text_array`."""
    raw: bytes = numpy.asarray(array).astype(numpy.uint8, copy=False).tobytes()
    return raw.decode()
