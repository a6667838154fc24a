# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are trees of small files: tensorstore, Orbax, zarr, torchsnapshot."""

import os

import numpy
import pytest
import torch

from programs.states import equal, weights

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def numbers(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal(shape, numpy.float32)


def temporary_names(directory) -> list[str]:
    return [name for _, directories, files in os.walk(directory) for name in directories + files
            if name.endswith((".__lock", ".partial", ".tmp")) or "checkpoint-tmp" in name]


# --- tensorstore

def array_in(directory, driver: str, **options):
    import tensorstore

    base = {"driver": "file", "path": f"{directory}/"}
    store = {"driver": "ocdbt", "base": f"file://{directory}/"} if driver == "ocdbt" else base
    return tensorstore.open({"driver": "zarr" if driver == "ocdbt" else driver, "kvstore": store}, **options).result()


@pytest.mark.parametrize("driver", ["zarr", "zarr3", "n5", "ocdbt"])
def test_tensorstore(mount, driver):
    import tensorstore

    array = numbers(1500, 1024)
    written = array_in(mount() / "array", driver, create=True, dtype=tensorstore.float32, shape=array.shape,
                       chunk_layout=tensorstore.ChunkLayout(chunk_shape=(500, 512)))
    written.write(array).result()
    # A part of a chunk: read, changed and written, with a lock and the file's generation checked.
    written[100:600, 7].write(5).result()
    array[100:600, 7] = 5
    other = mount()
    assert numpy.array_equal(array_in(other / "array", driver, open=True).read().result(), array)
    # And the other way round.
    array_in(other / "array", driver, open=True)[0].write(array[1]).result()
    assert numpy.array_equal(array_in(mount() / "array", driver, open=True)[0].read().result(), array[1])
    assert temporary_names(other.path) == []


@pytest.mark.parametrize("driver", ["zarr", "ocdbt"])
def test_tensorstore_transactions(mount, driver):
    import tensorstore

    made = mount()
    array = numbers(512, 512)
    with tensorstore.Transaction() as transaction:
        written = array_in(made / "array", driver, create=True, dtype=tensorstore.float32, shape=array.shape,
                           transaction=transaction)
        written[...] = array
    assert numpy.array_equal(array_in(mount() / "array", driver, open=True).read().result(), array)


def test_key_value_store(mount):
    import tensorstore

    made = mount()
    (made / "kv").mkdir()
    store = tensorstore.KvStore.open(f"file://{made / 'kv'}/").result()
    futures = [store.write(f"below/{n}", b"x" * n) for n in range(50)]
    written = [future.result().generation for future in futures]
    assert store.write("below/7", b"changed", if_equal=written[7]).result().generation != written[7]
    # Of another generation than it has, so that it stays.
    store.write("below/8", b"lost", if_equal=written[9]).result()
    other = tensorstore.KvStore.open(f"file://{mount() / 'kv'}/").result()
    assert sorted(other.list().result()) == sorted(f"below/{n}".encode() for n in range(50))
    assert other.read("below/8").result().value == b"x" * 8
    other.delete_range(tensorstore.KvStore.KeyRange("below/1", "below/2")).result()
    assert store.read("below/10").result().state == "missing"


# --- Orbax

def tree_of_arrays(seed: int) -> dict:
    import jax.numpy

    return {"params": {f"layer{n}": {"kernel": jax.numpy.asarray(numbers(512, 512, seed=seed + n)),
                                     "bias": jax.numpy.asarray(numbers(512, seed=seed + n + 100))} for n in range(4)},
            "half": jax.numpy.asarray(numbers(1024, 512, seed=seed), jax.numpy.bfloat16), "step": seed}


def assert_same(left, right) -> None:
    import jax

    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert all(numpy.array_equal(numpy.asarray(a), numpy.asarray(b))
               for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)))


