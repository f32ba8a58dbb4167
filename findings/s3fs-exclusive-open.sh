#!/usr/bin/env bash
# s3fs: open(path, "xb") over an object that is there replaces it, if nothing is written.
#
# A good guess: mode x raises FileExistsError if the object exists, whatever is written, as open() does for local files.
# Instead it does so only with content, at the end: an empty file goes to S3 by another way, without the condition, and
# the object is empty afterwards. pipe_file(mode="create") refuses the same. And where a large file in mode x is
# refused, the parts that were uploaded stay in the bucket, and cost, until somebody aborts the upload; pipe_file
# aborts it.
# Seen with s3fs 2026.9.0 on 2026-11-28 (and versitygw 1.8.0) and 2026-11-29, here with moto 5.2.5 as the server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install s3fs==2026.9.0 aiobotocore==3.10.0 botocore==1.43.117 boto3==1.43.117 'moto[s3]==5.2.5' flask flask-cors

expect <<'END'
open("xb"), 3 bytes: FileExistsError, the object is b'old', uploads left: 0
pipe_file(mode="create"), 0 bytes: FileExistsError, the object is b'old', uploads left: 0
pipe_file(mode="create"), 12 MiB: FileExistsError, the object is b'old', uploads left: 0
open("xb"), 12 MiB: FileExistsError, the object is b'old', uploads left: 1
open("xb"), 0 bytes: no error, the object is b'', uploads left: 1
END

run <<'PYTHON'
import logging

import s3fs
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
store = s3fs.S3FileSystem(
    key="dummy",
    secret="dummy",
    endpoint_url=f"http://{host}:{port}",
    client_kwargs={"region_name": "us-east-1"},
)
store.call_s3("create_bucket", Bucket="bucket")
store.pipe_file("bucket/key", b"old")


def opened(data):
    with store.open("bucket/key", "xb", block_size=5 * 2**20) as file:
        file.write(data)


def piped(data):
    store.pipe_file("bucket/key", data, mode="create", chunksize=5 * 2**20)


small, none, large = ("3 bytes", b"new"), ("0 bytes", b""), ("12 MiB", b"x" * (12 * 2**20))
for create, (size, data) in ((opened, small), (piped, none), (piped, large), (opened, large), (opened, none)):
    name = 'open("xb")' if create is opened else 'pipe_file(mode="create")'
    try:
        create(data)
        ended = "no error"
    except FileExistsError:
        ended = "FileExistsError"
    uploads = store.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads", [])
    print(f"{name}, {size}: {ended}, the object is {store.cat_file('bucket/key')}, uploads left: {len(uploads)}")
server.stop()
PYTHON
