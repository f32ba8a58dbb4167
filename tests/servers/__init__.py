"""Real object stores on this machine, for tests and benchmarks: versitygw speaks S3, Azurite speaks Azure Blob,
fake-gcs-server speaks Google Cloud Storage.

:mod:`servers.install` fetches them into the project's ignored cache, :mod:`servers.running` starts and stops them,
:mod:`servers.proxies` has a proxy before one, which counts requests and makes the network bad.
"""
