#!/bin/sh
# How well a bit distance below 4 separates model families, over every pair of the BF16 models in CORPUS. CORPUS is a
# directory of directories with a model.safetensors each. The family is the part of their name before the first dash.
#
#   datasets/families.sh CORPUS      FHRD=./target/release/fhrd selects another program
set -eu
corpus=${1:?usage: datasets/families.sh CORPUS}
exec python3 - "${FHRD:-fhrd}" "$corpus" <<'PYTHON'
import itertools, json, pathlib, subprocess, sys

program, corpus = sys.argv[1], pathlib.Path(sys.argv[2])


def is_bf16(path):
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    types = {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    return "BF16" in types and not types & {"F16", "F32"}


models = [path for path in sorted(corpus.glob("*/model.safetensors")) if is_bf16(path)]
table = {(near, same): 0 for near in (True, False) for same in (True, False)}
for one, other in itertools.combinations(models, 2):
    output = subprocess.run([program, "distance", "--json", one, other], check=True, stdout=subprocess.PIPE).stdout
    report = json.loads(output)
    # Two models without a common tensor are not one family.
    distance = report["bit_distance"]
    near = distance is not None and distance < report["threshold"]
    names = one.parent.name, other.parent.name
    same = names[0].split("-")[0] == names[1].split("-")[0]
    table[near, same] += 1
    print(f"{names[0]:30} {names[1]:30}", "-" if distance is None else f"{distance:.3f}")
print(f"\n{'':24}{'one family':>12}{'two families':>14}")
print(f"{'distance below 4':24}{table[True, True]:12}{table[True, False]:14}")
print(f"{'other distance, or none':24}{table[False, True]:12}{table[False, False]:14}")
right = table[True, True] + table[False, False]
print(f"accuracy {100 * right / max(1, sum(table.values())):.1f} % of {sum(table.values())} pairs")
PYTHON
