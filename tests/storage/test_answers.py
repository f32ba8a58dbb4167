"""What the stores of S3 and Azure make of answers that the servers of the tests do not give.

Tests of refdelta_storage.azure, refdelta_storage.remote, refdelta_storage.s3.
"""

import pytest

from refdelta_storage import AzureStore, Exists, ObjectNotFoundError, S3Store, StorageError, Unknown
from refdelta_storage.clients import Client, Patience
from refdelta_storage.s3 import PROMISES

BRIEF = Patience(retries=0)


def s3():
    arguments = {"key": "id", "secret": "hidden-secret", "endpoint_url": "http://127.0.0.1:9"}
    return S3Store(Client("s3", arguments), "s3://b/t", "b", "t", PROMISES, BRIEF)


def answer(status, code, **more):
    """An error as s3fs makes it of a reply."""
    from botocore.exceptions import ClientError
    from s3fs.errors import translate_boto_error

    error = {"Code": code, "Message": f"about {code} and hidden-secret", **more}
    return translate_boto_error(ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "Put"))


def telling(store, error, monkeypatch, found=None):
    """Let every request end with an error, except for a look at an object if one is there."""

    async def fail(*_arguments):
        raise error

    async def look(_name):
        if found is None:
            raise error
        return found

    for name in ("_create", "_write", "_read", "_remove", "_page"):
        monkeypatch.setattr(store, name, fail)
    monkeypatch.setattr(store, "_look", look)
    return store


class TestConditionalPut:
    @pytest.mark.parametrize(
        ("status", "code", "expected"),
        [
            (412, "PreconditionFailed", Exists),  # MinIO, which does not say which condition
            (409, "ConditionalRequestConflict", Unknown),
            (400, "RequestTimeout", Unknown),
            (500, "InternalError", Unknown),
            (503, "SlowDown", Unknown),
            (501, "NotImplemented", Unknown),
        ],
    )
    def test_s3(self, monkeypatch, status, code, expected):
        store = telling(s3(), answer(status, code), monkeypatch)
        assert isinstance(store.put_if_absent("k", b""), expected)

    @pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (404, "NoSuchBucket"), (401, "Unauthorized")])
    def test_what_is_refused_was_not_created(self, monkeypatch, status, code):
        store = telling(s3(), answer(status, code), monkeypatch)
        with pytest.raises(StorageError, match=f"cannot create 'k' in s3://b/t: {code}") as caught:
            store.put_if_absent("k", b"")
        assert "hidden-secret" not in str(caught.value)
        assert not isinstance(caught.value, ObjectNotFoundError)

    def test_unless_it_was_created_by_a_request_whose_reply_was_lost(self, monkeypatch):
        store = telling(s3(), answer(403, "ExpiredToken"), monkeypatch, found=(3, 0))
        assert isinstance(store.put_if_absent("k", b"abc"), Exists)

    @pytest.mark.parametrize("error", [ConnectionResetError("peer"), TimeoutError(), ValueError("odd"), KeyError("x")])
    def test_without_a_reply_nobody_knows(self, monkeypatch, error):
        store = telling(s3(), error, monkeypatch)
        outcome = store.put_if_absent("k", b"")
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.cause, StorageError)

    @pytest.mark.tier("test")
    def test_azure(self, monkeypatch):
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError

        def error(cls, status, code):
            made = cls("first line\nRequestId: 7")
            made.status_code, made.error_code = status, code
            return made

        connection = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=aGlkZGVu;BlobEndpoint=http://127.0.0.1:9/a"
        store = AzureStore(Client("abfs", {"connection_string": connection}), "abfs://c/t", "c", "t", PROMISES, BRIEF)
        for raised, expected in (
            (error(ResourceExistsError, 409, "BlobAlreadyExists"), Exists),
            (error(HttpResponseError, 412, "ConditionNotMet"), Exists),
            (error(HttpResponseError, 409, "BlobBeingRehydrated"), Unknown),
            (error(HttpResponseError, 503, "ServerBusy"), Unknown),
        ):
            telling(store, raised, monkeypatch)
            assert isinstance(store.put_if_absent("k", b""), expected)
        telling(store, error(HttpResponseError, 404, "PathNotFound"), monkeypatch)
        assert list(store.list("no/such/folder")) == []
        telling(store, error(HttpResponseError, 404, "ContainerNotFound"), monkeypatch)
        with pytest.raises(StorageError, match="cannot list '' in abfs://c/t: ContainerNotFound: first line"):
            list(store.list())
        telling(store, ClientAuthenticationError("no login is configured"), monkeypatch)
        with pytest.raises(StorageError, match="cannot create 'k' in abfs://c/t: no login is configured"):
            store.put_if_absent("k", b"")
        telling(store, error(ClientAuthenticationError, 403, "AuthorizationFailure"), monkeypatch)
        with pytest.raises(StorageError, match=r"t: AuthorizationFailure: first line$"):
            store.put_if_absent("k", b"")


def test_a_server_that_passes_over_ranges(monkeypatch):
    class Body:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

        async def read(self):
            return b"0123456789"

    async def call(self, method, **arguments):
        return {"Body": Body()}

    monkeypatch.setattr(S3Store, "_call", call)
    assert s3().get_ranges("k", [(2, 3), (8, 9), (20, 1)]) == [b"234", b"89", b""]


def test_objects_that_could_not_be_deleted_are_named(monkeypatch):
    async def call(self, method, **arguments):
        assert [wanted["Key"] for wanted in arguments["Delete"]["Objects"]] == ["t/a", "t/b"]
        return {"Errors": [{"Key": "t/b", "Code": "AccessDenied", "Message": "no"}]}

    monkeypatch.setattr(S3Store, "_call", call)
    with pytest.raises(StorageError, match="t/b: AccessDenied: no"):
        s3().delete(["a", "b"])


def test_the_first_that_fails_of_many_is_named(monkeypatch):
    store = s3()

    async def read(name, start, length):
        if name.endswith("7"):
            raise answer(404, "NoSuchKey")
        return b""

    monkeypatch.setattr(store, "_read", read)
    with pytest.raises(ObjectNotFoundError, match="no object '7'"):
        store.get_many([str(number) for number in range(10)])