def test_orbax_standard_checkpointer(mount):
    import orbax.checkpoint as orbax

    made = mount()
    with orbax.StandardCheckpointer() as checkpointer:
        for seed in (1, 2):
            checkpointer.save(made / f"step{seed}", tree_of_arrays(seed))
        checkpointer.save(made / "step2", tree_of_arrays(3), force=True)
        checkpointer.wait_until_finished()
        with pytest.raises(ValueError, match="exist"):
            checkpointer.save(made / "step1", tree_of_arrays(4))
    other = mount()
    with orbax.StandardCheckpointer() as checkpointer:
        assert_same(checkpointer.restore(other / "step1"), tree_of_arrays(1))
        assert_same(checkpointer.restore(other / "step2", tree_of_arrays(0)), tree_of_arrays(3))
    assert temporary_names(other.path) == []


@pytest.mark.parametrize("ocdbt, zarr3", [(True, False), (False, False), (False, True)])
def test_orbax_formats(mount, ocdbt, zarr3):
    import orbax.checkpoint as orbax

    made = mount()
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)) as checkpointer:
        checkpointer.save(made / "step", tree_of_arrays(1))
    other = mount()
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)) as checkpointer:
        assert_same(checkpointer.restore(other / "step"), tree_of_arrays(1))
    assert temporary_names(other.path) == []


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_orbax_checkpoint_manager(mount, asynchronous):
    import orbax.checkpoint as orbax

    options = orbax.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2,
                                             enable_async_checkpointing=asynchronous)
    made = mount()
    with orbax.CheckpointManager(made / "run", options=options) as manager:
        for step in range(9):
            manager.save(step, args=orbax.args.Composite(state=orbax.args.StandardSave(tree_of_arrays(step)),
                                                         data=orbax.args.JsonSave({"position": step})))
        manager.wait_until_finished()
    other = mount()
    with orbax.CheckpointManager(other / "run", options=options) as manager:
        assert manager.all_steps() == [6, 8] and manager.latest_step() == 8
        for step in (6, 8):
            restored = manager.restore(step, args=orbax.args.Composite(
                state=orbax.args.StandardRestore(tree_of_arrays(0)), data=orbax.args.JsonRestore()))
            assert_same(restored["state"], tree_of_arrays(step))
            assert restored["data"] == {"position": step}
        # It goes on here.
        manager.save(10, args=orbax.args.Composite(state=orbax.args.StandardSave(tree_of_arrays(10)),
                                                   data=orbax.args.JsonSave({"position": 10})))
        manager.wait_until_finished()
    assert sorted(os.listdir(mount() / "run")) == ["10", "8"]
    assert temporary_names(other.path) == []


# --- zarr

@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr(mount, zarr_format):
    import zarr

    made = mount()
    array = numbers(1500, 1024)
    group = zarr.open_group(made / "group.zarr", mode="w", zarr_format=zarr_format)
    for place in (group, group.create_group("nested"), group.create_group("nested/below")):
        written = place.create_array("array", shape=array.shape, chunks=(500, 256), dtype=array.dtype)
        written[:] = array
        written.attrs["epoch"] = 3
    again = zarr.open_group(mount() / "group.zarr", mode="a")
    again["array"][10:20] = 7
    other = mount()
    group = zarr.open_group(other / "group.zarr", mode="r")
    assert numpy.array_equal(group["nested/array"][:], array)
    assert numpy.array_equal(group["nested/below/array"][:], array)
    array[10:20] = 7
    assert numpy.array_equal(group["array"][:], array)
    assert group["array"].attrs["epoch"] == 3
    assert temporary_names(other.path) == []


def test_zarr_makes_the_groups_above_an_array(mount):
    import zarr

    group = zarr.open_group(mount() / "group.zarr", mode="w")
    group.create_array("nested/below/array", shape=(10,), dtype="float32")[:] = 5
    assert (zarr.open_group(mount() / "group.zarr", mode="r")["nested/below/array"][:] == 5).all()


