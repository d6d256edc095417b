"""Opens an encrypted repository by docs/FORMAT.md alone, with none of fhrd's code.

Usage: read_encrypted.py FIXTURE FORMAT.md

FIXTURE has `repository`, `password` and `key-file`. The program opens every key slot with the secret that fits its
kind, opens every sealed blob, and checks names, commitments and checksums. It then opens the example of FORMAT.md.
It needs the packages argon2-cffi, blake3, cbor2 and cryptography.
"""

import re
import struct
import sys
from pathlib import Path

import argon2.low_level
import cbor2
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

HEADER_BYTES, BLOCK_BYTES, TAG_BYTES = 64, 16384, 16
CIPHERS = {1: AESGCM, 2: ChaCha20Poly1305}
PUBLIC = {"config", "config-copy", "keys"}


def derive(context: str, material: bytes) -> bytes:
    return blake3(material, derive_key_context=context).digest()


def open_envelope(blob: bytes, kind: bytes) -> bytes:
    magic, version, required, _, length = struct.unpack_from("<8sHQQQ", blob)
    assert (magic, version, required) == (kind, 1, 0), blob[:18]
    assert len(blob) == 34 + length + 32
    assert blake3(blob[:-32]).digest() == blob[-32:]
    return blob[34:-32]


def open_sealed(masters: dict[int, bytes], directory: str, blob: bytes) -> bytes:
    header = blob[:HEADER_BYTES]
    magic, version, cipher, zero, generation, length = struct.unpack_from("<8sHBBIQ", header)
    assert (magic, version, zero) == (b"FHRDSEAL", 1, 0)
    assert blake3(header[:56]).digest()[:8] == header[56:]
    key = derive("fhrd 2026-11 sealed blob", masters[generation] + header[24:56] + directory.encode())
    content, position, block = b"", HEADER_BYTES, 0
    while block == 0 or position < len(blob):
        stored = blob[position : position + BLOCK_BYTES + TAG_BYTES]
        content += CIPHERS[cipher](key).decrypt(block.to_bytes(12, "little"), stored, header)
        position, block = position + len(stored), block + 1
    assert len(content) == length
    return content


def open_slot(slot: dict, config: bytes, password: bytes, key_file: bytes) -> dict:
    if slot[0] == 1:
        memory, passes, lanes = slot[4]
        kind = argon2.low_level.Type.ID
        key = argon2.low_level.hash_secret_raw(password, slot[3], passes, memory, lanes, 32, kind, 0x13)
    else:
        key = derive("fhrd 2026-11 key file", blake3(key_file).digest() + slot[3])
    assert slot[6] == derive("fhrd 2026-11 key slot commitment", key + slot[3]), "another secret"
    associated = cbor2.dumps({**slot, 7: b""}, canonical=False)
    cipher = CIPHERS[slot[5]](derive("fhrd 2026-11 key slot", key + slot[3]))
    keyring = cbor2.loads(cipher.decrypt(bytes(12), slot[7], associated))
    assert keyring[1] == blake3(config).digest()
    first = min(keyring[2], key=lambda master: master[0])
    commitment = derive("fhrd 2026-11 keyring commitment", first[1] + keyring[0])
    assert cbor2.loads(config)[5][1] == commitment
    return keyring


def main() -> None:
    fixture, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
    repository = fixture / "repository"
    password = (fixture / "password").read_bytes().splitlines()[0]
    config = open_envelope((repository / "config").read_bytes(), b"FHRDCONF")
    assert 1 not in cbor2.loads(config), "a key in the clear"
    keyrings, kinds = [], set()
    for path in sorted((repository / "keys").iterdir()):
        blob = path.read_bytes()
        assert blake3(blob).hexdigest() == path.name
        slot = cbor2.loads(open_envelope(blob, b"FHRDKEYS"))
        kinds.add(slot[0])
        keyrings.append(open_slot(slot, config, password, (fixture / "key-file").read_bytes()))
    assert kinds == {1, 2}, kinds
    assert all(keyring == keyrings[0] for keyring in keyrings)
    masters = {master[0]: master[1] for master in keyrings[0][2]}
    salts, opened, generations = set(), 0, set()
    for path in sorted(repository.rglob("*")):
        directory = path.relative_to(repository).parts[0]
        if not path.is_file() or directory in PUBLIC:
            continue
        blob = path.read_bytes()
        if re.fullmatch("[0-9a-f]{64}", path.name):
            assert blake3(blob).hexdigest() == path.name, path
        content = open_sealed(masters, directory, blob)
        assert content.startswith(b"FHRD"), (path, content[:8])
        salts.add(blob[24:56])
        generations.add(blob[12])
        opened += 1
    assert len(salts) == opened and opened >= 6, (len(salts), opened)
    assert generations == set(masters) == {1, 2}, (generations, masters.keys())

    section = text[text.index("## 18.") : text.index("## 19.")]
    example = bytes.fromhex("".join(re.search("```\n(4648.*?)```", section, re.S).group(1).split()))
    assert open_sealed({1: b"\x03" * 32}, "containers", example) == b"hello, world"
    print(f"{len(keyrings)} key slots and {opened} blobs opened")


main()
