"""Columns: the same from every kind of file, every cell within its bounds, and no word about a bad
one.
"""

import csv
import datetime
import gzip
import traceback
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmcmc import Budget, Curator, Neighbours, models, tables
from dpmcmc.queries import Curvature, Gradient, LogRatio
from dpmcmc.tables.columns import labels, numbers
from dpmcmc.tables.declared import Bounds, DateBounds, parse_bounds, parse_levels, parse_names
from dpmcmc.tables.files import read_columns

NAN = np.nan
AGES = np.array([21.0, 30.5, 64.0])
SEXES = np.array([0, 1, 1])
CSV = "\ufeffage, sex ,name\n21,0,a\n30.5,1,b\n64,1,c\n"


def write(folder, kind):
    path = folder / f"table{kind}"
    if kind == ".csv":
        path.write_text(CSV, encoding="utf-8")
    elif kind == ".csv.gz":
        path.write_bytes(gzip.compress(CSV.encode()))
    elif kind == ".npz":
        np.savez(path, age=AGES, sex=SEXES, name=np.array(["a", "b", "c"]))
    else:
        rows = np.array(list(zip(AGES, SEXES, strict=True)), dtype=[("age", float), ("sex", int)])
        np.save(path, rows)
    return path


@pytest.mark.parametrize("kind", [".csv", ".csv.gz", ".npz", ".npy"])
def test_every_kind_of_file_gives_the_same_columns(kind, tmp_path):
    columns = read_columns(write(tmp_path, kind), ["sex", "age"])
    assert list(columns) == ["sex", "age"]
    np.testing.assert_array_equal(numbers(columns["age"], Bounds(0, 100)), AGES)
    np.testing.assert_array_equal(labels(columns["sex"]), SEXES)


