"""What a hub holds of one model: BF16, two fine-tunes, nine quantised files of each, one ONNX and one sharded copy."""

import numpy as np

import formats
from quantised import blocks_of, gguf, ggml, scale_bytes
from sets import Set
from weights import brains, difference, file, of_all, planes, wide

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


# What llama.cpp takes for tensors whose rows are no multiple of 256 values.
FALLBACKS = {"Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def blocks(values, kind):
    """Quantised rows and their type."""
    if values.shape[1] % 256 and kind.name in FALLBACKS:
        kind = type(kind)[FALLBACKS[kind.name]]
    return ggml(values, kind), kind


def shards(tensors):
    names = sorted(tensors)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    return {f"model-{number}-of-2.safetensors": file({name: tensors[name] for name in half})["model.safetensors"]
            for number, half in enumerate(halves, 1)}


def hub_sets(base, tune):
    """One set of many backups. Its limit has the floats by planes or differences, and the scales of K types.

    The second fine-tune is the model and the step of the first one, by one row further. The ONNX file has the values of
    the BF16 one in FP32.
    """
    from gguf import GGMLQuantizationType

    base, tune = ({name: values for name, values in model.items() if values.ndim == 2} for model in (base, tune))
    other = {name: base[name] + np.roll(tune[name] - base[name], 1, axis=0) for name in base}
    models = {name: brains(model) for name, model in [("base", base), ("tune-1", tune), ("tune-2", other)]}
    directories = [(name, file(model)) for name, model in models.items()]
    limit = of_all(planes, models["base"]) + sum(of_all(difference, models[f"tune-{number}"], models["base"])
                                                 for number in (1, 2))
    for name, model in models.items():
        for quantised in TYPES:
            made = {tensor: blocks(wide(values), GGMLQuantizationType[quantised]) for tensor, values in model.items()}
            directories.append((f"{name}-{quantised}", gguf(made)))
            for tensor, (_, kind) in made.items():
                if kind.name.endswith("K"):
                    limit += scale_bytes(blocks_of({tensor: made[tensor]}), kind.name)
    widened = {name: wide(values) for name, values in models["base"].items()}
    directories += [("onnx", formats.written("ONNX", widened)), ("sharded", shards(models["base"]))]
    yield Set(12, f"{len(directories)} directories of one family", [], directories, limit)


# Functions of a base and a fine-tune, and the groups of their sets.
SETS = [(hub_sets, {12})]
