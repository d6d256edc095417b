"""Let the Hugging Face Trainer save to a repository, and resume on another machine."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import fhrd
from fhrd.transformers import FhrdCallback, restore_latest


def trainer(repo: fhrd.Repository, output: Path) -> Any:
    cast(Any, torch).manual_seed(1)  # It has no types.
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    rows = [{"input_ids": torch.arange(8) + at % 40, "labels": torch.tensor(at % 2)} for at in range(64)]
    arguments = TrainingArguments(
        output_dir=str(output), max_steps=4, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    model = BertForSequenceClassification(config)
    # A list of rows is a data set for the Trainer.
    data = cast("torch.utils.data.Dataset[Any]", rows)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=[FhrdCallback(repo, "tune")])


def main(directory: Path) -> None:
    with fhrd.open(directory / "repo", create=True) as repo:
        first = trainer(repo, directory / "out")
        first.train()
        # All of this may happen elsewhere, later.
        path = restore_latest(repo, "tune", directory / "elsewhere", step=2)
        second = trainer(repo, directory / "elsewhere")
        second.train(resume_from_checkpoint=path)
        weights, again = first.model.state_dict(), second.model.state_dict()
        assert all(torch.equal(weights[name], again[name]) for name in weights)
        print("steps:", [row["step"] for row in repo.steps("tune")])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