def test_plain_arrays_have_numbered_columns(tmp_path):
    np.save(tmp_path / "matrix.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "vector.npy", np.arange(3))
    np.savez(tmp_path / "several.npz", x=np.zeros((3, 2)), y=np.zeros(3))
    assert list(read_columns(tmp_path / "matrix.npy", None)) == ["0", "1"]
    assert list(read_columns(tmp_path / "vector.npy", None)) == ["0"]
    assert list(read_columns(tmp_path / "several.npz", None)) == ["x.0", "x.1", "y"]


def test_a_cell_is_the_same_number_whatever_the_others_are():
    """One text among numbers of single precision makes objects of them, and 0.1 there is not the
    number that prints as 0.1.
    """
    cells = np.float32([0.1, 0.7, 0.3])
    among_text = [*cells, "?"]
    for column in (among_text, np.array(among_text, object)):
        np.testing.assert_array_equal(
            numbers(column, Bounds(0, 1))[:-1], numbers(cells, Bounds(0, 1))
        )
        np.testing.assert_array_equal(labels(column, 0.1, 0.7)[:-1], labels(cells, 0.1, 0.7))
        np.testing.assert_array_equal(labels(column, *cells[:2])[:-1], labels(cells, *cells[:2]))


@pytest.mark.parametrize(
    "read", [lambda cells: tables.scaled({"a": cells}, {"a": (0, 9)}), labels, tables.persons]
)
def test_a_mask_is_not_ignored(read):
    with pytest.raises(ValueError, match="would lose its mask: fill it first"):
        read(np.ma.array([1, 2, 3], mask=[True, False, False]))


BAD = ["", "n/a", "nan", "1,5", "--", "\x00", "6" * 200_000 + "x"]


def test_a_bad_cell_is_no_number_and_one_outside_becomes_the_nearer_bound():
    bounds = Bounds(10.0, 20.0)
    assert np.isnan(numbers(BAD, bounds)).all()
    np.testing.assert_array_equal(
        numbers(["-inf", "9.9", "10", "12.5", "1e400", "inf"], bounds), [10, 10, 10, 12.5, 20, 20]
    )
    np.testing.assert_array_equal(
        numbers(np.array([NAN, -np.inf, np.inf, 11]), bounds), [NAN, 10, 20, 11]
    )
    np.testing.assert_array_equal(numbers(np.array([b"11", b"\xff"]), bounds), [11, NAN])


def test_wide_bounds_do_not_overflow():
    bounds = Bounds(-1.7e308, 1.7e308)
    assert bounds.middle == 0 and np.isfinite(bounds.half)


def test_labels():
    np.testing.assert_array_equal(
        labels(["1", "0", "yes", "", "nan", "1.0", " 1"]), [1, 0, NAN, NAN, NAN, 1, 1]
    )
    np.testing.assert_array_equal(labels(["True", "False", "TRUE", "truth"]), [1, 0, 1, NAN])
    # No number but 0 and 1 is a label
    np.testing.assert_array_equal(labels(["2", "0.7", "-1", "0"]), [NAN, NAN, NAN, 0])
    np.testing.assert_array_equal(
        labels([">50K", " >50K ", "<=50K", "", "?"], ">50K", "<=50K"), [1, 1, 0, NAN, NAN]
    )
    np.testing.assert_array_equal(
        labels(["some", "None", "N/A", None, NAN, " "], "some", "None"), [1, 0, NAN, NAN, NAN, NAN]
    )
    # Of Namibia and South Africa
    np.testing.assert_array_equal(labels(["NA", "SA", ""], "NA", "SA"), [1, 0, NAN])
    np.testing.assert_array_equal(labels(np.array([2, 3, 2]), "2", "3"), [1, 0, 1])
    np.testing.assert_array_equal(labels(np.array([2, 3, NAN]), "2", 3), [1, 0, NAN])
    np.testing.assert_array_equal(labels(np.array([1, 0, NAN])), [1, 0, NAN])
    with pytest.raises(ValueError, match="holds numbers: 'yes' is none"):
        labels(np.array([2, 3, 2]), "yes", 3)


@pytest.mark.parametrize("levels", [{"positive": "yes"}, {"negative": "no"}])
def test_both_levels_of_a_label_are_declared(levels):
    """With one of them every other spelling, of either level, counted as the other."""
    with pytest.raises(
        ValueError, match="declare both levels of the label, or none where they are 1 and 0"
    ):
        labels(["yes", "no"], **levels)


def test_a_label_of_another_spelling_is_missing():
    np.testing.assert_array_equal(labels(["Yes", "yes", "no", "No"], "yes", "no"), [NAN, 1, 0, NAN])
    with pytest.raises(ValueError, match="must be two different values"):
        labels(["yes", "no"], "yes", "yes")


def test_a_missing_date_is_no_label():
    pandas = pytest.importorskip("pandas")
    dates = np.array(["2020-01-01", "2020-01-02", "NaT"], "datetime64[D]")
    for column in (pandas.Series(dates).astype(object), [*dates], ["one", "two", pandas.NaT]):
        np.testing.assert_array_equal(labels(column, *map(str, list(column)[:2])), [1, 0, NAN])
    np.testing.assert_array_equal(labels(["Nat", "Kim", "NaT"], "Kim", "NaT"), [NAN, 1, 0])


@pytest.mark.parametrize("name, pack", [("table.csv", bytes), ("table.csv.gz", gzip.compress)])
def test_no_line_is_dropped(name, pack, tmp_path):
    path = tmp_path / name
    path.write_bytes(pack(b"a,b\n1,2\n\n3\n4,5,6\n\xff\xfe,7\n" + b'"' + b"9" * 200_000 + b'",1\n'))
    columns = read_columns(path, ["a", "b"])
    assert len(columns["a"]) == len(columns["b"]) == 6
    np.testing.assert_array_equal(numbers(columns["a"], Bounds(0, 10)), [1, NAN, 3, 4, NAN, 10])
    np.testing.assert_array_equal(numbers(columns["b"], Bounds(0, 10)), [2, NAN, NAN, 5, 7, 1])


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("bad", ['"2,0', '2,"0', '"', '""",', '2"",x"', "\x0b\x1c\u2028"])
def test_one_bad_line_is_one_bad_row(bad, end, tmp_path):
    path = tmp_path / "table.csv"
    good = ['"a","b, c"', '1,"1"', '3,"1,5"', '"4",1', ' 5 ,"1""" x']
    path.write_text(end.join([*good[:2], bad, *good[2:]]) + end, encoding="utf-8", newline="")
    columns = read_columns(path, ["a", "b, c"])
    assert [columns["a"][0], *columns["a"][2:]] == ["1", "3", "4", " 5 "]
    assert [columns["b, c"][0], *columns["b, c"][2:]] == ["1", "1,5", "1", '1" x']


def test_bounds_are_parsed():
    assert parse_bounds("age=21:64, a=b=-1:+1e3,") == {
        "age": Bounds(21, 64),
        "a=b": Bounds(-1, 1000),
    }
    assert parse_bounds('"income, yearly"=0:9, "age"=1:2') == {
        "income, yearly": Bounds(0, 9),
        "age": Bounds(1, 2),
    }
    assert (
        parse_names(' age,"income, yearly",') == ("age", "income, yearly") and parse_names("") == ()
    )
    assert parse_bounds("age=1:2,\n  height=3:4\n") == {"age": Bounds(1, 2), "height": Bounds(3, 4)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age", "'age' must read COLUMN=LOW:HIGH"),
        ("age=3", "must read COLUMN=LOW:HIGH"),
        ("=1:2", "must read COLUMN=LOW:HIGH"),
        ("age=a:b", "must read COLUMN=LOW:HIGH"),
        ("age=64:21", "must be two finite numbers, the lower first"),
        ("age=1:1", "the lower first"),
        ("age=nan:1", "two finite numbers"),
        ("age=0:inf", "two finite numbers"),
        ("age=0:1,age=0:2", "column 'age' has two bounds"),
    ],
)
def test_bad_bounds_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        parse_bounds(text)


