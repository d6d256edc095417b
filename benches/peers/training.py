"""Sets of arrays that are no weights, and of streams of training: steps, adapters, checkpoints and small changes.

The language model is trained here by AdamW on the sources of Python's library, with torch on one thread.
"""

import glob
import io
import os
import sysconfig

import numpy as np

import rivals
from sets import Set
from slices import prefixed
from weights import bf16, brains, difference, file, of_all, planes

WIDTH, LAYERS, LENGTH = 192, 2, 64


def source_text():
    paths = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))
    return np.frombuffer(b"".join(open(path, "rb").read() for path in paths), np.uint8)


def array_sets(*_):
    """Arrays beside the smaller of the same bytes in `zstd -3` and unchanged."""
    random, text = np.random.default_rng(7), source_text()[:2_000_000]
    words = np.unique(np.array(text.tobytes().split()), return_inverse=True)[1]
    picture = np.cumsum(np.cumsum(random.standard_normal((16, 128, 128, 3)), 1), 2)
    picture = np.round((picture - picture.min()) / np.ptp(picture) * 255)
    steps = np.round(100 + np.cumsum(random.integers(-5, 6, 200_000)) / 100, 2)
    arrays = {
        "text as uint8": text,
        "token ids as uint16": (words % 65536).astype(np.uint16),
        "images / 255 as FP32": (picture / 255).astype(np.float32),
        "prices as FP64": steps,
    }
    for name, values in arrays.items():
        content = io.BytesIO()
        np.save(content, values)
        files = {"array.npy": content.getvalue()}
        yield Set(1, name, [], [("set", files)], min(rivals.zstd_3([files], []), values.nbytes))


class Trainer:
    """A language model of about a million parameters."""

    def __init__(self, rate):
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        layer = lambda: torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0, batch_first=True, norm_first=True)
        layers = [torch.nn.Embedding(256, WIDTH), *(layer() for _ in range(LAYERS)), torch.nn.Linear(WIDTH, 256)]
        self.model = torch.nn.Sequential(*layers)
        self.text = torch.from_numpy(source_text().astype(np.int64))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), rate, betas=(0.9, 0.95))

    def train(self, steps, rate=None):
        for group in self.optimizer.param_groups:
            group["lr"] = rate or group["lr"]
        for _ in range(steps):
            starts = self.torch.randint(0, len(self.text) - LENGTH - 1, (8,))
            batch = self.torch.stack([self.text[start : start + LENGTH + 1] for start in starts])
            found, expected = self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
            loss = self.torch.nn.functional.cross_entropy(found, expected)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def weights(self):
        return {name: values.detach().numpy().copy() for name, values in self.model.named_parameters()}

    def moments(self, which):
        state = self.optimizer.state
        return {name: state[values][which].numpy().copy() for name, values in self.model.named_parameters()}

    def checkpoint(self):
        """Weights, both moments and the weights in BF16."""
        weights = self.weights()
        moments = {**prefixed("exp_avg", self.moments("exp_avg")), **prefixed("exp_avg_sq", self.moments("exp_avg_sq"))}
        return {**prefixed("model", weights), **moments, **prefixed("bf16", brains(weights))}


def gaps_and_differences(values, base):
    """Positions of changed values as gaps, and their differences, each by `zstd -19`: what PULSE stores."""
    step = (np.concatenate([one.ravel() for one in values.values()]).astype(np.int64)
            - np.concatenate([one.ravel() for one in base.values()]))
    places = np.flatnonzero(step)
    gaps = np.minimum(np.diff(places, prepend=0), 65535).astype(np.uint16)
    split = lambda array: np.concatenate([(array & 255).astype(np.uint8), (array >> 8).astype(np.uint8)]).tobytes()
    return sum(rivals.zstd(19, split(array)) for array in (gaps, step[places].astype(np.int16).view(np.uint16)))


def step_sets(*_):
    trainer = Trainer(1e-3)
    trainer.train(60)
    steps = []
    for _ in range(40):
        trainer.train(1, 2.5e-6)
        steps.append(brains(trainer.weights()))
    directories = [(f"step-{number}", file(step)) for number, step in enumerate(steps, 1)]
    limit = sum(of_all(difference, *pair) for pair in zip(steps[1:], steps))
    yield Set(2, f"steps 2 to 40, {equal(steps[1], steps[0])}", directories[:1], directories[1:], limit)
    for rate in [1e-6, 1e-7]:
        trainer.train(1, rate)
        before = brains(trainer.weights())
        trainer.train(1, rate)
        after = brains(trainer.weights())
        stored, added = ([(name, file(step))] for name, step in [("before", before), ("after", after)])
        yield Set(2, f"a step, {equal(after, before)}", stored, added, gaps_and_differences(after, before))
    checkpoints = []
    for _ in range(4):
        trainer.train(10, 1e-4)
        checkpoints.append(trainer.checkpoint())
    directories = [(f"checkpoint-{number}", file(one)) for number, one in enumerate(checkpoints)]
    floats = lambda one: {name: values for name, values in one.items() if not name.startswith("bf16")}
    yield Set(7, "w, m, v, BF16, alone", [], directories[:1], of_all(planes, floats(checkpoints[0])))
    least = lambda values, base: min(planes(values), difference(values, base))
    limit = sum(of_all(least, floats(after), floats(before)) for before, after in zip(checkpoints, checkpoints[1:]))
    yield Set(7, "w, m, v, BF16, three more, 10 steps apart", directories[:1], directories[1:], limit)


def equal(step, before):
    same = sum(int((step[name] == before[name]).sum()) for name in step)
    return f"{100 * same / sum(values.size for values in step.values()):.1f} % equal"


def adapter(random):
    draw = lambda shape: random.standard_normal(shape, np.float32) * np.float32(0.02)
    halves = [("lora_A", (16, 1024)), ("lora_B", (1024, 16))]
    return {f"base_model.layers.{layer}.{part}.{half}.weight": draw(shape)
            for layer in range(16) for part in ["q_proj", "v_proj"] for half, shape in halves}


def small_sets(*_):
    random = np.random.default_rng(11)
    first = adapter(random)
    walk = lambda values: values + random.standard_normal(values.shape, np.float32) * np.float32(2e-5)
    second = {name: walk(values) for name, values in first.items()}
    for kind, cast in [("BF16", brains), ("FP32", dict)]:
        one, other = cast(first), cast(second)
        yield Set(6, f"adapter of 64 small tensors, {kind}, a step", [("checkpoint-1", file(one))],
                  [("checkpoint-2", file(other))], of_all(difference, other, one))
    model = {f"layer.{number}.weight": bf16(random.standard_normal((256, 256), np.float32)) for number in range(32)}
    changed = {name: values.copy() for name, values in model.items()}
    for values in changed.values():
        values.flat[::1000] ^= 1
    yield Set(6, "a step of 32 tensors, 99.9 % equal", [("step-1", file(model))], [("step-2", file(changed))],
              gaps_and_differences(changed, model))
    lines = [f"parameter {number} = {number * number}\n".encode() for number in range(200)]
    files = {f"run-{number}/config.txt": b"".join(lines[number : number + 100]) for number in range(100)}
    changed = {**files, "run-50/config.txt": b"".join(lines[:50])}
    yield Set(6, "one small file of 100 changes", [("home", files)], [("home", changed)], 0)


# Functions of a base and a fine-tune, and the groups of their sets.
SETS = [(array_sets, {1}), (step_sets, {2, 7}), (small_sets, {6})]
