"""Trainers: the Hugging Face Trainer, Lightning and MLflow with a repository."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fhrd

pytest.importorskip("fsspec")

from fhrd.filesystem import join_url  # noqa: E402


@pytest.fixture
def location(tmp_path: Path) -> Path:
    location = tmp_path / "repo"
    fhrd.open(location, create=True).close()
    return location


@pytest.fixture
def repo(location: Path) -> Iterator[Any]:
    with fhrd.open(location) as repo:
        yield repo


def trainer(directory: Path, callbacks: list[Any], steps: int = 6) -> Any:
    """A trainer of a tiny model. The same for every call."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    transformers.set_seed(1)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(2)
    rows = [
        {"input_ids": torch.randint(0, 50, (8,), generator=generator), "labels": torch.tensor(at % 2)} for at in range(64)
    ]
    options = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=steps, save_steps=2, logging_steps=1, per_device_train_batch_size=4,
        use_cpu=True, report_to=[], disable_tqdm=True, save_total_limit=2, seed=1,
    )  # fmt: skip
    return transformers.Trainer(model=model, args=options, train_dataset=rows, callbacks=callbacks)


def test_hugging_face_training_resumes_bit_for_bit(repo: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from fhrd.transformers import FhrdCallback, restore_latest

    assert restore_latest(repo, "tune", tmp_path / "b") is None
    whole = trainer(tmp_path / "a", [FhrdCallback(repo, "tune")])
    whole.train()
    assert [repo.checkpoint(run="tune", step=step).step for step in (2, 4, 6)] == [2, 4, 6]
    assert "loss" in repo.checkpoint(run="tune").metrics
    names = {file.path for file in repo.checkpoint(run="tune", step=4).files()}
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"} <= names
    # On a new machine.
    path = restore_latest(repo, "tune", tmp_path / "b", step=4)
    assert path == str(tmp_path / "b/checkpoint-4")
    resumed = trainer(tmp_path / "b", [])
    resumed.train(resume_from_checkpoint=path)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name
    # So is the directory that the trainer itself has written.
    assert restore_latest(repo, "tune", tmp_path / "a", step=4) == str(tmp_path / "a/checkpoint-4")
    # Files that are there are left alone if they are the same, and are not taken for the checkpoint if they are not.
    assert restore_latest(repo, "tune", tmp_path / "b", step=4) == path
    (tmp_path / "b/checkpoint-4/optimizer.pt").write_bytes(b"half-written")
    with pytest.raises(ValueError, match=r"1 files in .*checkpoint-4 are not those of the checkpoint"):
        restore_latest(repo, "tune", tmp_path / "b", step=4)
    # The weights load as tensors, too.
    assert torch.equal(
        repo.load(run="tune", framework="torch")["classifier.weight"], whole.model.state_dict()["classifier.weight"]
    )


def test_a_failing_repository_does_not_stop_the_training(
    repo: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from fhrd.transformers import FhrdCallback

    def fail(*args: Any, **options: Any) -> None:
        raise fhrd.FhrdError("no space left")

    monkeypatch.setattr(type(repo), "save", fail)
    with caplog.at_level(logging.ERROR, "fhrd"):
        trainer(tmp_path / "a", [FhrdCallback(repo, "tune", delete_local=True)], steps=2).train()
    assert "not saved" in caplog.text and (tmp_path / "a/checkpoint-2/model.safetensors").exists()
    with pytest.raises(fhrd.FhrdError):
        trainer(tmp_path / "b", [FhrdCallback(repo, "tune", raise_errors=True)], steps=2).train()


RANK = """
import os, sys, time, types, torch, torch.distributed as dist
from pathlib import Path
import fhrd
from fhrd.transformers import FhrdCallback
location, rank, meeting, output = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
(output / "checkpoint-2").mkdir(parents=True, exist_ok=True)
time.sleep(2 * rank)
(output / f"checkpoint-2/rng_state_{rank}.pth").write_bytes(bytes(100))
state = types.SimpleNamespace(is_world_process_zero=rank == 0, global_step=2, log_history=[])
with fhrd.open(location) as repo:
    FhrdCallback(repo, "tune", raise_errors=True).on_save(types.SimpleNamespace(output_dir=output), state, None)
if torch.__version__.startswith("2.5."):
    # It can wait for ever when it destroys a group.
    os._exit(0)
dist.destroy_process_group()
"""


def test_a_checkpoint_has_what_all_ranks_write(repo: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without torch.distributed")
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, repo.location, str(rank), tmp_path / "meeting", tmp_path / "out"])
        for rank in range(2)
    ]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    names = sorted(file.path for file in repo.checkpoint(run="tune").files())
    assert names == ["rng_state_0.pth", "rng_state_1.pth"]