def test_zarr_shards(mount):
    import zarr

    made = mount()
    array = numbers(1024, 1024)
    written = zarr.create_array(made / "array.zarr", shape=array.shape, chunks=(128, 128), shards=(1024, 512),
                                dtype=array.dtype)
    written[:] = array
    written[:100] = 0
    array[:100] = 0
    assert numpy.array_equal(zarr.open_array(mount() / "array.zarr", mode="r")[:], array)
    assert temporary_names(mount().path) == []


# --- torchsnapshot

def test_torchsnapshot(mount):
    import torchsnapshot

    made = mount()
    state = torchsnapshot.StateDict(weights=weights(12), step=3)
    torchsnapshot.Snapshot.take(str(made / "taken"), {"state": state})
    torchsnapshot.Snapshot.async_take(str(made / "async"), {"state": state}).wait()
    other = mount()
    for name in ("taken", "async"):
        loaded = torchsnapshot.StateDict(weights={key: value.zero_() for key, value in weights(12).items()}, step=0)
        snapshot = torchsnapshot.Snapshot(str(other / name))
        snapshot.restore({"state": loaded})
        assert loaded["step"] == 3 and equal(loaded["weights"], weights(12))
        assert torch.equal(snapshot.read_object("0/state/weights/bias"), weights(12)["bias"])


# --- when the store fails

def refuse(simulator, key, operations=("PutObject", "CompleteMultipartUpload")):
    simulator.inject(*({"op": operation, "key": key, "action": "403"} for operation in operations))


@pytest.mark.parametrize("operations", [("PutObject",), ("CopyObject",)], ids=["fsync", "rename"])
def test_tensorstore_raises(mount, simulator, prefix, operations):
    import tensorstore

    made = mount()
    array = numbers(100, 100)
    written = array_in(made / "array", "zarr", create=True, dtype=tensorstore.float32, shape=array.shape)
    refuse(simulator, prefix + "array/0.0*", operations)
    with pytest.raises(Exception):
        written.write(array).result()
    assert simulator.fault_hits() > 0
    assert prefix + "array/0.0" not in simulator.keys(prefix)


@pytest.mark.parametrize("operations", [("PutObject",), ("CopyObject",)], ids=["fsync", "rename"])
def test_orbax_raises_and_has_no_step(mount, simulator, prefix, operations):
    import orbax.checkpoint as orbax

    made = mount()
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(made / "step1", tree_of_arrays(1))
    refuse(simulator, prefix + "step2*/*manifest*" if operations[0] == "PutObject" else prefix + "step2*", operations)
    with pytest.raises(Exception):
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(made / "step2", tree_of_arrays(2))
            checkpointer.wait_until_finished()
    assert simulator.fault_hits() > 0
    other = mount()
    assert not (other / "step2").exists()
    with orbax.StandardCheckpointer() as checkpointer:
        assert_same(checkpointer.restore(other / "step1"), tree_of_arrays(1))


@pytest.mark.parametrize("operations", [("PutObject", "CompleteMultipartUpload"), ("CopyObject", "UploadPartCopy")],
                         ids=["close", "rename"])
def test_zarr_raises(mount, simulator, prefix, operations):
    import zarr

    made = mount()
    array = numbers(100, 100)
    written = zarr.create_array(made / "array.zarr", shape=array.shape, chunks=(100, 100), dtype=array.dtype)
    refuse(simulator, prefix + "array.zarr/c/*", operations)
    with pytest.raises(Exception):
        written[:] = array
    assert simulator.fault_hits() > 0
    assert [key for key in simulator.keys(prefix + "array.zarr/c/") if not key.endswith(("/", ".partial"))] == []


def test_torchsnapshot_raises_and_has_no_metadata(mount, simulator, prefix):
    import torchsnapshot

    made = mount()
    refuse(simulator, prefix + "taken/batched/*")
    with pytest.raises(Exception):
        torchsnapshot.Snapshot.take(str(made / "taken"), {"state": torchsnapshot.StateDict(weights=weights(12))})
    assert simulator.fault_hits() > 0
    assert prefix + "taken/.snapshot_metadata" not in simulator.keys(prefix)
