"""A model in formats of several frameworks, as each one's package writes it.

The packages are onnx, torch, h5py, tflite (with flatbuffers), msgpack in the way of Flax, and coremltools. A format
whose package is missing is left out.
"""

import os
import tempfile

import numpy as np

from weights import safetensors


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


def plain(path, tensors):
    with open(path, "wb") as file:
        file.write(safetensors(tensors))


FORMATS = {
    "safetensors": ("model.safetensors", plain),
    "ONNX": ("model.onnx", onnx),
    "torch before zip": ("model.bin", torch_legacy),
    "HDF5": ("model.h5", hdf5),
    "TensorFlow Lite": ("model.tflite", tflite),
    "Flax": ("model.msgpack", flax),
    "Core ML, FP16": ("weight.bin", coreml),
}


def written(name, tensors):
    """The files of a directory with the model in this format; none where its package is missing."""
    path, write = FORMATS[name]
    with tempfile.TemporaryDirectory() as work:
        try:
            write(os.path.join(work, path), tensors)
        except ImportError:
            return {}
        with open(os.path.join(work, path), "rb") as file:
            return {path: file.read()}