def test_a_second_training_with_lower_steps_keeps_what_it_saves(repo: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from fhrd.transformers import FhrdCallback

    repo.save({}, files={"a": b"a"}, run="tune", step=300)
    callback = FhrdCallback(repo, "tune", keep=fhrd.Keep(last=1), delete_local=True)
    trainer(tmp_path / "a", [callback], steps=2).train()
    assert repo.all_steps("tune") == [2, 300] and not (tmp_path / "a/checkpoint-2").exists()
    for options in ({"run": "a:b"}, {"keep": "last"}, {"if_exists": "never"}):
        given: Any = {"run": "tune", **options}
        with pytest.raises((TypeError, ValueError)):
            FhrdCallback(repo, **given)


def test_local_directories_can_be_deleted(repo: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from fhrd.transformers import FhrdCallback

    trainer(tmp_path / "a", [FhrdCallback(repo, "tune", delete_local=True)], steps=2).train()
    assert not (tmp_path / "a/checkpoint-2").exists() and repo.checkpoint(run="tune").step == 2


@pytest.mark.parametrize("lazy", [True, False])
def test_a_stored_model_loads_from_pretrained(lazy: bool, repo: Any, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    if lazy and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("NOT CHECKED: this system has no FUSE")
    model = trainer(tmp_path / "a", []).model
    model.save_pretrained(tmp_path / "model")
    files = {one.name: one.read_bytes() for one in (tmp_path / "model").iterdir()}
    repo.save({}, run="tune", step=1, files=files)
    with repo.checkpoint(run="tune").directory(lazy=lazy) as path:
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def lightning_parts() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    lightning.seed_everything(1)

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"width": 4})
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.1)

    rows = torch.utils.data.TensorDataset(torch.randn(32, 4, generator=torch.Generator().manual_seed(1)))
    return Model(), torch.utils.data.DataLoader(rows, batch_size=8)


def lightning_trainer(directory: Any, epochs: int, plugins: list[Any], **options: Any) -> Any:
    import lightning.pytorch as lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = ModelCheckpoint(dirpath=directory, filename="{epoch}", monitor="loss", save_top_k=2, save_last=True, **options)
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[saving], plugins=plugins,
    )  # fmt: skip