@pytest.mark.parametrize("names", [["age", "ill"], ["1", "age"], ["ill", "age"]])
@pytest.mark.parametrize("line", ["58,1,Smith", "58,ill,Smith", "1980-02-03,ill,Smith"])
def test_a_first_line_that_may_be_a_row_is_not_shown(line, names, tmp_path):
    """Even if a name is there by chance, or because cells are told by the names of their
    columns."""
    path = tmp_path / "table.csv"
    path.write_text(f"{line}\n33,0,Jones\n")
    with pytest.raises(
        ValueError,
        match="'age'.* in its first line: .*does that line name the columns, separated by ','",
    ) as caught:
        read_columns(path, names)
    assert not any(cell in str(caught.value) for cell in ("Smith", "58", "1980"))


def test_a_cell_may_have_any_length(tmp_path):
    """The csv module has a limit that all threads share: beyond it a long cell was an error."""
    path = tmp_path / "table.csv"
    path.write_text('a,b\n"1",2\n"' + 200_000 * "3" + '",4\n')
    limit = csv.field_size_limit(1)
    try:
        assert [len(cell) for cell in read_columns(path, ["a"])["a"]] == [1, 200_000]
    finally:
        csv.field_size_limit(limit)


PACKED = gzip.compress(b"age,name\n58,Smith\n")
DAMAGED = {
    "plain.csv.gz": b"Smith,58\n",
    "cut.csv.gz": PACKED[:-4],
    "spoiled.csv.gz": PACKED[:10] + bytes(8) + PACKED[18:],
    "header.npy": b"\x93NUMPY\x01\x00\x05\x00Sm:th",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_shows_no_byte(name, tmp_path):
    """Not in the error, and not in another that it came from: those of gzip and NumPy do."""
    path = tmp_path / name
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=f"{name} could not be read") as caught:
        read_columns(path, None)
    assert "Sm" not in "".join(traceback.format_exception(caught.value))


