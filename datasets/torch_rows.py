#!/usr/bin/env python3
"""What torch.save stores of a network with a frozen backbone, and what batch normalisation changes in it.

    datasets/torch_rows.py

Prints a line of JSON for each scenario, for configs/bench/tensorcas-torch.toml. Files are written to a temporary
directory, or below FHRD_BENCH_WORK. Needs torch, and nothing else.

The network has the arrays of a ResNet-18: 122 in its state, 11.2 million parameters, 10 classes. Its weights are drawn
from a seed. The backbone is frozen, and the head is trained for a step on noise before each checkpoint.
"""

import json
import os
import tempfile

import torch
from torch import nn

STAGES = (64, 128, 256, 512)


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.short is None else self.short(x)))


class Network(nn.Module):
    """The shapes of a ResNet-18."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64))
        blocks, inputs = [], 64
        for number, outputs in enumerate(STAGES):
            blocks += [Block(inputs, outputs, 1 if number == 0 else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


def checkpoints(directory, count, trains_backbone_statistics, full):
    """Saves `count` checkpoints. Returns their bytes and the share of arrays that a step leaves as they are."""
    torch.manual_seed(1)
    network = Network()
    if not full:
        for parameter in list(network.stem.parameters()) + list(network.blocks.parameters()):
            parameter.requires_grad = False
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)
    total, equal, compared, last = 0, 0, 0, None
    for number in range(count):
        network.train(trains_backbone_statistics)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(torch.randn(8, 3, 32, 32)), torch.randint(10, (8,)))
        loss.backward()
        optimizer.step()
        state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        path = os.path.join(directory, "checkpoint.pt")
        torch.save(state, path)
        total += os.path.getsize(path)
        os.remove(path)
        if last is not None:
            equal += sum(torch.equal(tensor, last[name]) for name, tensor in state.items())
            compared += len(state)
        last = state
    return {"checkpoints": count, "arrays": len(last), "bytes": total, "mib": total / 2**20, "no_op": equal / compared}


def main():
    scenarios = [
        ("2 snapshots", 2, False, False),
        ("20 checkpoints", 20, False, False),
        ("20 checkpoints, moving statistics", 20, True, False),
        ("20 checkpoints, full fine-tune", 20, True, True),
    ]
    with tempfile.TemporaryDirectory(dir=os.environ.get("FHRD_BENCH_WORK")) as directory:
        for name, *how in scenarios:
            print(json.dumps({"set": name, **checkpoints(directory, *how)}), flush=True)


if __name__ == "__main__":
    main()
