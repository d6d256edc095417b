#!/usr/bin/env python3
"""Makes datasets/sample, the small committed set of the quick measurement, from real data.

    datasets/sample.py CORPUS [TARGET]

CORPUS has code/Django-5.1.15.tar and code/Django-5.2.tar (datasets/django.sh) and models/minilm-{base-bf16,ft-B-bf16,
base-fp32}: directories with a model.safetensors of sentence-transformers/all-MiniLM-L6-v2. These are its BF16 cast, a
fine-tune of that, and the published FP32 weights. The sample has:

- code: two packages of each archive, as archives;
- models: one matrix of each model, as models of one tensor.

The checksums (SHA256SUMS) are written last.
"""

import hashlib
import io
import json
import struct
import sys
import tarfile
from pathlib import Path

PACKAGES = ("django/template/", "django/http/")
TENSOR = "encoder.layer.0.attention.self.query.weight"
MODELS = {"base-bf16": None, "ft-B-bf16": "base-bf16", "base-fp32": None}


def code(corpus, target):
    for name in ("Django-5.1.15.tar", "Django-5.2.tar"):
        with tarfile.open(corpus / "code" / name) as whole, tarfile.open(target / "code" / name, "w") as part:
            for member in whole:
                below = member.name.split("/", 1)[-1]
                if member.isfile() and (below.startswith(PACKAGES) or below == "LICENSE"):
                    part.addfile(member, whole.extractfile(member))


def model(corpus, target, name, base):
    with open(corpus / "models" / f"minilm-{name}" / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensor = json.loads(file.read(length))[TENSOR]
        start, end = tensor["data_offsets"]
        file.seek(8 + length + start)
        values = file.read(end - start)
    tensor["data_offsets"] = [0, len(values)]
    header = json.dumps({TENSOR: tensor}).encode()
    header += b" " * (-len(header) % 8)
    directory = target / "models" / name
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values)
    if base:
        (directory / "README.md").write_text(f"---\nbase_model: fhrd-sample/{base}\n---\n")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    corpus = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent / "sample"
    (target / "code").mkdir(parents=True)
    code(corpus, target)
    for name, base in MODELS.items():
        model(corpus, target, name, base)
    lines = io.StringIO()
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.write(f"{digest}  {path.relative_to(target)}\n")
    (target / "SHA256SUMS").write_text(lines.getvalue())


main()