def test_files_that_are_refused(tmp_path):
    path = write(tmp_path, ".csv")
    with pytest.raises(
        ValueError,
        match="table.csv has no column 'weight' in its first line: is it spelled like that there",
    ):
        read_columns(path, ["weight", "sex"])
    np.savez(tmp_path / "named.npz", age=np.zeros(3), name=np.zeros(3))
    with pytest.raises(ValueError, match="named.npz has no column 'weight'; it has age, name"):
        read_columns(tmp_path / "named.npz", ["weight", "age"])
    for delimiter in (";;", "", '"', "\n"):
        with pytest.raises(
            ValueError, match="delimiter=.* must be one character, and no quote or line break"
        ):
            read_columns(path, ["age"], delimiter)
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ValueError, match="twice.csv names 'a' more than once"):
        read_columns(tmp_path / "twice.csv", ["a"])
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="has no header"):
        read_columns(tmp_path / "empty.csv", ["a"])
    (tmp_path / "table.txt").write_text(CSV)
    with pytest.raises(
        ValueError,
        match=r"table.txt must end with one of .csv, .csv.gz, .tsv, .tsv.gz, .npy, .npz$",
    ):
        read_columns(tmp_path / "table.txt", ["age"])
    np.savez(tmp_path / "uneven.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(ValueError, match="different numbers of rows"):
        read_columns(tmp_path / "uneven.npz", ["a"])
    np.save(tmp_path / "cube.npy", np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match=r"has shape \(3, 4\) per row"):
        read_columns(tmp_path / "cube.npy", None)
    np.save(tmp_path / "objects.npy", np.array([1, None]), allow_pickle=True)
    with pytest.raises(ValueError, match="must hold plain arrays of numbers or text"):
        read_columns(tmp_path / "objects.npy", None)
    with pytest.raises(ValueError, match="type complex128 cannot be used"):
        numbers(np.zeros(3, complex), Bounds(0, 1))


@pytest.mark.parametrize("name, pack", [("table.tsv", bytes), ("table.tsv.gz", gzip.compress)])
def test_tabs_stand_between_the_cells_of_a_tsv_file(name, pack, tmp_path):
    path = tmp_path / name
    path.write_bytes(pack(b'a\tb, c\n1\t"2\t3"\n4,5\t6\n'))
    assert read_columns(path, None) == {"a": ["1", "4,5"], "b, c": ["2\t3", "6"]}
    assert read_columns(path, None, ";") == {"a\tb, c": ['1\t"2\t3"', "4,5\t6"]}


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("people.xlsx", "read_excel"),
        ("people.PARQUET", "read_parquet"),
        ("people.dta", "read_stata"),
    ],
)
def test_other_tables_are_refused_with_a_way_to_convert_them(name, reader, tmp_path):
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(
        ValueError, match="save the table as CSV, or convert it in Python with pandas"
    ) as caught:
        read_columns(tmp_path / name, None)
    assert f"pandas.{reader}('{name}').to_csv('people.csv', index=False)" in str(caught.value)


FRAME = {
    "age": np.array([18, 90, 54, 200]),
    "income": [None, "0", 75_000.0, "?"],
    "ill": ["yes", "no", None, "yes"],
}


def test_raw_columns_are_scaled_to_their_limits():
    features = tables.scaled(FRAME, {"income": (0, 100_000), "age": (18, 90)})
    np.testing.assert_array_equal(
        features, np.array([[NAN, -1], [-1, 1], [0.5, 0], [NAN, 1]], np.float32)
    )
    assert features.dtype == np.float32
    np.testing.assert_array_equal(tables.labels(FRAME["ill"], "yes", "no"), [1, 0, NAN, 1])


def test_bounds_that_lie_close_for_their_size_are_not_left():
    """Their middle is rounded to one of them: the other would be 2."""
    cells = np.array([1e16, 1e16 + 2])
    assert np.abs(tables.scaled({"a": cells}, {"a": tuple(cells)})).max() <= 1


def test_a_data_frame_is_a_table_too():
    frame = pytest.importorskip("pandas").DataFrame(FRAME)
    limits = {"age": (18, 90), "income": (0, 100_000)}
    np.testing.assert_array_equal(tables.scaled(frame, limits), tables.scaled(FRAME, limits))
    np.testing.assert_array_equal(
        tables.labels(frame["ill"], "yes", "no"), tables.labels(FRAME["ill"], "yes", "no")
    )


@pytest.mark.parametrize("positive", [1, 1.0, "1", True, "true"])
def test_a_label_is_found_as_text_or_as_a_number(positive):
    for cells in (
        [1, 0, None],
        np.array([1.0, 0.0, None], object),
        ["True", "False", ""],
        np.array([1, 0, NAN]),
    ):
        np.testing.assert_array_equal(tables.labels(cells, positive, 0), [1, 0, NAN])
    np.testing.assert_array_equal(tables.labels(np.array([True, False]), positive, "false"), [1, 0])
    np.testing.assert_array_equal(tables.labels(["yes", "no", "nan"], "nan", "no"), [NAN, 0, 1])


def test_a_cell_that_is_a_list_is_a_bad_cell():
    """If all are, too: one that is none must not be seen by what the others then are."""
    np.testing.assert_array_equal(
        tables.scaled({"a": [[1], [2]], "b": [1, [2]]}, {"a": (0, 4), "b": (0, 4)}),
        [[NAN, -0.5], [NAN, NAN]],
    )


