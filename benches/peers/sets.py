"""What a row of the table is."""

from typing import NamedTuple


class Set(NamedTuple):
    """Backups of directories: of `stored` ones first, then of `added` ones, whose bytes count.

    A directory is a name and the content of each file by its path. One of the same name takes the place of an earlier
    one. `limit` is in bytes.
    """

    group: int
    name: str
    stored: list
    added: list
    limit: float
