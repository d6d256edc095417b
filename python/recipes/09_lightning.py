"""Let Lightning save to a repository: ModelCheckpoint decides what stays, the plug-in stores it."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import fhrd
from fhrd.lightning import FhrdCheckpointIO


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.1)


def main(directory: Path) -> None:
    cast(Any, torch).manual_seed(1)  # It has no types.
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
    with fhrd.open(directory / "repo", create=True) as repo:
        storage = FhrdCheckpointIO(repo, "tune")

        def trainer(epochs: int) -> lightning.Trainer:
            saving = ModelCheckpoint(dirpath=directory, filename="{epoch}", monitor="loss", save_top_k=2)
            return lightning.Trainer(
                max_epochs=epochs,
                accelerator="cpu",
                logger=False,
                enable_progress_bar=False,
                callbacks=[saving],
                plugins=[storage],
            )

        trainer(3).fit(Model(), loader)
        print("checkpoints:", storage.names())
        assert len(storage.names()) == 2
        trainer(5).fit(Model(), loader, ckpt_path=storage.names()[-1])
        assert repo.checkpoint(run="tune").step == 20


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
