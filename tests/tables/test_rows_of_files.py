"""What is a row of a CSV file: no cell makes one, or moves the cells of another."""

import csv
import gzip
import io
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpmcmc.tables import persons, read_columns

NAMES = ["id", "comment", "x"]
PACKERS = {"table.csv": bytes, "table.csv.gz": gzip.compress}
CONTROLS = [
    chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp")
]
NASTY = [
    '"',
    '""',
    ",",
    "\n",
    "\r",
    "\r\n",
    '"\n',
    '\n"',
    '",',
    ',"',
    '"\n"',
    '",\n',
    "\x0b",
    "\x85",
    "\u2028",
    "\x00",
    "a",
]


def exported(rows, **options):
    """A CSV file as the csv module writes it."""
    file = io.StringIO(newline="")
    csv.writer(file, **options).writerows([NAMES, *rows])
    return file.getvalue().encode()


def rows_in(folder, content, name="table.csv"):
    """The rows that are read from a file with this content."""
    path = folder / name
    path.write_bytes(PACKERS[name](content))
    return list(zip(*read_columns(path, NAMES).values(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("is_quoted", [False, True])
def test_no_control_character_in_a_cell_makes_a_row(is_quoted, name, folder):
    """Of all of Unicode's control characters and line ends only an unquoted line feed ends a
    row."""
    others = [("a", "fine", "1"), ("b", "fine", "2")]
    # 65 control characters, the line separator and the paragraph separator
    assert len(CONTROLS) == 67
    for control in CONTROLS:
        text = f"hello{control}-1.0,1,x{control}c,d,e" if is_quoted else f"hello{control}world"
        cell = '"' + text + '"' if is_quoted else text
        content = f"id,comment,x\na,fine,1\nz,{cell},9\nb,fine,2\n".encode()
        found = rows_in(folder, content, name)
        if control == "\n" and not is_quoted:
            continue
        assert found == [others[0], ("z", text, "9"), others[1]], ascii(control)


@pytest.mark.parametrize("name", PACKERS)
def test_a_carriage_return_does_not_make_rows_that_displace_those_of_other_persons(name, folder):
    """One person's unused comment was 60 rows, of which some were another's first ones."""
    forged = "hello" + 60 * "\rb,,1"
    found = rows_in(folder, f"id,comment,x\na,{forged},0\nb,fine,2\n".encode(), name)
    assert found == [("a", forged.split(",")[0], ""), ("b", "fine", "2")]
    np.testing.assert_array_equal(persons([person for person, _, _ in found]), [0, 1])


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(NASTY)).map("".join),
)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=6)


@settings(deadline=None)
@given(
    ROWS,
    TEXTS,
    st.integers(0, 5),
    st.integers(0, 2),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
@example([("1", "", "2"), ("3", "", "4")], 'x"\n5,"', 0, 1, csv.QUOTE_MINIMAL)
@example([("1", "\n", "2"), ("3", '"', "4")], '"', 0, 1, csv.QUOTE_MINIMAL)
def test_a_cell_of_an_export_changes_its_row_only(folder, rows, text, place, column, quoting):
    """Whatever somebody wrote into a cell: the number of rows, and all others to the bit, stay as
    they are.
    """
    place %= len(rows)
    changed = list(rows)
    changed[place] = (*rows[place][:column], text, *rows[place][column + 1 :])
    for table in (rows, changed):
        assert rows_in(folder, exported(table, quoting=quoting)) == table
    # With the first, some versions of Python leave a lone carriage return unquoted
    for end in ("\n", "\r\n"):
        before, after = (
            rows_in(folder, exported(table, quoting=quoting, lineterminator=end))
            for table in (rows, changed)
        )
        assert len(before) == len(after) == len(rows)
        assert before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]


@settings(deadline=None)
@given(ROWS, st.integers(0, 5), TEXTS)
def test_a_row_more_in_an_export_is_one_row_more(folder, rows, place, text):
    place %= len(rows)
    more = [*rows[:place], (text, text, text), *rows[place:]]
    assert rows_in(folder, exported(more)) == more


def test_pandas_exports_are_read_as_they_are(folder):
    pandas = pytest.importorskip("pandas")
    rows = [("1", 'two\nlines, "quoted"', "3"), ("4", "", "5"), ("6", "\n", "7")]
    text = pandas.DataFrame(rows, columns=NAMES).to_csv(index=False)
    assert rows_in(folder, text.encode()) == rows


@pytest.mark.parametrize("bad", ['1,"open,2', '1,"a"b,2', '1,5" pipe,2', '1,"a\n",b,2'])
def test_a_file_that_is_no_export_is_read_line_by_line(bad, folder):
    """Else one open quote would swallow the rows of others."""
    content = f'id,comment,x\n{bad}\n3,"two\nlines",4\n5,fine,6\n'
    found = rows_in(folder, content.encode())
    assert len(found) == content.count("\n") - 1
    assert found[-3:] == [("3", "two", ""), ('lines"', "4", ""), ("5", "fine", "6")]


@pytest.mark.parametrize(
    "content", ['id,comment,x\n1,"a\nb",2\n\n3,c,4\n', 'id,comment,x\n1,"a\nb",2\n3,c,4\n\n']
)
def test_an_empty_line_does_not_change_how_quotes_are_read(content, folder):
    assert ("1", "a\nb", "2") in rows_in(folder, content.encode())
    assert len(rows_in(folder, content.encode())) == 3


def test_a_header_may_have_several_lines(folder):
    path = folder / "table.csv"
    path.write_text('id,"income,\nyearly"\n1,2\n')
    assert read_columns(path, None) == {"id": ["1"], "income,\nyearly": ["2"]}
