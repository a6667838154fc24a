# SPDX-License-Identifier: Apache-2.0
"""What a training saves: weights of several types, an optimizer's state, numbers and words."""

import torch

MIB = 1 << 20


def weights(mebibytes: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """In order: matrices in fp32, the same in bf16, then integers and something small."""
    generator = torch.Generator().manual_seed(seed)
    rows = mebibytes * MIB // 4 // 1024 // 3
    state = {f"layer{n}.weight": torch.randn(rows, 1024, generator=generator) for n in range(2)}
    state |= {f"half{n}.weight": state[f"layer{n}.weight"].bfloat16() for n in range(2)}
    state["tokens"] = torch.randint(0, 50_000, (1000,), generator=generator)
    state["bias"] = torch.randn(7, generator=generator)
    return state


def checkpoint(mebibytes: int, seed: int = 0) -> dict:
    state = weights(mebibytes, seed)
    return {"model": state, "optimizer": {"state": {0: {"step": torch.tensor(3.0), "exp_avg": state["half0.weight"]}},
                                          "param_groups": [{"lr": 1e-3, "params": [0]}]},
            "epoch": 3 + seed, "name": "the model"}


def equal(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return left == right
