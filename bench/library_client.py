# SPDX-License-Identifier: Apache-2.0
"""Saves or loads through a library that talks to S3 itself, and prints one line of JSON.

    library_client.py obstore write|read KEY --bytes N
    library_client.py connector write|read|save|load|dcp-save|dcp-load KEY --bytes N [--verify]
Endpoint, region and keys are those of the environment. Imports, and making the tensors, are not timed.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os

import torch_client
from stopwatch import Stopwatch

MIB = 2**20
PART = 16 * MIB
CONNECTIONS = 16
BUCKET = "bucket"


def pieces(size: int):
    return itertools.repeat(os.urandom(MIB), size // MIB)


class Obstore:
    def __init__(self) -> None:
        import obstore
        from obstore.store import S3Store
        self._obstore = obstore
        self._store = S3Store(BUCKET, endpoint=os.environ["AWS_ENDPOINT_URL"], virtual_hosted_style_request=False,
                              client_options={"allow_http": True})

    def write(self, key: str, size: int) -> None:
        self._obstore.put(self._store, key, pieces(size), chunk_size=PART, max_concurrency=CONNECTIONS)

    def read(self, key: str, size: int) -> None:
        def fetch(start: int) -> int:
            return len(self._obstore.get_range(self._store, key, start=start, length=min(PART, size - start)))

        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as threads:
            assert sum(threads.map(fetch, range(0, size, PART))) == size


class Connector:
    def __init__(self) -> None:
        from s3torchconnector import S3Checkpoint, S3ClientConfig
        region, config = os.environ["AWS_REGION"], S3ClientConfig(force_path_style=True)
        self._checkpoint = S3Checkpoint(region, endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)

    def open_to_write(self, key: str):
        return self._checkpoint.writer(f"s3://{BUCKET}/{key}")

    def open_to_read(self, key: str):
        return self._checkpoint.reader(f"s3://{BUCKET}/{key}")

    def write(self, key: str, size: int) -> None:
        with self.open_to_write(key) as writer:
            for piece in pieces(size):
                writer.write(piece)

    def read(self, key: str, size: int) -> None:
        with self.open_to_read(key) as reader:
            assert sum(len(piece) for piece in iter(lambda: reader.read(MIB), b"")) == size


def dcp_storage(key: str):
    """Of each rank, made in its process. The connector's own classes take no endpoint."""
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem
    region, config = os.environ["AWS_REGION"], S3ClientConfig(force_path_style=True)
    client = S3Client(region, endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)
    storage = []
    for kind in (S3StorageWriter, S3StorageReader):
        made = kind(region, f"s3://{BUCKET}/{key}", s3client_config=config)
        # A reader asks its file system for what suits it best.
        made.fs = S3FileSystem(region, s3_client=client, reader_constructor=getattr(made, "_reader_constructor", None))
        storage.append(made)
    return storage


def timed(run) -> dict[str, float]:
    stopwatch = Stopwatch()
    run()
    return stopwatch.result()


def run(options: argparse.Namespace) -> dict[str, float]:
    if options.action.startswith("dcp"):
        options.storage = functools.partial(dcp_storage, options.path)
        return torch_client.distributed(options)
    library = {"obstore": Obstore, "connector": Connector}[options.library]()
    if options.action in ("write", "read"):
        return timed(functools.partial(getattr(library, options.action), options.path, options.bytes))
    options.open = library.open_to_write if options.action == "save" else library.open_to_read
    return (torch_client.save if options.action == "save" else torch_client.load)(options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["obstore", "connector"])
    parser.add_argument("action", choices=["write", "read", "save", "load", "dcp-save", "dcp-load"])
    parser.add_argument("path", metavar="KEY")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args(namespace=torch_client.Options())
    options.fsync = False
    print(json.dumps({"action": options.action, "bytes": options.bytes, **run(options)}))


if __name__ == "__main__":
    main()
