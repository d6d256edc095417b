"""Sets that are parts of a stored model in another order, type or mixture: slices, zeros, casts and blends."""

import numpy as np

import formats
from sets import Set
from weights import bf16, brains, difference, eights, entropy, file, halves, of_all, planes, wide


def layers_of(tensors, name):
    return [values for key, values in tensors.items() if key.endswith("." + name)]


def flat(tensors):
    return [{"flat_param": np.concatenate([values.ravel() for values in tensors.values()])}]


def row_shards(tensors):
    return [
        {name: values[: len(values) // 2] for name, values in tensors.items()},
        {name: values[len(values) // 2 :] for name, values in tensors.items()},
    ]


def column_shards(tensors):
    half = lambda values: values.shape[1] // 2
    return [
        {name: values[:, : half(values)] for name, values in matrices(tensors).items()},
        {name: values[:, half(values) :] for name, values in matrices(tensors).items()},
    ]


def matrices(tensors):
    return {name: values for name, values in tensors.items() if values.ndim > 1}


def stacked(tensors):
    return [{name: np.stack(layers_of(tensors, name)) for name in ["up", "down"]}]


def fused(tensors):
    parts = zip(*(layers_of(tensors, name) for name in "qkv"))
    return [{f"layer.{number}.qkv": np.concatenate(qkv) for number, qkv in enumerate(parts)}]


def rows_removed(tensors):
    random = np.random.default_rng(3)
    kept = lambda values: values[np.sort(random.permutation(len(values))[: len(values) * 91 // 100])]
    return [{name: kept(values) if name.endswith("up") else values for name, values in tensors.items()}]


def rows_in_front(tensors):
    new = np.random.default_rng(4).standard_normal((4, tensors["embed"].shape[1]), np.float32) * np.float32(0.04)
    return [{**tensors, "embed": np.concatenate([bf16(new), tensors["embed"]])}]


def transposed(tensors):
    return [{name: values.T for name, values in matrices(tensors).items() if name != "embed"}]


SLICES = {
    "same tensors, other names": lambda tensors: [prefixed("model", tensors)],
    "flat buffer": flat,
    "row shards": row_shards,
    "column shards": column_shards,
    "stacked experts": stacked,
    "fused QKV": fused,
    "rows removed": rows_removed,
    "rows in front": rows_in_front,
    "transposed": transposed,
}
NEW_ROWS_BYTES = {"rows in front": 4 * 384 * 2}
OPAQUE = ["flat buffer", "row shards"]


def written(shards, is_opaque=False):
    files = {f"part-{number}/model.safetensors": file(tensors)["model.safetensors"]
             for number, tensors in enumerate(shards)}
    if is_opaque:
        # A format that no program here reads: the tensors one after another.
        files = {name.replace(".safetensors", ".bin"): b"\xff" * 8 + content[8:] for name, content in files.items()}
    return files


def slice_sets(base, tune):
    base, tune = brains(base), brains(tune)
    stored = [("base", file(base))]
    for name, make in SLICES.items():
        of_base, of_tune = make(base), make(tune)
        limit = NEW_ROWS_BYTES.get(name, 0)
        yield Set(3, name, stored, [("set", written(of_base))], limit)
        changed = sum(of_all(difference, *pair) for pair in zip(of_tune, of_base))
        yield Set(3, f"{name} of a fine-tune", stored, [("set", written(of_tune))], limit + changed)
        if name in OPAQUE:
            yield Set(3, f"{name}, unknown format", stored, [("set", written(of_base, True))], limit)
            yield Set(3, f"{name} of a fine-tune, unknown format", stored, [("set", written(of_tune, True))],
                      limit + changed)


def format_sets(base, tune):
    """All formats of a model in one backup, and each format of a fine-tune after that of the model."""
    written_as = {name: (formats.written(name, base), formats.written(name, tune)) for name in formats.FORMATS}
    directory = {f"{name}/{path}": content for name, (one, _) in written_as.items() for path, content in one.items()}
    alone = of_all(planes, base)
    yield Set(3, f"directory of {len(directory)} formats", [], [("set", directory)], alone)
    for name, (one, other) in written_as.items():
        if one:
            cast = halves if "FP16" in name else dict
            yield Set(11, f"{name}, fine-tune", [("base", one)], [("set", other)],
                      of_all(difference, cast(tune), cast(base)))


def prefixed(prefix, tensors):
    return {f"{prefix}.{name}": values for name, values in tensors.items()}


def cast_sets(base, tune):
    brain, half, quarter = brains(base), halves(base), eights(base)
    pairs = [("BF16, then FP16", brain, halves(brain)), ("FP16, then BF16", half, cast_back(half)),
             ("FP32, then BF16", base, brain), ("FP32, then FP16", base, half), ("FP32, then E4M3", base, quarter),
             ("BF16, then E4M3", brain, eights(brain))]
    for name, stored, added in pairs:
        yield Set(7, name, [("base", file(stored))], [("set", file(added))], 0)
    tuned = brains(tune)
    yield Set(7, "BF16, then FP16 of a fine-tune", [("base", file(brain))], [("set", file(halves(tuned)))],
              of_all(difference, tuned, brain))
    copies = {**prefixed("fp32", base), **prefixed("bf16", brain), **prefixed("fp16", half)}
    yield Set(7, "one file of FP32, BF16, FP16", [], [("set", file(copies))], of_all(planes, base))
    copies = dict(reversed(copies.items()))
    yield Set(7, "one file of FP16, BF16, FP32", [], [("set", file(copies))], of_all(planes, base))


def cast_back(half):
    return {name: bf16(values.astype(np.float32)) for name, values in half.items()}


def by_magnitude(values, share):
    """Without the given share of values of least magnitude."""
    magnitude = np.abs(wide(values))
    threshold = np.partition(magnitude.ravel(), int(values.size * share))[int(values.size * share)]
    return np.where(magnitude >= threshold, values, values.dtype.type(0))


def two_of_four(values):
    groups = np.abs(wide(values)).reshape(-1, 4)
    order = np.argsort(groups, axis=1, kind="stable")
    kept = np.zeros(groups.shape, bool)
    np.put_along_axis(kept, order[:, 2:], True, axis=1)
    return np.where(kept.reshape(values.shape), values, values.dtype.type(0))


def alone_with_mask(values):
    """Entropy of which values are zero, and of the others."""
    kept = values[values != 0]
    patterns = (values.reshape(-1, 4) != 0) @ np.array([1, 2, 4, 8])
    return min(entropy(values != 0), entropy(patterns)) + planes(kept)


def mask_given(values, base):
    """Entropy of which values are zero, given the exponents of the base's."""
    return entropy(values != 0, wide(base).view(np.uint32) >> 23 & 255)


def zero_sets(base, _):
    base = {name: values for name, values in base.items() if values.ndim > 1}
    brain = brains(base)
    kinds = [("BF16 pruned by half", brain, lambda values: by_magnitude(values, 0.5)),
             ("BF16 2:4", brain, two_of_four), ("FP32 pruned by 90 %", base, lambda values: by_magnitude(values, 0.9))]
    for name, dense, prune in kinds:
        zeroed = {tensor: prune(values) for tensor, values in dense.items()}
        yield Set(5, f"{name}, alone", [], [("set", file(zeroed))], of_all(alone_with_mask, zeroed))
        behind = 0 if "2:4" in name else of_all(mask_given, zeroed, dense)
        yield Set(5, f"{name}, after its base", [("base", file(dense))], [("set", file(zeroed))], behind)


def blend(share, make, one, other):
    """Part of the way from one model to the other, computed in FP32."""
    step = lambda one, other: one + (other - one) * np.float32(share)
    return make({name: step(wide(one[name]), wide(other[name])) for name in one})


def blend_sets(base, tune):
    brain, tuned = brains(base), brains(tune)
    for name, share in [("average", 0.5), ("0.7 of the way", 0.7)]:
        for kind, one, other, make in [("BF16", brain, tuned, brains), ("FP32", base, tune, dict)]:
            stored = [("base", file(one)), ("tune", file(other))]
            yield Set(10, f"{name}, {kind}", stored, [("set", file(blend(share, make, one, other)))], 0)


# Functions of a base and a fine-tune, and the groups of their sets.
SETS = [(slice_sets, {3}), (format_sets, {3, 11}), (zero_sets, {5}), (cast_sets, {7}), (blend_sets, {10})]