def test_one_missing_cell_does_not_decide_about_an_error():
    pandas = pytest.importorskip("pandas")
    for cells, found in (([3, 3], [0, 0]), ([3, None], [0, NAN])):
        np.testing.assert_array_equal(
            tables.labels(pandas.Series(cells, dtype="Int64"), "yes", 3), found
        )
    with pytest.raises(ValueError, match="the column holds numbers: 'yes' is none"):
        tables.labels(np.array([3, 3]), "yes", 3)


def test_a_number_that_python_does_not_print_is_a_bad_cell():
    column = {"a": [10**5000, 1]}
    np.testing.assert_array_equal(tables.scaled(column, {"a": (0, 4)}), [[NAN], [-0.5]])
    np.testing.assert_array_equal(tables.labels(column["a"], 1, 0), [NAN, 1])


def test_levels_become_indicators_against_the_first():
    cells = ["North", " South", "West", "", "south", None, "South"]
    found = tables.indicators(cells, ["North", "South", "West"])
    np.testing.assert_array_equal(
        found, [[0, 0], [1, 0], [0, 1], [NAN] * 2, [NAN] * 2, [NAN] * 2, [1, 0]]
    )
    assert found.dtype == np.float32
    np.testing.assert_array_equal(
        tables.indicators(np.array([1, 2, 3]), [1, "2"]), [[0], [1], [NAN]]
    )
    for levels in (["North"], "NS", ["a", "a"], ["0", "1", "1.0"], ["1", "true"], []):
        with pytest.raises(ValueError, match="must be two different values or more"):
            tables.indicators(cells, levels)


@pytest.mark.parametrize("number", [2, 3, 7])
def test_corners_are_alike_in_all_directions(number):
    levels = [f"level {index}" for index in range(number)]
    found = tables.corners([*levels, "another", None], levels)
    assert found.dtype == np.float32 and np.isnan(found[number:]).all()
    corners = found[:number].astype(float)
    np.testing.assert_array_equal(corners, tables.simplex(number).T.astype(np.float32))
    assert np.all(np.linalg.norm(corners, axis=1) <= 1)  # what a radius is computed from
    np.testing.assert_allclose(
        corners @ corners.T, (number * np.eye(number) - 1) / (number - 1), atol=1e-6
    )
    np.testing.assert_allclose(
        corners.T @ corners, np.eye(number - 1) * number / (number - 1), atol=1e-6
    )


def test_a_simplex_has_two_corners_at_least():
    with pytest.raises(ValueError, match="must be at least 2"):
        tables.simplex(1)


def test_levels_are_parsed():
    assert parse_levels('sex=female/male, "a, b"= c / d=e/1') == {
        "sex": ("female", "male"),
        "a, b": ("c", "d=e", "1"),
    }
    for text in ("sex", "sex=male", "=a/b", "sex=a/a", "sex=a/b/", "sex=a/b,sex=a/c"):
        with pytest.raises(
            ValueError,
            match="must read COLUMN=ONE/TWO/..., two different values or more, and each column "
            "once",
        ):
            parse_levels(text)


def test_quotes_are_for_names_and_values_with_separators():
    """Commas, slashes and signs of equality in quotes are taken as they are, and two quotes for
    one.
    """
    text = 'region="North, East"/South, "km/h = ""v"""="1/2"/3,\nage = 1/2'
    found = {"region": ("North, East", "South"), 'km/h = "v"': ("1/2", "3"), "age": ("1", "2")}
    assert parse_levels(text) == found
    assert parse_names('"a, b",c/d,"e ""f"""') == ("a, b", "c/d", 'e "f"')
    assert parse_bounds('"a=b, c"=1:2,"km/h"=0:200') == {
        "a=b, c": Bounds(1, 2),
        "km/h": Bounds(0, 200),
    }
    for parse in (parse_levels, parse_names, parse_bounds):
        with pytest.raises(
            ValueError,
            match="leaves a quote open: put names and values with one of , = / in quotes",
        ):
            parse('region="North, East/South')