def test_lightning_training_resumes_bit_for_bit(repo: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("lightning")
    from fhrd.lightning import FhrdCheckpointIO

    whole, data = lightning_parts()
    lightning_trainer(tmp_path / "a", 4, []).fit(whole, data)
    first, data = lightning_parts()
    storage = FhrdCheckpointIO(repo, "tune")
    lightning_trainer(tmp_path / "b", 2, [storage]).fit(first, data)
    # The best two and the last.
    assert sorted(storage.names()) == ["epoch=0.ckpt", "epoch=1.ckpt", "last.ckpt"]
    assert repo.checkpoint(run="tune").step == 8 and "loss" in repo.checkpoint(run="tune").metrics
    assert not any((tmp_path / "b").rglob("*.ckpt"))
    resumed, data = lightning_parts()
    continued = lightning_trainer(tmp_path / "c", 4, [FhrdCheckpointIO(repo, "tune")])
    continued.fit(resumed, data, ckpt_path=str(tmp_path / "b/last.ckpt"))
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    with pytest.raises(FileNotFoundError, match=r"other\.ckpt"):
        FhrdCheckpointIO(repo, "tune").load_checkpoint("other.ckpt")
    # A run may have rules of its own, which delete what is replaced.
    kept: Any = repo.run("kept", keep=fhrd.Keep(last=1))
    storage = FhrdCheckpointIO(kept, "kept")
    for step in (1, 2):
        storage.save_checkpoint({"global_step": step, "state_dict": {"w": torch.ones(3)}}, "last.ckpt")
    assert storage.names() == ["last.ckpt"] and repo.all_steps("kept") == [2]
    storage.save_checkpoint({"global_step": 2, "state_dict": {"w": torch.ones(3)}}, "loss/best.ckpt")
    with pytest.raises(ValueError, match="of this name, too"):
        storage.save_checkpoint({"global_step": 2, "state_dict": {"w": torch.ones(3)}}, "accuracy/best.ckpt")
    storage.remove_checkpoint("loss/best.ckpt")
    storage.save_checkpoint({"global_step": 2, "state_dict": {"w": torch.ones(3)}}, "accuracy/best.ckpt")
    with pytest.raises(ValueError, match="run"):
        FhrdCheckpointIO(repo, "a:b")


def test_lightning_writes_through_the_file_system(location: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("lightning")
    model, data = lightning_parts()
    directory = join_url(location, "tune/checkpoints")
    lightning_trainer(directory, 3, []).fit(model, data)
    import fsspec

    files, path = fsspec.core.url_to_fs(directory)
    names = files.ls(path, detail=False)
    assert len(names) == 3 and names[-1].endswith("last.ckpt")
    with fsspec.open(directory + "/last.ckpt") as file:
        stored = torch.load(file, weights_only=False)
    assert torch.equal(stored["state_dict"]["layer.weight"], model.state_dict()["layer.weight"])
    resumed, data = lightning_parts()
    lightning_trainer(directory, 4, []).fit(resumed, data, ckpt_path=directory + "/last.ckpt")


def test_mlflow_artifacts(location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    tracking = f"sqlite:///{tmp_path}/mlflow.db"
    try:
        client = mlflow.tracking.MlflowClient(tracking_uri=tracking)
        client.search_experiments()
    except Exception:
        # The small package has no database.
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        tracking = (tmp_path / "tracking").as_uri()
        client = mlflow.tracking.MlflowClient(tracking_uri=tracking)
    experiment = client.create_experiment("e", artifact_location=join_url(location, "mlflow"))
    run = client.create_run(experiment).info.run_id
    (tmp_path / "one.txt").write_text("one")
    directory = tmp_path / "model/sub"
    directory.mkdir(parents=True)
    (directory / "weights.bin").write_bytes(b"w" * 100_000)
    client.log_artifact(run, str(tmp_path / "one.txt"), "notes")
    client.log_artifacts(run, str(tmp_path / "model"), "model")
    assert [(one.path, one.is_dir) for one in client.list_artifacts(run)] == [("model", True), ("notes", True)]
    assert [(one.path, one.file_size) for one in client.list_artifacts(run, "notes")] == [("notes/one.txt", 3)]
    assert client.list_artifacts(run, "notes/one.txt") == [] == client.list_artifacts(run, "nothing")
    fetched = Path(client.download_artifacts(run, "model", str(tmp_path)))
    assert (fetched / "sub/weights.bin").read_bytes() == b"w" * 100_000
    from fhrd.mlflow import FhrdArtifactRepository
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    found = get_artifact_repository(client.get_run(run).info.artifact_uri)
    assert isinstance(found, FhrdArtifactRepository)
    found.delete_artifacts("notes")
    assert [one.path for one in client.list_artifacts(run)] == ["model"]
