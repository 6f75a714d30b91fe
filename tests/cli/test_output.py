"""Where output cannot be written commands fail in one line, and in a terminal no line is wider than
it is.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpmcmc.cli import main
from dpmcmc.cli.options import wrapped

FULL, READ_ONLY = Path("/dev/full"), Path("/proc")  # for the superuser, too
WITHOUT_JAX = [
    "account",
    "gaussian",
    "--noise-multiplier",
    "30",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
]
TABLE = "age,ill\n" + "".join(f"{20 + i},{i % 2}\n" for i in range(40))
RUN = [
    "logistic",
    "table.csv",
    "--label",
    "ill",
    "--bounds",
    "age=20:60",
    "--sampler",
    "barker",
    "--chains",
    "1",
]
RUN += ["--epsilon", "4", "--delta", "1e-3", "--steps", "2"]
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
needs_proc = pytest.mark.skipif(
    not READ_ONLY.exists(), reason="no folder here that nobody can write to"
)


def command(*arguments, **options):
    whole = [sys.executable, "-m", "dpmcmc", *arguments]
    return subprocess.run(
        whole, **{"stderr": subprocess.PIPE, "text": True, "check": False, **options}
    )


@needs_full
@pytest.mark.parametrize(
    "arguments", [["--help"], WITHOUT_JAX, [*WITHOUT_JAX, "--json"]], ids=["help", "table", "json"]
)
def test_a_full_device_is_one_line(arguments):
    with FULL.open("w") as full:
        result = command(*arguments, stdout=full)
    assert (
        result.returncode == 1 and result.stderr == "failed: [Errno 28] No space left on device\n"
    )


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    """As `| head -1`, which closes the pipe. It was told that the run was refused."""
    (tmp_path / "table.csv").write_text(TABLE)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        result = command("run", *RUN, stdout=closed, cwd=tmp_path)
    assert (
        result.returncode == 1 and result.stderr == "" and not (tmp_path / "posterior.nc").exists()
    )


@needs_proc
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    result = command("demo", "--out", str(READ_ONLY / "demo"), stdout=subprocess.DEVNULL)
    assert (
        result.returncode == 1
        and result.stderr.startswith("failed: [Errno 2]")
        and result.stderr.count("\n") == 1
    )
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(TABLE)
    for option in (["--out", str(READ_ONLY / "x.nc")], ["--ledger", str(READ_ONLY / "spent.json")]):
        for more in ([], ["--dry-run"]):
            found = CliRunner().invoke(main, ["run", *RUN, *option, *more])
            assert (
                found.exit_code == 2
                and f"refused: {option[0]} {option[1]} cannot be written (" in found.output
            )
            assert "name a file in another folder" in found.output


def test_a_home_that_cannot_be_written_is_named(tmp_path):
    """ArviZ makes a folder there when it is imported.

    It was said that `unravel` must return a dict.
    """
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "file").write_text("no folder")
    places = {name: str(tmp_path / "file" / name) for name in ("HOME", "XDG_CACHE_HOME")}
    result = command(
        "run", *RUN, stdout=subprocess.DEVNULL, cwd=tmp_path, env={**os.environ, **places}
    )
    last = result.stderr.splitlines()[-1]
    assert result.returncode == 2 and last.startswith(
        "refused: ArviZ, which keeps the draws, cannot be imported"
    )
    assert (
        "Set HOME or XDG_CACHE_HOME to a folder that can be written" in last
        and "unravel" not in result.stderr
    )


def test_no_line_is_wider_than_the_terminal(tmp_path):
    """One of 164 characters was, in one of 60 columns."""
    (tmp_path / "table.csv").write_text(TABLE)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    found = []

    def read():
        while True:
            try:
                found.append(os.read(ours, 4096))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    }
    result = command("run", *RUN, "--dry-run", stdout=theirs, cwd=tmp_path, env=environment)
    os.close(theirs)
    reader.join()
    os.close(ours)
    lines = b"".join(found).decode().splitlines()
    assert result.returncode == 0 and max(map(len, lines)) <= 60
    assert "Nothing is spent: this was a dry run." in lines
    (first,) = (place for place, line in enumerate(lines) if line.startswith("Unit:     "))
    assert lines[first + 1].startswith(" " * 10) and lines[first + 1][10] != " "


def test_what_is_wrapped_is_the_same_text():
    text = (
        "Budget:   epsilon = 1, delta = 1e-06: 300 steps for each of 2 chains\n\n"
        "  a  table  of  cells  that  is  wide"
    )
    assert wrapped(text, 200) == text
    narrow = wrapped(text, 30)
    assert narrow.splitlines()[:2] == [
        "Budget:   epsilon = 1, delta =",
        "          1e-06: 300 steps for",
    ]
    assert (
        narrow.endswith("\n\n  a  table  of  cells  that  is  wide")
        and narrow.split() == text.split()
    )
