"""URIs that lost a slash are refused, so that no table is written into a local folder called `s3:`."""

import os
from pathlib import Path

import pytest

from refdelta_storage import InvalidOptionError, LocalStore, open_store

SCHEMES = ["s3", "s3a", "abfs", "abfss", "az", "gs", "gcs", "dbfs", "hdfs", "wasbs", "http", "https", "memory", "S3"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", ["{}:/b/k", "{}:b/k", "{}:", "/home/x/{}:/b/k", "./{}:/b"])
def test_a_uri_with_fewer_slashes_is_refused_with_the_right_form(scheme, form):
    with pytest.raises(InvalidOptionError, match=f"'{scheme.lower()}://"):
        open_store(form.format(scheme))


def test_a_path_made_of_a_uri_is_refused():
    for path in (Path("s3://b") / "k", Path("gs://b").absolute()):
        with pytest.raises(InvalidOptionError, match="pathlib"):
            open_store(path)


@pytest.mark.parametrize("path", ["a:b", "x:/t", "s3", "my-s3:1/t", "folder/s3:x", "table:1"])
def test_other_paths_with_colons_are_local(tmp_path, path):
    assert isinstance(open_store(os.path.join(tmp_path, path)), LocalStore)  # noqa: PTH118 - as a user writes it
    assert isinstance(open_store(path), LocalStore)


def test_a_folder_with_such_a_name_is_opened_by_a_file_uri(tmp_path):
    assert isinstance(open_store(f"file://{tmp_path}/s3:/t"), LocalStore)


def test_the_case_of_a_scheme_does_not_matter():
    assert open_store("MEMORY://opening/t").uri == "memory://opening/t"
    assert open_store("S3://bucket/t", {"anon": "true"}).uri == open_store("s3://bucket/t", {"anon": "true"}).uri
