"""The public names: what ``dir()`` shows of each public class is what the reference lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

import refdelta
from by_path import generator
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog

reference = generator("reference")
PAGE = reference.PAGE.read_text()
CLASSES = ("DeltaTable", *reference._REACHED, "SqlCatalog", "UnityCatalog", *reference._VALUES)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """An object of each class, or the class."""
    folder = tmp_path_factory.mktemp("names")
    write_deltalake(folder / "t", pa.table({"id": [1]}))
    values = {name: getattr(refdelta, name) for name in reference._VALUES}
    with (
        reference._objects() as reached,
        SqlCatalog(f"sqlite:///{folder}/catalog.db") as own,
        UnityCatalog("https://example.org") as served,
    ):
        yield {
            "DeltaTable": DeltaTable(folder / "t"), **reached, "SqlCatalog": own, "UnityCatalog": served, **values
        }  # fmt: skip


def listed(title: str) -> set[str]:
    """The names in the table of a section of the reference."""
    section = re.split(rf"^###? {title}\n", PAGE, flags=re.MULTILINE)[1]
    return set(re.findall(r"^\| `(\w+)", re.split(r"^##", section, flags=re.MULTILINE)[0], re.MULTILINE))


@pytest.mark.parametrize("name", CLASSES)
def test_the_public_names_of_a_class_are_those_of_the_reference(objects: dict[str, Any], name: str) -> None:
    found = objects[name]
    shown = {member for member in dir(found) if not member.startswith("_")}
    if isinstance(found, type):
        shown |= set(reference.fields(found))
    if name == "CommitResult":
        shown -= set(dir(Mapping))  # it says that it is one
    assert shown == listed(name)


def test_a_transaction_holds_the_internal_one_and_is_none(objects: dict[str, Any]) -> None:
    from refdelta.transaction.transaction import Transaction

    assert not isinstance(objects["WriteTransaction"], Transaction)
    assert isinstance(objects["WriteTransaction"]._transaction, Transaction)


def test_former_names_warn_and_still_work(objects: dict[str, Any], tmp_path: Any) -> None:
    with pytest.warns(DeprecationWarning, match="refdelta.AppTransaction"):
        former = refdelta.Transaction
    assert former is refdelta.AppTransaction
    properties = CommitProperties(app_transactions=[former(app_id="job", version=3)])
    write_deltalake(tmp_path, pa.table({"id": [1]}), commit_properties=properties)
    table = DeltaTable(tmp_path)
    assert table.transaction_version("job") == 3
    with table.begin() as txn:
        with pytest.warns(DeprecationWarning, match="use set_table_properties"):
            txn.set_properties({"mine": "1"})
        txn.commit()
    with table.begin() as txn:
        with pytest.warns(DeprecationWarning, match="use unset_table_properties"):
            txn.unset_properties(["mine"])
        txn.commit()
    with pytest.warns(DeprecationWarning, match="use transact"):
        assert table.run(lambda txn: txn.delete("id = 1"), {}).version == 3
    with pytest.warns(DeprecationWarning, match="use transact"):
        assert table.repeated(lambda: 7, {}) == 7
    with pytest.warns(DeprecationWarning, match="pass attempts"):
        table.check_readable_again([], {})
    with pytest.raises(AttributeError, match="no attribute 'newest_for_writing'"):
        _ = table.newest_for_writing