def test_dates_have_bounds_of_their_own():
    (bounds,) = parse_bounds("birth=1969-12-31:1970-01-11").values()
    assert isinstance(bounds, DateBounds) and bounds == DateBounds(-1, 10)
    assert bounds.words == "1969-12-31 and 1970-01-11 (dates, read as days since 1970-01-01)"
    for text in (
        "birth=1940:2010-12-31",
        "birth=1940-13-01:2010-12-31",
        "birth=1.1.1940:31.12.2010",
    ):
        with pytest.raises(
            ValueError,
            match="must read COLUMN=LOW:HIGH, two numbers or two dates, as in age=21:64 or birth",
        ):
            parse_bounds(text)
    with pytest.raises(ValueError, match="the lower first"):
        parse_bounds("birth=2010-12-31:1940-01-01")


DATES = {
    "1970-01-02": 1,
    " 1970-01-02T12:00 ": 1.5,
    "1970-01-02 06:00:00.000": 1.25,
    "1970-01-02T12:00:00Z": 1.5,
    "1970-01-02 12:00+05:00": 1.5,  # the local time
    "1900-01-01": -1,
    "2024-02-29": 10,
    "2023-02-29": NAN,
    "01/02/1970": NAN,
    "19700102": NAN,  # a number
    "1970-01-02T": NAN,
    "2 January": NAN,
    "0": NAN,
    "": NAN,
    "NA": NAN,
}


def test_dates_are_read_as_days():
    bounds = DateBounds(-1, 10)
    np.testing.assert_array_equal(numbers(list(DATES), bounds), list(DATES.values()))
    np.testing.assert_array_equal(numbers(np.array(list(DATES)), bounds), list(DATES.values()))
    np.testing.assert_array_equal(
        numbers(list(DATES), Bounds(-1, 10)), [NAN] * 9 + [10, NAN, NAN, 0, NAN, NAN]
    )
    with pytest.raises(ValueError, match="the column holds numbers, and its bounds are dates"):
        numbers(np.zeros(3), bounds)


@given(
    st.text(max_size=40)
    | st.builds(
        "{}-{:02}-{:02}{}".format, st.integers(0, 9999), *[st.integers(0, 99)] * 2, st.text()
    )
)
def test_no_text_is_an_error_where_dates_are_read(text):
    with np.errstate(all="raise"):
        (day,) = numbers([text], DateBounds(-1, 10))
    assert np.isnan(day) or -1 <= day <= 10


@pytest.mark.parametrize(
    "limits",
    [("1970-01-01", "1970-01-11"), (datetime.date(1970, 1, 1), np.datetime64("1970-01-11"))],
)
def test_a_date_is_the_same_in_every_column(limits):
    """As text, or as dates of Python, NumPy or pandas, with or without others that are missing."""
    pandas = pytest.importorskip("pandas")
    texts = ["1970-01-03T12:00", "1970-01-06"]
    times = pandas.Series(pandas.to_datetime(texts, format="ISO8601"))
    columns = [
        texts,
        times,
        times.to_numpy(),
        times.astype(object),
        times.dt.tz_localize("CET"),
        list(times),
    ]
    columns += [times.to_numpy().astype(f"datetime64[{unit}]") for unit in ("s", "ms", "us")]
    for column in columns:
        np.testing.assert_array_equal(tables.scaled({"d": column}, {"d": limits}), [[-0.5], [0]])
    gaps = [
        [texts[0], None],
        pandas.Series([times[0], pandas.NaT]),
        np.array([texts[0], "NaT"], "datetime64[s]"),
    ]
    for column in gaps:
        np.testing.assert_array_equal(tables.scaled({"d": column}, {"d": limits}), [[-0.5], [NAN]])


def test_the_name_of_a_column_is_no_column():
    with pytest.raises(ValueError, match="not a text: give the column itself"):
        tables.labels("ill", "yes", "no")


def test_bounds_are_by_name():
    with pytest.raises(TypeError, match="bounds is a str: give a dict"):
        tables.scaled(FRAME, "age=18:90")


def test_columns_of_several_lengths_are_named():
    with pytest.raises(
        ValueError, match="the columns 'a', 'b' have different numbers of rows: they must agree"
    ):
        tables.scaled({"a": [1], "b": [1, 2]}, {"a": (0, 1), "b": (0, 1)})


