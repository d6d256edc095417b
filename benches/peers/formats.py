#!/usr/bin/env python3
"""Stored bytes of a model and of a fine-tune of it in formats of other frameworks, by two programs.

Each format is a repository of its own: first the model, then the fine-tune. The table has the bytes that each backup
adds, in MB (10^6), and the bytes of the file, for each program. Every snapshot is restored and compared. One layer of
the model and 4,000 rows of its embedding are taken, in FP32 (Core ML: FP16).

    benches/peers/formats.py --base corpus/models/minilm-base-fp32 --tune corpus/models/minilm-ft-A2-fp32 OLD/fhrd NEW/fhrd

Files are written by the packages onnx, torch, h5py, tflite (with flatbuffers), msgpack in the way of Flax, and
coremltools. A format whose package is missing is left out.
"""

import argparse
import os
import tempfile

import numpy as np

from models import added, read_model, safetensors


def onnx(path, tensors):
    from onnx import TensorProto, helper, numpy_helper, save

    initializers = [numpy_helper.from_array(values, name) for name, values in tensors.items()]
    name, values = next(iter(tensors.items()))
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, values.shape)
    graph = helper.make_graph([helper.make_node("Identity", [name], ["output"])], "graph", [], [output], initializers)
    save(helper.make_model(graph), path)


def torch_legacy(path, tensors):
    import torch

    state = {name: torch.from_numpy(values.copy()) for name, values in tensors.items()}
    torch.save(state, path, _use_new_zipfile_serialization=False)


def hdf5(path, tensors):
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in tensors.items():
            file[name.replace(".", "/")] = values


def tflite(path, tensors):
    import flatbuffers
    import tflite as lite

    def vector(start, offsets):
        start(builder, len(offsets))
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    def buffer(values):
        data = builder.CreateByteVector(values) if values else None
        lite.BufferStart(builder)
        if data is not None:
            lite.BufferAddData(builder, data)
        return lite.BufferEnd(builder)

    def tensor(number, name, shape):
        name = builder.CreateString(name)
        lite.TensorStartShapeVector(builder, len(shape))
        for size in reversed(shape):
            builder.PrependInt32(size)
        shape = builder.EndVector()
        lite.TensorStart(builder)
        lite.TensorAddShape(builder, shape)
        lite.TensorAddType(builder, lite.TensorType.FLOAT32)
        lite.TensorAddBuffer(builder, number)
        lite.TensorAddName(builder, name)
        return lite.TensorEnd(builder)

    builder = flatbuffers.Builder(1 << 20)
    buffers = [buffer(b"")] + [buffer(values.tobytes()) for values in tensors.values()]
    buffers = vector(lite.ModelStartBuffersVector, buffers)
    all_tensors = [tensor(number + 1, name, values.shape) for number, (name, values) in enumerate(tensors.items())]
    all_tensors = vector(lite.SubGraphStartTensorsVector, all_tensors)
    lite.SubGraphStart(builder)
    lite.SubGraphAddTensors(builder, all_tensors)
    subgraphs = vector(lite.ModelStartSubgraphsVector, [lite.SubGraphEnd(builder)])
    lite.ModelStart(builder)
    lite.ModelAddVersion(builder, 3)
    lite.ModelAddSubgraphs(builder, subgraphs)
    lite.ModelAddBuffers(builder, buffers)
    builder.Finish(lite.ModelEnd(builder), b"TFL3")
    with open(path, "wb") as file:
        file.write(builder.Output())


def flax(path, tensors):
    import msgpack

    def array(values):
        content = (values.shape, values.dtype.name, values.tobytes())
        return msgpack.ExtType(1, msgpack.packb(content, use_bin_type=True))

    with open(path, "wb") as file:
        file.write(msgpack.packb({"params": tensors}, default=array, strict_types=True))


def coreml(path, tensors):
    from coremltools.libmilstoragepython import _BlobStorageWriter

    writer = _BlobStorageWriter(path)
    for values in tensors.values():
        writer.write_fp16_data(values.astype(np.float16).ravel().view(np.uint16))


FORMATS = {
    "safetensors": ("model.safetensors", safetensors),
    "ONNX": ("model.onnx", onnx),
    "torch before zip": ("model.bin", torch_legacy),
    "HDF5": ("model.h5", hdf5),
    "TensorFlow Lite": ("model.tflite", tflite),
    "Flax": ("model.msgpack", flax),
    "Core ML, FP16": ("weight.bin", coreml),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="directory of a model in FP32")
    parser.add_argument("--tune", required=True, help="directory of a fine-tune of it")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--only", default="", help="formats whose names contain this")
    parser.add_argument("programs", nargs="+")
    arguments = parser.parse_args()
    models = {name: read_model(getattr(arguments, name), arguments.layers) for name in ["base", "tune"]}
    print(f"{'format':20} {'MB':>8}  " + "  ".join(f"{program[-20:]:>20}" for program in arguments.programs))
    for name, (file, write) in FORMATS.items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as work:
            directories = {model: os.path.join(work, model) for model in models}
            try:
                for model, directory in directories.items():
                    os.mkdir(directory)
                    write(os.path.join(directory, file), models[model])
            except ImportError as error:
                print(f"{name:20} left out: {error}")
                continue
            size = os.path.getsize(os.path.join(directories["base"], file))
            figures = []
            for program in arguments.programs:
                alone = added(program, work, (), directories["base"])
                tune = added(program, work, (directories["base"],), directories["tune"])
                figures.append(f"{alone / 1e6:10.3f}{tune / 1e6:10.3f}")
            print(f"{name:20} {size / 1e6:8.2f}  " + "  ".join(figures), flush=True)


if __name__ == "__main__":
    main()
