# SPDX-License-Identifier: Apache-2.0
"""Trainers that save as they go, keep so many checkpoints, and resume: Lightning, transformers, accelerate."""

import os
import pathlib

import pytest
import torch

from programs.states import equal

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


class Regression(torch.nn.Module):
    """4 MiB of weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))

    def forward(self, rows):
        return self.layers(rows)


def batches() -> torch.utils.data.DataLoader:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(32, 1024, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=8)


# --- Lightning

def lightning_module():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Regression()

        def training_step(self, batch, _):
            loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.log("loss", loss)
            # Worse from epoch to epoch, so that the best are the first.
            self.log("score", float(self.current_epoch))
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    return Module()


def lightning_trainer(directory, epochs, **checkpoints):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    keep = ModelCheckpoint(dirpath=directory, filename="{epoch}", save_on_train_epoch_end=True, **checkpoints)
    return lightning.Trainer(max_epochs=epochs, callbacks=[keep], accelerator="cpu", logger=False,
                             enable_progress_bar=False, enable_model_summary=False, default_root_dir=directory)


def fit(directory, epochs, resume=None, **checkpoints):
    module = lightning_module()
    lightning_trainer(directory, epochs, **checkpoints).fit(module, batches(), ckpt_path=resume, weights_only=False)
    return module.state_dict()


@pytest.mark.parametrize("save_last", [None, True, "link"])
def test_lightning(mount, tmp_path, save_last):
    options = {"save_top_k": 2, "monitor": "score", "mode": "max", "save_last": save_last}
    directory = mount() / "lightning"
    trained = fit(directory, 4, **options)
    other = mount() / "lightning"
    assert set(os.listdir(other)) == {"epoch=2.ckpt", "epoch=3.ckpt"} | ({"last.ckpt"} if save_last else set())
    assert (other / "last.ckpt").is_symlink() == (save_last == "link")
    if save_last == "link":
        assert os.readlink(other / "last.ckpt") == "epoch=3.ckpt"
    last = other / ("last.ckpt" if save_last else "epoch=3.ckpt")
    loaded = torch.load(last, weights_only=False)
    assert loaded["epoch"] == 3 and equal(dict(loaded["state_dict"]), dict(trained))
    # Half of it, and the rest on another mount from what is there.
    fit(mount() / "half", 2, **options)
    middle = mount() / "half" / ("last.ckpt" if save_last else "epoch=1.ckpt")
    resumed = fit(mount() / "half", 4, resume=middle, **options)
    assert equal(dict(resumed), dict(trained))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_lightning_keeps_the_best(mount, mode):
    directory = mount() / "best"
    fit(directory, 4, save_top_k=2, monitor="score", mode=mode)
    assert set(os.listdir(mount() / "best")) == \
        ({"epoch=0.ckpt", "epoch=1.ckpt"} if mode == "min" else {"epoch=2.ckpt", "epoch=3.ckpt"})


# --- transformers

def transformers_trainer(directory, steps):
    import transformers

    configuration = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64)
    transformers.set_seed(0)
    model = transformers.LlamaForCausalLM(configuration)
    generator = torch.Generator().manual_seed(1)
    tokens = [torch.randint(0, 1000, (16,), generator=generator) for _ in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=steps, save_steps=2, save_total_limit=2, per_device_train_batch_size=2,
        use_cpu=True, report_to="none", disable_tqdm=True, logging_steps=1, lr_scheduler_type="constant", seed=0)
    return transformers.Trainer(model=model, args=arguments,
                                train_dataset=[{"input_ids": each, "labels": each} for each in tokens])


def test_transformers_trainer(mount):
    import transformers

    whole = transformers_trainer(mount() / "whole", 8)
    whole.train()
    assert set(os.listdir(mount() / "whole")) == {"checkpoint-6", "checkpoint-8"}
    transformers_trainer(mount() / "runs", 4).train()
    # The other half on another mount, and the rest of the model's life on a third.
    resumed = transformers_trainer(mount() / "runs", 8)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 8
    resumed.save_model(str(mount() / "final"))
    other = mount()
    assert set(os.listdir(other / "runs")) == {"checkpoint-6", "checkpoint-8"}
    expected = dict(whole.model.state_dict())
    for directory in ("runs/checkpoint-8", "whole/checkpoint-8", "final"):
        loaded = transformers.LlamaForCausalLM.from_pretrained(other / directory)
        assert equal(dict(loaded.state_dict()), expected), directory


def test_transformers_sharded_model(mount):
    import transformers

    model = transformers_trainer("unused", 1).model
    model.save_pretrained(mount() / "model", max_shard_size="1MB")
    other = mount() / "model"
    assert len(list(other.glob("model-*.safetensors"))) > 2 and (other / "model.safetensors.index.json").exists()
    loaded = transformers.LlamaForCausalLM.from_pretrained(other)
    assert equal(dict(loaded.state_dict()), dict(model.state_dict()))


# --- accelerate

def accelerated():
    import accelerate

    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True)
    model = Regression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return accelerator, *accelerator.prepare(model, optimizer, batches(), scheduler)


def train(accelerator, model, optimizer, loader, scheduler):
    for rows, expected in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(rows), expected))
        optimizer.step()
    scheduler.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "torch"])
def test_accelerate(mount, safe):
    made: pathlib.Path = mount() / "state"
    saving = accelerated()
    # The second and third time over what is there.
    for _ in range(3):
        train(*saving)
        saving[0].save_state(str(made), safe_serialization=safe)
    expected = train(*saving)
    loading = accelerated()
    loading[0].load_state(str(mount() / "state"))
    assert equal(train(*loading), expected)


# --- when the store fails

@pytest.mark.parametrize("operation", ["UploadPart", "CompleteMultipartUpload"])
def test_lightning_raises(mount, simulator, prefix, operation):
    made = mount()
    simulator.inject({"op": operation, "key": prefix + "failing/*", "action": "403"})
    with pytest.raises(Exception):
        fit(made / "failing", 1, save_last=True)
    assert simulator.fault_hits() > 0
    assert [key for key in simulator.keys(prefix) if key.endswith(".ckpt")] == []


def refuse(simulator, directory, name):
    """No commit of this file; safetensors writes under a temporary name."""
    names = [name] if name != "model.safetensors" else [name, ".tmp*"]
    simulator.inject(*({"op": operation, "key": directory + name, "action": "403"}
                       for operation in ("PutObject", "CompleteMultipartUpload") for name in names))


@pytest.mark.parametrize("key", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_transformers_trainer_raises(mount, simulator, prefix, key):
    made = mount()
    transformers_trainer(made / "runs", 2).train()
    refuse(simulator, f"{prefix}runs/checkpoint-4/", key)
    with pytest.raises(Exception):
        transformers_trainer(made / "runs", 4).train()
    assert simulator.fault_hits() > 0
    assert f"{prefix}runs/checkpoint-4/{key}" not in simulator.keys(prefix)
    resumed = transformers_trainer(mount() / "runs", 3)
    resumed.train(resume_from_checkpoint=str(mount() / "runs/checkpoint-2"))
    assert resumed.state.global_step == 3


@pytest.mark.parametrize("key", ["model.safetensors", "optimizer.bin", "random_states_0.pkl"])
def test_accelerate_raises(mount, simulator, prefix, key):
    made = mount()
    refuse(simulator, f"{prefix}state/", key)
    accelerator = accelerated()[0]
    with pytest.raises(Exception):
        accelerator.save_state(str(made / "state"))
    assert simulator.fault_hits() > 0
    assert f"{prefix}state/{key}" not in simulator.keys(prefix)