def test_times_with_a_zone_are_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="cannot be used"):
        tables.scaled(
            {"when": pandas.Series(pandas.to_datetime(["2020-01-01"]).tz_localize("UTC"))},
            {"when": (0, 1)},
        )


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "no bounds: they name the columns to take"),
        ({"weight": (0, 1), "age": (0, 1)}, "no column 'weight', of those that the bounds name$"),
        ({"age": (90, 18)}, r"bounds age=\(90, 18\) must be two finite numbers, the lower first"),
        ({"age": 90}, "bounds age=90 must be two"),
        ({"when": (0, 1)}, "a column of type datetime64.* cannot be used"),
        ({"pairs": (0, 1)}, "a column of type float64 with 2 axes cannot be used"),
    ],
)
def test_what_cannot_be_scaled_is_named(limits, words):
    table = FRAME | {"when": np.zeros(4, "datetime64[D]"), "pairs": np.zeros((4, 2))}
    with pytest.raises(ValueError, match=words):
        tables.scaled(table, limits)


@pytest.mark.parametrize("table", ["people.csv", Path("people.csv"), np.zeros((4, 1))])
def test_a_table_without_names_is_told_from_one_without_the_column(table):
    with pytest.raises(
        TypeError,
        match=f"the table is a {type(table).__name__}: give a DataFrame or a dict of columns",
    ):
        tables.scaled(table, {"age": (0, 1)})


def test_neither_the_length_of_a_text_nor_the_size_of_a_number_is_told():
    bounds = {"a": (0.0, 1e50)}
    for cells in (
        ["1e45", "1"],
        ["0.5", "1"],
        ["1e-50", "1"],
        np.finfo(np.longdouble).max * np.ones(2, np.longdouble),
    ):
        with np.errstate(all="raise"):
            assert tables.scaled({"a": np.array(cells)}, bounds).dtype == np.float32
            assert tables.scaled({"a": np.array(cells)}, {"a": (-1, 1)}).dtype == np.float32
    for long in ("b", "a long text"):
        with pytest.raises(ValueError, match="^a column of type str_ with 2 axes cannot be used"):
            tables.scaled({"a": np.array([[long, "b"]])}, bounds)
        with pytest.raises(ValueError, match="not a text: give the column itself$"):
            tables.scaled({"a": long}, bounds)


@pytest.mark.parametrize(
    "query, gap",
    [
        (LogRatio(8.0, 9.0), {"weight": "n/a"}),
        pytest.param(LogRatio(8.0, 9.0), {"age": "a text"}, marks=pytest.mark.slow),
        (Gradient(8.0, 9.0), {"age": "", "weight": None}),
        pytest.param(Gradient(8.0, 9.0), {"weight": None}, marks=pytest.mark.slow),
        pytest.param(Curvature(4.0, 9.0), {"age": ""}, marks=pytest.mark.slow),
        # Of a linear regression it would depend on the features alone
        (Curvature(4.0, 9.0), {"weight": ""}),
    ],
    ids=str,
)
def test_a_row_with_a_missing_cell_is_as_good_as_gone(query, gap):
    """The number of rows is private, so the complete ones alone must give the same answer, noise
    and all.
    """
    # Its sums are exact in any order here
    model = models.linear(1, 1.0, radius=1.0, response_bound=1.0, position_radius=4.0)
    complete = {
        "age": [str(20 + 5 * (i % 9)) for i in range(90)],
        "weight": [str(40 + 10 * (i % 7)) for i in range(90)],
    }
    with_gaps = {name: cells + [gap.get(name, "60")] * 10 for name, cells in complete.items()}
    points = [np.array([0.5], np.float32), np.array([0.25], np.float32)][
        : 2 if isinstance(query, LogRatio) else 1
    ]

    def answer(columns):
        scaled = tables.scaled(columns, {"age": (20, 60), "weight": (20, 100)})
        budget = Budget(8.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
        curator = Curator(
            (scaled[:, :1], scaled[:, 1]),
            model,
            budget,
            capacity=128,
            fixed_secret=np.arange(16, dtype=np.uint32),
        )
        program = curator.trace(lambda ask, key: ask(key, query, *points).value, jax.random.key(0))
        return curator.grant(program.plan).run(program.compile(), jax.random.key(0))

    np.testing.assert_array_equal(answer(with_gaps), answer(complete))
    assert np.any(
        answer(with_gaps) != answer({name: cells[:-10] for name, cells in complete.items()})
    )
