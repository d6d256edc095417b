"""Opens an encrypted repository by docs/FORMAT.md alone, with the code of fhrd_restore.py and none of fhrd's.

Usage: read_encrypted.py FIXTURE FORMAT.md

FIXTURE has `repository`, `password` and `key-file`. The program opens every key slot with the secret that fits its
kind, opens every sealed blob, and checks names, commitments and checksums. It then opens the example of FORMAT.md.
"""

import re
import sys
from pathlib import Path

import fhrd_restore as fhrd

PUBLIC = {"config", "config-copy", "keys"}


def main() -> None:
    fixture, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
    repository = fixture / "repository"
    secrets = {
        "password": ((fixture / "password").read_bytes().splitlines()[0], None),
        "key file": (None, (fixture / "key-file").read_bytes()),
    }
    opened_by = {}
    for kind, secret in secrets.items():
        store = fhrd.Store(str(repository))
        assert store.is_encrypted and store.key == b"", "a key in the clear"
        store.unlock(*secret)
        opened_by[kind] = store
    assert opened_by["password"].masters == opened_by["key file"].masters
    assert opened_by["password"].key == opened_by["key file"].key
    slots = store.names("keys", "[0-9a-f]{64}")
    opening = {kind: [slot for slot in slots if store.open_slot(slot, *secret)] for kind, secret in secrets.items()}
    assert all(len(opened) == 1 for opened in opening.values()), "each slot opens with the secret of its kind only"
    assert sorted(opening["password"] + opening["key file"]) == slots
    salts, generations = set(), set()
    paths = [path.relative_to(repository) for path in sorted(repository.rglob("*")) if path.is_file()]
    sealed = [path for path in paths if path.parts[0] not in PUBLIC]
    for path in sealed:
        with store.blob(str(path)) as blob:
            if re.fullmatch("[0-9a-f]{64}", path.name):
                assert blob.hash() == path.name, path
            assert blob.read(0, blob.size).startswith(b"FHRD"), path
            salts.add(blob.header[24:56])
            generations.add(blob.header[12])
    assert len(salts) == len(sealed) >= 6, (len(salts), len(sealed))
    assert generations == set(store.masters) == {1, 2}, (generations, store.masters.keys())

    section = text[text.index("## 18.") : text.index("## 19.")]
    example = bytes.fromhex("".join(re.search("```\n(4648.*?)```", section, re.DOTALL).group(1).split()))
    store.masters = {1: [b"\x03" * 32]}
    assert store.unseal(example, "containers", "the example") == b"hello, world"
    print(f"{len(slots)} key slots and {len(sealed)} blobs opened")


if __name__ == "__main__":
    main()
