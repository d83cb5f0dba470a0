"""Names alone: what the options mean is in test_options.py and test_sink_options.py."""

from __future__ import annotations

import pytest

from logstore.errors import InvalidArgumentError
from spark_connector.settings.option_names import OptionNames, local_folder, one_of, time_ms
from spark_connector.settings.option_table import Option

NAMES = OptionNames(
    known={"colour": Option(name="colour", default="", values="", meaning="")},
    mapped={"kafka.color": "Colour"},
    harmless={"kafka.size": "nothing is big"},
    refused={"kafka.shape": "it has one"},
    use="painting",
    give_path=".paint(DIR)",
    where=" for paint",
    passed=frozenset({"own"}),
    elsewhere=frozenset({"frame"}),
)


def test_each_name_goes_where_it_belongs() -> None:
    values, warnings = NAMES.sort({"COLOUR": "red", "kafka.Color": "blue", "kafka.size": "9", "own": "x"})
    assert values == {"colour": "red"}, "what we call it ourselves beats Kafka's name"
    assert warnings == ["option kafka.size changes nothing: nothing is big"]
    assert NAMES.sort({"kafka.color": "blue"}).values == {"colour": "blue"}


def test_a_table_in_sparks_catalogue_has_no_options_and_says_what_has() -> None:
    """As Spark gives them: to CREATE TABLE with properties of its own, to SELECT none."""
    created = {
        "location": "file:/data",
        "path": "file:/data",
        "owner": "me",
        "provider": "logstore",
        "colour": "red",
    }
    for given in ({}, created):
        with pytest.raises(InvalidArgumentError, match="CREATE TEMPORARY VIEW"):
            NAMES.sort(given)


def test_several_directories_are_no_store() -> None:
    with pytest.raises(InvalidArgumentError, match="unionByName"):
        NAMES.sort({"paths": '["/a","/b"]'})


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("/srv/store", "/srv/store"),
        ("data", "data"),
        ("a:b/c", "a:b/c"),
        ("file:/srv/my%20store", "/srv/my store"),
        ("file:///srv/store", "/srv/store"),
        ("FILE://localhost/srv", "/srv"),
        ("file://elsewhere/srv", None),
        ("hdfs://name/srv", None),
        ("s3a://bucket/srv", None),
        ("", None),
    ],
)
def test_a_path_or_a_file_uri_is_a_folder_of_this_machine(text: str, folder: str | None) -> None:
    assert local_folder(text) == folder


def test_an_option_of_the_other_direction_changes_nothing() -> None:
    assert NAMES.sort({"Frame": "x"}) == ({}, ["option Frame changes nothing for painting a store"])


def test_an_option_that_does_not_count_here_is_left_out() -> None:
    def counts(option: Option, warnings: list[str]) -> bool:
        warnings.append(f"{option.name} is ignored")
        return False

    assert NAMES.sort({"colour": "red"}, counts) == ({}, ["colour is ignored"])


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("color", InvalidArgumentError, "there is no option color for paint.*did you mean colour"),
        ("qqq", InvalidArgumentError, "README"),
        ("kafka.shape", InvalidArgumentError, "it has one"),
    ],
)
def test_what_is_refused_says_what_to_do(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        NAMES.sort({name: "x"})


def test_a_path_is_needed() -> None:
    assert NAMES.path({"path": "data"}) == "data"
    with pytest.raises(InvalidArgumentError, match=r"(?s)path is missing.*\.paint\(DIR\)"):
        NAMES.path({"path": ""})


def test_words_and_times() -> None:
    assert one_of({}, "mode", ("a", "b")) == "a"
    assert one_of({}, "mode", ("a", "b"), "b") == "b"
    assert one_of({"mode": " B "}, "Mode", ("a", "b")) == "b"
    with pytest.raises(InvalidArgumentError, match=r"(?s)mode=alpa.*did you mean alpha"):
        one_of({"mode": "alpa"}, "mode", ("alpha", "beta"))
    assert [time_ms({}, "t", text) for text in ("7", "500ms", "30s", "2 M", "1h")] == [
        7,
        500,
        30_000,
        120_000,
        3_600_000,
    ]
    with pytest.raises(InvalidArgumentError, match="t=soon"):
        time_ms({"t": "soon"}, "t", "1s")
