"""Stores that are bound to a run, and what keeps a repository in order."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import fhrd
import fhrd.jax


def arrays(value: float) -> dict[str, Any]:
    return {"a": np.full((300, 100), value, np.float32)}


# Runs


def test_a_run_saves_and_loads_its_steps(repo: fhrd.Repository) -> None:
    run = repo.run("tune", git=False, save_interval=10, keep=fhrd.Keep(last=2))
    assert run.latest_step() is None and run.all_steps() == [] and repo.latest_step("tune") is None
    assert [step for step in range(25) if run.should_save(step)] == [0, 10, 20]
    for step in range(0, 40, 10):
        assert run.should_save(step)
        run.save(arrays(step), step=step, metrics={"loss": 1 / (step + 1)})
        assert not run.should_save(step)
    assert run.all_steps() == [20, 30] == repo.all_steps("tune") and run.latest_step() == 30
    assert run.load()["a"][0, 0] == 30 and run.load(step=20)["a"][0, 0] == 20
    assert run.best("loss").step == 30 and run.steps().column("step") == [20, 30]
    with pytest.raises(fhrd.StepExistsError):
        run.save(arrays(1), step=30)
    assert run.save_async(arrays(40), step=40).result().deleted and run.checkpoint().step == 40
    assert run.checkpoint(snapshot=run.checkpoint(step=30).id).step == 30
    for wrong in (lambda: run.save(arrays(1)), lambda: run.load(run="other"), lambda: repo.run("a@b")):
        with pytest.raises(fhrd.ArgumentError):
            wrong()
    replacing = repo.run("tune", git=False, if_exists="replace")
    replacing.save(arrays(7), step=40)
    assert run.load()["a"][0, 0] == 7 and run.forget(fhrd.Keep(last=1)) and run.all_steps() == [40]


def test_parameters_and_the_commit_are_stored_with_each_step(
    repo: fhrd.Repository, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    outside = repo.run("outside", parameters={"lr": 1e-3, "layers": [1, 2]})
    assert outside.git is None
    outside.save(arrays(1), step=1)
    stored = repo.checkpoint(run="outside")
    assert (stored.parameters, stored.git) == ({"lr": 1e-3, "layers": [1, 2]}, None)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (work / "train.py").write_text("one")
    git("add", ".")
    git("commit", "-qm", "first")
    repo.run("clean").save(arrays(1), step=1, files={"notes": b"x"})
    (work / "train.py").write_text("two")
    repo.run("dirty").save_async(arrays(1), step=1).result()
    repo.run("without", git=False).save(arrays(1), step=1)
    commit = git("rev-parse", "HEAD")
    clean, dirty, without = (repo.checkpoint(run=run) for run in ("clean", "dirty", "without"))
    assert clean.git == fhrd.GitCommit(commit, False) and dirty.git == fhrd.GitCommit(commit, True)
    assert without.git is None and [file.path for file in without.files()] == ["model.safetensors"]
    assert clean.read_file("notes") == b"x" and clean.parameters == {}
    with pytest.raises(fhrd.ArgumentError, match="what the run stores"):
        repo.run("clean").save(arrays(1), step=2, files={"fhrd-run.json": b""})
    repo.save(arrays(1), files={"fhrd-run.json": b"[no json"})
    with pytest.raises(fhrd.DamagedError):
        repo.checkpoint().parameters


# Care


def test_tags_are_changed(repo: fhrd.Repository) -> None:
    repo.save(arrays(1), run="r", step=1, tags="a,b")
    assert repo.tag("run:r@1", add="c", remove="a").tags == ["b", "c"]
    changed = repo.tag(repo.checkpoint(run="r"), set=["x"])
    assert changed.tags == ["x"] and changed.step == 1 and len(repo.snapshots()) == 1
    assert repo.tag(changed, add=["x"]).id == changed.id
    with pytest.raises(fhrd.NotFoundError):
        repo.tag("00000000", add="x")


def test_snapshots_are_copied_from_another_repository(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    seen: list[dict[str, int]] = []
    with fhrd.open(tmp_path / "other", create=True, password="x") as other:
        for step in range(3):
            other.save(arrays(step), run="r", step=step)
        assert [one.copy for one in repo.copy_from(other, dry_run=True)] == [None] * 3 and repo.runs() == []
        copied = repo.copy_from(other, ["run:r@1"], progress=seen.append)
        assert len(copied) == 1 and not copied[0].existed and seen
        assert repo.load(snapshot=str(copied[0].copy))["a"][0, 0] == 1
        assert [one.existed for one in repo.copy_from(other)] == [False, True, False]
        assert repo.all_steps("r") == [0, 1, 2]
        with pytest.raises(fhrd.ArgumentError, match="itself"):
            repo.copy_from(repo)


def test_a_published_name_moves(repo: fhrd.Repository) -> None:
    for step in range(2):
        repo.save(arrays(step), run="r", step=step)
    first = repo.publish("run:r@0", "me/model", revision="production")
    assert (first.name, first.revision, first.kind, first.files) == ("me/model", "production", "model", 1)
    assert repo.named("me/model", "production").arrays()["a"][0, 0] == 0
    second = repo.publish(repo.checkpoint(run="r"), "me/model", revision="production")
    assert repo.named("me/model", "production").arrays()["a"][0, 0] == 1 and first.commit != second.commit
    assert [one.snapshot for one in repo.published()] == [second.snapshot]
    # Rules leave it alone, and the data stays.
    repo.forget([one.id for one in repo.snapshots() if one.run == "r"])
    repo.prune(grace_seconds=0)
    assert repo.named("me/model", "production").arrays()["a"][0, 0] == 1
    assert repo.unpublish("me/model") == [second.snapshot] and repo.published() == []
    with pytest.raises(fhrd.NotFoundError, match="production"):
        repo.named("me/model", "production")
    repo.save(arrays(1), run="r", step=5)
    with pytest.raises(fhrd.ArgumentError):
        repo.publish("run:r@5", "no name")


def test_statistics_lineage_and_repairs(repo: fhrd.Repository) -> None:
    base = np.random.default_rng(1).normal(size=(600, 600)).astype(np.float32)
    tuned = base + np.float32(1e-4) * np.random.default_rng(2).normal(size=base.shape).astype(np.float32)
    repo.save({"w": base}, run="r", step=1)
    repo.save({"w": tuned}, run="r", step=2)
    sizes = repo.statistics()
    assert sizes.snapshots == 2 and sizes.stored_bytes["total"] > 1_000_000 and sizes.ratio > 0
    models = repo.lineage()
    assert [one.parameters for one in models] == [360_000] * 2 and models[1].parent == 0 and models[1].depth == 1
    assert [one.snapshot for one in repo.lineage("run:r@1")] == [repo.checkpoint(run="r", step=1).id]
    for part in ("index", "containers"):
        assert repo.repair(part)
    assert repo.repair("snapshots", dry_run=True)["whole"] == 2
    seen: list[dict[str, int]] = []
    assert repo.check(read_data=True, progress=seen.append).is_sound and seen


# Files with the interface of safetensors


def test_a_stored_file_is_opened_like_one_on_disk(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    import safetensors
    import safetensors.numpy

    values = {"w": np.arange(6000, dtype=np.float32).reshape(60, 10, 10), "one": np.zeros((), np.int8)}
    repo.save({**values, "big": np.arange(5, dtype=">i4")}, run="r", step=1, metadata={"k": "v"})
    repo.restore("latest", tmp_path)
    with (
        fhrd.safe_open(repo.run("r", git=False), framework="np", device="cpu") as stored,
        safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as local,
    ):
        assert list(stored.keys()) == list(local.keys()) and stored.offset_keys() == local.offset_keys()
        assert stored.metadata() == {"k": "v"}
        assert np.array_equal(stored.get_tensor("w"), local.get_tensor("w"))
        mine, other = stored.get_slice("w"), local.get_slice("w")
        assert (mine.get_shape(), mine.get_dtype()) == (other.get_shape(), other.get_dtype())
        for index in (np.s_[3:7], np.s_[:2], np.s_[-4:], np.s_[5:5], np.s_[:, 2], np.s_[2:9, 1:3, 4], np.s_[70:80]):
            assert np.array_equal(mine[index], values["w"][index]), index
        assert np.array_equal(mine[4], values["w"][4]) and np.array_equal(mine[::2], values["w"][::2])
        assert np.array_equal(stored.get_slice("big")[1:3], np.array([1, 2]))
        with pytest.raises(KeyError):
            stored.get_slice("none")
        every = stored.get_tensors()
        assert list(every) == stored.offset_keys() == list(local.get_tensors()) and np.array_equal(every["w"], values["w"])


def test_a_file_of_torch_is_opened_like_one_on_disk(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch", reason="NOT CHECKED: torch is not installed")
    import safetensors.torch

    tensors = {
        "w": torch.arange(600.0).reshape(60, 10),
        "low": torch.randn(5, 4).to(torch.bfloat16),
        "lower": torch.ones(4, 2).to(torch.float8_e4m3fn),
        "one": torch.ones(()),
        "none": torch.empty(0, 3),
    }
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    repo.save({}, files=[tmp_path / "model.safetensors"], run="r", step=1)
    stored = fhrd.safe_open(repo, run="r", framework="pt")
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="pt") as local:
        public = [name for name in dir(local) if not name.startswith("_")]
        assert [name for name in public if not hasattr(stored, name)] == []
        assert set(stored.keys()) == set(local.keys()) and stored.metadata() == local.metadata()
        for name in tensors:
            mine, other = stored.get_tensor(name), local.get_tensor(name)
            assert mine.dtype == other.dtype and mine.shape == other.shape
            assert torch.equal(mine.float(), other.float()) and torch.equal(stored.get_tensors()[name].float(), other.float())
            if tensors[name].ndim:
                for index in (np.s_[1:3], np.s_[:0], np.s_[-2:], np.s_[:, 1:2], np.s_[...]):
                    own, theirs = stored.get_slice(name)[index], local.get_slice(name)[index]
                    assert own.shape == theirs.shape and torch.equal(own.float(), theirs.float()), (name, index)


def test_all_arrays_are_read_at_once(tmp_path: pathlib.Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {f"a{at}": generator.integers(0, 255, size, np.uint8) for at, size in enumerate((3_000_000, 0, 7, 1, 5_000_000))}
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        repo.save({**arrays, "type": np.arange(4, dtype=">i4")}, run="r", step=1)
        stored = repo.load(run="r", names=["a4", "a1", "a0", "a3", "a2", "type"])
        loaded = stored.read_all()
        assert list(loaded) == ["a4", "a1", "a0", "a3", "a2", "type"] and loaded["type"].tolist() == [0, 1, 2, 3]
        for name, array in arrays.items():
            assert np.array_equal(loaded[name], array) and np.array_equal(stored[name], array), name
        one = np.empty(10, np.uint8)
        with pytest.raises(fhrd.ArgumentError, match="share memory"):
            repo.checkpoint().open_file("model.safetensors").read_into([(0, one[:6]), (0, one[5:])])
        for offset, length in ((-1, 3), (0, -1), (0, 1 << 70)):
            with pytest.raises(fhrd.ArgumentError):
                repo.checkpoint().open_file("model.safetensors").read_bytes(offset, length)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="the administrator may write anywhere")
def test_a_repository_that_may_not_be_written_to_is_read(tmp_path: pathlib.Path) -> None:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        first = repo.save({"a": np.arange(3)}, run="r", step=1)
    places = [tmp_path / "repo", *(path for path in (tmp_path / "repo").rglob("*") if path.is_dir())]
    code = """if True:
        import sys
        import numpy as np
        import fhrd
        repo = fhrd.open(sys.argv[1])
        assert repo.load(run="r")["a"].tolist() == [0, 1, 2]
        for call in (
            lambda: repo.save({"a": np.ones(3)}, run="r", step=2),
            lambda: repo.save_async({"a": np.ones(3)}, run="r", step=2).result(),
            lambda: repo.forget([sys.argv[2]]),
        ):
            try:
                call()
                print("done")
            except PermissionError as error:
                print(type(error).__name__)
    """
    without_rights = ["setpriv", "--bounding-set", "-all"] if os.geteuid() == 0 else []
    command = [*without_rights, sys.executable, "-c", code, str(tmp_path / "repo"), first.id]
    for place in places:
        place.chmod(0o500)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        for place in places:
            place.chmod(0o700)
    assert done.stdout.split() == ["ReadOnlyError"] * 3, done.stderr


def test_a_slice_reads_its_rows_only(tmp_path: pathlib.Path) -> None:
    array = np.random.default_rng(0).integers(0, 255, (4096, 8192), np.uint8)
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        repo.save({"a": array}, run="r", step=1)
    with fhrd.open(tmp_path / "repo") as repo:
        part = fhrd.safe_open(repo, run="r").get_slice("a")
        before = repo._native.bytes_read
        assert np.array_equal(part[1000:1010, 5], array[1000:1010, 5])
        assert repo._native.bytes_read - before < array.nbytes / 4


# Pytrees


class Pair(NamedTuple):
    mu: Any
    nu: Any


def test_nested_dictionaries_are_stored_under_their_paths(repo: fhrd.Repository) -> None:
    tree = {
        "params": {"Dense_0": {"kernel": np.arange(6.0).reshape(2, 3), "bias": np.zeros(3)}},
        "state": [Pair(np.ones(2), 3), (np.int32(4), None)],
    }
    fhrd.jax.save(repo, tree, run="r", step=1)
    assert "params/Dense_0/kernel" in repo.load(run="r")
    loaded = fhrd.jax.load(repo, tree, run="r")
    assert np.array_equal(loaded["params"]["Dense_0"]["kernel"], tree["params"]["Dense_0"]["kernel"])  # type: ignore[call-overload]
    assert type(loaded["state"][0]) is Pair and loaded["state"][0].nu == 3 and type(loaded["state"][0].nu) is int
    assert loaded["state"][1][1] is None and list(loaded) == ["params", "state"]
    assert fhrd.jax.load(repo, run="r")["state"]["0"]["mu"].tolist() == [1, 1]
    fhrd.jax.save_async(repo.run("r", git=False), tree, step=2).result()
    with pytest.raises(fhrd.NotFoundError, match="`more`"):
        fhrd.jax.load(repo, {**tree, "more": np.zeros(1)}, run="r")
    with pytest.raises(fhrd.ArgumentError, match="no leaf"):
        fhrd.jax.load(repo, {"params": tree["params"]}, run="r")
    with pytest.raises(fhrd.ArgumentError, match="float64 of \\[2\\]"):
        fhrd.jax.load(repo, {**tree, "state": [Pair(np.ones(3), 3), (np.int32(4), None)]}, run="r")
    with pytest.raises(TypeError, match="`a/b`"):
        fhrd.jax.save(repo, {"a": {"b": "text"}})
    with pytest.raises(ValueError, match="two leaves"):
        fhrd.jax.save(repo, {"a": {1: np.zeros(1), "1": np.zeros(1)}})
    fhrd.jax.save(repo, {"rate": 0.5, "count": 2, "flag": True}, run="numbers", step=1)
    right = {"rate": 0.0, "count": 0, "flag": False}
    assert fhrd.jax.load(repo, right, run="numbers") == {"rate": 0.5, "count": 2, "flag": True}
    for wrong in ({"rate": 0}, {"count": False}, {"flag": 0.0}, {"flag": 0}, {"rate": 0j}):
        with pytest.raises(ValueError, match="the template has a number of type"):
            fhrd.jax.load(repo, {**right, **wrong}, run="numbers")
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(fhrd.ArgumentError, match="levels"):
        fhrd.jax.save(repo, endless)
    with pytest.raises(TypeError, match="the repository comes first"):
        fhrd.jax.save(tree, repo)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"]])
def test_names_that_make_no_tree_are_refused(repo: fhrd.Repository, names: list[str]) -> None:
    import fhrd.jax

    repo.save({name: np.ones(at + 1, np.int8 if at else np.int64) for at, name in enumerate(names)})
    with pytest.raises(fhrd.ArgumentError, match="has them by name"):
        fhrd.jax.load(repo)


def test_trees_of_jax(repo: fhrd.Repository) -> None:
    jax = pytest.importorskip("jax", reason="NOT CHECKED: jax is not installed")
    import jax.numpy as jnp

    tree = {"w": jnp.arange(6.0).reshape(2, 3), "low": jnp.ones(4, jnp.bfloat16), "rest": (jnp.zeros(()), 2.5)}
    fhrd.jax.save(repo, tree, run="r", step=1)
    shapes = jax.eval_shape(lambda: tree)
    for template in (tree, {**shapes, "rest": (shapes["rest"][0], 1.0)}):
        loaded = fhrd.jax.load(repo, template, run="r")
        assert isinstance(loaded["w"], jax.Array) and loaded["low"].dtype == jnp.bfloat16 and loaded["rest"][1] == 2.5
        assert jax.tree_util.tree_structure(loaded) == jax.tree_util.tree_structure(tree)
        assert bool((loaded["w"] == tree["w"]).all())


def test_parameters_and_states_of_flax_and_optax(repo: fhrd.Repository) -> None:
    jax = pytest.importorskip("jax", reason="NOT CHECKED: jax is not installed")
    linen = pytest.importorskip("flax.linen", reason="NOT CHECKED: flax is not installed")
    optax = pytest.importorskip("optax", reason="NOT CHECKED: optax is not installed")
    from flax.training import train_state

    class Network(linen.Module):  # type: ignore[misc, name-defined]
        @linen.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return linen.Dense(2)(linen.relu(linen.Dense(8)(x)))

    network, batch = Network(), jax.numpy.ones((4, 3))

    def created(seed: int) -> Any:
        parameters = network.init(jax.random.key(seed), batch)["params"]
        return train_state.TrainState.create(apply_fn=network.apply, params=parameters, tx=optax.adam(1e-3))

    state = created(1)
    gradients = jax.grad(lambda parameters: (network.apply({"params": parameters}, batch) ** 2).sum())(state.params)
    state = state.apply_gradients(grads=gradients)
    fhrd.jax.save(repo, {"params": state.params, "optimizer": state.opt_state}, run="flax", step=1)
    other = created(2)
    loaded = fhrd.jax.load(repo, {"params": other.params, "optimizer": other.opt_state}, run="flax")
    same = jax.tree_util.tree_map(lambda one, two: bool((one == two).all()), loaded["params"], state.params)
    assert all(jax.tree_util.tree_leaves(same))
    again = other.replace(params=loaded["params"], opt_state=loaded["optimizer"]).apply_gradients(grads=gradients)
    once = state.apply_gradients(grads=gradients)
    assert bool((again.apply_fn({"params": again.params}, batch) == once.apply_fn({"params": once.params}, batch)).all())


# Directories and layers


@pytest.mark.parametrize("lazy", [True, False])
def test_a_checkpoint_is_a_directory_for_code_that_takes_paths(
    lazy: bool, repo: fhrd.Repository, tmp_path: pathlib.Path
) -> None:
    import mmap

    if lazy and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("NOT CHECKED: this system has no FUSE")
    content = np.random.default_rng(1).integers(0, 255, 8 << 20, np.uint8).tobytes()
    repo.save(arrays(3), run="r", step=1, files={"config.json": b"{}", "sub/large": content})
    found = repo.checkpoint(run="r")
    with found.directory(lazy=lazy) as path:
        assert sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()) == [
            "config.json",
            "model.safetensors",
            "sub/large",
        ]
        assert (path / "config.json").read_bytes() == b"{}"
        safetensors = pytest.importorskip("safetensors.numpy")
        assert safetensors.load_file(path / "model.safetensors")["a"][0, 0] == 3
        with (path / "sub/large").open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Nothing is left, and what was mapped before can still be read.
    assert not path.exists()
    assert mapped[:] == content


def test_a_mounted_directory_reads_only_what_is_asked_for(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("NOT CHECKED: this system has no FUSE")
    content = np.random.default_rng(1).integers(0, 255, 32 << 20, np.uint8).tobytes()
    repo.save({}, run="r", step=1, files={"config.json": b"{}", "large": content})
    with fhrd.open(repo.location) as again:
        before = again._native.bytes_read
        with again.checkpoint(run="r").directory(lazy=True) as path:
            assert (path / "config.json").read_bytes() == b"{}"
            assert again._native.bytes_read - before < 8 << 20


def test_a_diff_has_the_bit_distance_of_each_layer(repo: fhrd.Repository) -> None:
    from fhrd.comparison import layer_of

    named = ["model.layers.0.q.weight", "model.layers.0.k.weight", "model.layers.1.q.weight", "head.weight", "bias"]
    first = {name: np.zeros(100, np.float32) for name in named}
    second = {name: array.copy() for name, array in first.items()}
    second["model.layers.0.q.weight"].view(np.uint32)[:] = 3
    second["bias"].view(np.uint32)[0] = 1
    old, new = repo.save(first, run="r", step=1), repo.save(second, run="r", step=2)
    diff = repo.diff(old.id, new.id)
    assert [change.name for change in diff] == ["bias", "model.layers.0.q.weight"]
    assert [tuple(row.values()) for row in diff.layers] == [
        ("bias", 1, 1, 0.01),
        ("head", 1, 0, 0.0),
        ("model.layers.0", 2, 1, 1.0),
        ("model.layers.1", 1, 0, 0.0),
    ]
    assert "model.layers.0" in diff._repr_html_() and "<table>" in repo.snapshots()._repr_html_()  # type: ignore[attr-defined]
    assert layer_of("params/Dense_3/kernel") == "params/Dense_3" and layer_of("h.12.attn.bias") == "h.12"
    assert "<table>" in repo.lineage()._repr_html_()  # type: ignore[attr-defined]


def test_mappings_and_types_that_only_jax_knows_come_back(repo: fhrd.Repository) -> None:
    jax = pytest.importorskip("jax", reason="NOT CHECKED: jax is not installed")
    import fhrd.jax

    numpy_of = jax.device_get
    # JAX sorts the keys of some mappings, and keeps the order of others.
    for number, made in enumerate((collections.defaultdict, collections.OrderedDict)):
        tree: Any = made(int) if made is collections.defaultdict else made()
        tree["b"], tree["a"] = jax.numpy.zeros(3), jax.numpy.ones(3)
        fhrd.jax.save(repo, tree, run="tune", step=number)
        loaded = numpy_of(fhrd.jax.load(repo, tree, run="tune", step=number))
        assert type(loaded) is made and not loaded["b"].any() and loaded["a"].all()
    class Plain(dict):  # type: ignore[type-arg]
        """A mapping whose children JAX knows without names."""

    jax.tree_util.register_pytree_node(
        Plain, lambda one: ((one["w"], one["b"]), None), lambda _, parts: Plain(w=parts[0], b=parts[1])
    )
    tree = {"layer": Plain(b=jax.numpy.zeros(3), w=jax.numpy.ones(3))}
    fhrd.jax.save(repo, tree, run="plain", step=1)
    assert sorted(repo.load(run="plain")) == ["layer/b", "layer/w"]
    loaded = numpy_of(fhrd.jax.load(repo, tree, run="plain"))
    assert not loaded["layer"]["b"].any() and loaded["layer"]["w"].all()
    for step, wide in enumerate((np.array([1 << 40]), np.array([0.1]))):
        fhrd.jax.save(repo, {"wide": wide}, run="wide", step=step)
        template = {"wide": jax.ShapeDtypeStruct((1,), wide.dtype)}
        with pytest.raises(ValueError, match="jax_enable_x64"):
            fhrd.jax.load(repo, template, run="wide", step=step)


def test_a_range_picks_rows_as_in_numpy(repo: fhrd.Repository) -> None:
    rows = np.arange(12).reshape(6, 2)
    repo.save({"rows": rows}, run="tune", step=1)
    with fhrd.safe_open(repo, run="tune") as file:
        for index in (range(-2, 2), slice(-2, None), slice(1, 4), [0, 5], (slice(1, 3), 0)):
            given: Any = index
            assert np.array_equal(file.get_slice("rows")[given], rows[given]), index
