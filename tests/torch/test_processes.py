# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing with TMPDIR on a mount, where it makes sockets."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys, torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, TensorDataset

def add(queue, back):
    multiprocessing.set_sharing_strategy(sys.argv[1])
    tensor = queue.get(timeout=60)
    tensor += 1
    back.put("added")

if __name__ == "__main__":
    multiprocessing.set_sharing_strategy(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    worker = context.Process(target=add, args=(queue, back))
    worker.start()
    tensor = torch.zeros(1000)
    queue.put(tensor)
    assert back.get(timeout=60) == "added"
    worker.join()
    assert tensor.sum() == 1000
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=8, num_workers=2, timeout=60)
    assert sum(int(batch.sum()) for [batch] in loader) == 2016
    torch.save(tensor, "tensor.pt")
"""


@pytest.mark.parametrize("compress", ["auto", "none"])
@pytest.mark.parametrize("strategy", ["file_system", "file_descriptor"])
def test_tensors_between_processes_with_tmpdir_on_the_mount(mount, simulator, prefix, tmp_path, strategy, compress):
    made = mount("--compress", compress)
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    done = subprocess.run([sys.executable, script, strategy], cwd=made.path,
                          env={**os.environ, "TMPDIR": str(made.path)}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert simulator.keys(prefix) == [f"{prefix}tensor.pt"]
