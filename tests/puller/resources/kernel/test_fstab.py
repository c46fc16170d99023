"""fstab: how its lines are read, and edits that keep all other text."""

from puller.resources.kernel.fstab import Edit, Fields, decoded, edited, encoded, parse
from tests.support.rows import each_row

FILE = """\
# /etc/fstab: static file system information.
UUID=11-22\t/\text4\terrors=remount-ro\t0\t1   # the disk
\t proc  /proc  proc  defaults   # no numbers

/swapfile none swap sw 0 0
tmpfs /mnt/two\\040words tmpfs size=1m 0
/dev/sdb1 /data/ xfs
broken line
"""


def test_any_line_format_is_read() -> None:
    entries = {point: [(item.number, item.fields) for item in found] for point, found in parse(FILE).items()}
    assert entries == {
        "/": [(2, Fields("UUID=11-22", "/", "ext4", ("errors=remount-ro",), 0, 1))],
        "/proc": [(3, Fields("proc", "/proc", "proc"))],
        "/swapfile": [(5, Fields("/swapfile", "none", "swap", ("sw",)))],
        "/mnt/two words": [(6, Fields("tmpfs", "/mnt/two words", "tmpfs", ("size=1m",)))],
        "/data": [(7, Fields("/dev/sdb1", "/data", "xfs"))],
    }


@each_row(
    ("edit", "before", "after"),
    [
        (
            Edit("/", Fields("UUID=11-22", "/", "ext4", ("errors=remount-ro", "noatime"), 0, 1)),
            "UUID=11-22\t/\text4\terrors=remount-ro\t0\t1   # the disk",
            "UUID=11-22\t/\text4\terrors=remount-ro,noatime\t0\t1   # the disk",
        ),
        (
            Edit("/proc", Fields("proc", "/proc", "proc", ("hidepid=2",))),
            "\t proc  /proc  proc  defaults   # no numbers",
            "\t proc  /proc  proc  hidepid=2   # no numbers",
        ),
        (
            Edit("/data", Fields("/dev/sdb1", "/data", "xfs", ("noatime",), 0, 2)),
            "/dev/sdb1 /data/ xfs\n",
            "/dev/sdb1 /data xfs noatime 0 2\n",
        ),
        (
            Edit("/mnt/two words", Fields("tmpfs", "/mnt/two words", "tmpfs", ("size=2m",))),
            "tmpfs /mnt/two\\040words tmpfs size=1m 0\n",
            "tmpfs /mnt/two\\040words tmpfs size=2m 0\n",
        ),
        (Edit("/data"), "/dev/sdb1 /data/ xfs\n", ""),
        (Edit("/nothing"), "", ""),
        (Edit("/data", line="as it was\n"), "/dev/sdb1 /data/ xfs\n", "as it was\n"),
        (
            Edit("/new", Fields("tmpfs", "/new", "tmpfs")),
            "broken line\n",
            "broken line\ntmpfs /new tmpfs defaults 0 0\n",
        ),
    ],
)
def test_edit_changes_a_single_line(edit: Edit, before: str, after: str) -> None:
    assert edited(FILE, [edit]) == FILE.replace(before, after) if before else FILE


def test_options_in_another_order_stay_as_they_were_written() -> None:
    desired = Fields("proc", "/proc", "proc", ("nodev", "noexec"), 0, 2)
    assert (
        edited("proc /proc proc noexec,nodev 0 0", [Edit("/proc", desired)])
        == "proc /proc proc noexec,nodev 0 2"
    )


def test_added_and_removed_entry_restores_the_file() -> None:
    added = edited(FILE, [Edit("/new", Fields("tmpfs", "/new", "tmpfs"))])
    assert edited(added, [Edit("/new", line="")]) == FILE
    assert edited("# no end", [Edit("/new", Fields("a", "/new", "b"))]) == "# no end\na /new b defaults 0 0\n"


@each_row("text", ["a b", "tab\t", "back\\slash", "line\nend", "plain", "#comment", "\\040", "ö"])
def test_any_text_round_trips_as_a_field(text: str) -> None:
    field = encoded(text)
    assert decoded(field) == text
    assert not {*" \t\n"}.intersection(field)
    assert not field.startswith("#")
    [entry] = parse(f"{field} /point type\n")["/point"]
    assert entry.fields.device == text
