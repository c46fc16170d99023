"""Facts that come with a bundle: their files, the time when they run, their output, and their failures."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hiera.errors import HieraError
from puller.facts.bundled import over
from puller.facts.fact_tree import Facts, gather
from puller.facts.fact_values import SIZE_LIMIT

Put = Callable[..., Path]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    root = tmp_path / "web"
    (root / "facts.d").mkdir(parents=True, mode=0o755)
    return root


@pytest.fixture
def put(bundle: Path) -> Put:
    """Return ``put("openssh.sh", "echo 9.2")``, which writes an executable fact, or with ``mode`` another file."""

    def write(name: str, text: str, mode: int = 0o755) -> Path:
        path = bundle / "facts.d" / name
        path.write_text(f"#!/bin/sh\n{text}\n" if mode & 0o100 else text)
        path.chmod(mode)
        return path

    return write


def host(tmp_path: Path, *, limit: float = 20, **given: Any) -> Facts:
    return gather(custom_directories=[str(tmp_path / "none")], overrides=given, limit=limit)


def facts_over(known: Mapping[str, Any], bundle: Path, *libraries: Path) -> Mapping[str, Any]:
    """Return the facts of a bundle, which must have no problems."""
    facts, problems = over(known, bundle, [place / "facts.d" for place in (bundle, *libraries)])
    assert problems == []
    return facts


def problems_in(tmp_path: Path, bundle: Path, *libraries: Path) -> list[str]:
    problems = over(host(tmp_path), bundle, [place / "facts.d" for place in (bundle, *libraries)])[1]
    return list(map(str, problems))


def failure(facts: Mapping[str, Any], name: str) -> str:
    with pytest.raises(HieraError) as caught:
        facts[name]
    return str(caught.value)


# --- output of a file -----------------------------------------------------------------------------------------


def test_each_file_is_the_fact_of_its_name(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("json.json", '[1, {"a": null}]', 0o644)
    put("yaml.yaml", "version: 9.2\n", 0o644)
    put("yml.yml", "just text\n", 0o644)
    put("text.txt", "version=5.10\nsite.rack=b4\n", 0o644)
    put("program.sh", "echo version=5.10")
    put("without_ending", "echo '{\"ports\": [22]}'")

    facts = facts_over(host(tmp_path), bundle)
    assert facts["json"] == [1, {"a": None}]
    assert facts["yaml"] == {"version": 9.2}
    assert facts["yml"] == "just text"
    assert facts["text"] == {"version": "5.10", "site": {"rack": "b4"}}
    assert facts["program"] == {"version": "5.10"}
    assert facts["without_ending"] == {"ports": [22]}
    assert facts["kernel"] == "Linux"
    assert {"json", "program", "kernel"} <= set(facts)


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("5.10", "5.10"),
        ("  no  ", "no"),
        ("OpenSSH_9.2p1 Debian-2+deb12u3, OpenSSL 3.0.14", "OpenSSH_9.2p1 Debian-2+deb12u3, OpenSSL 3.0.14"),
        ("with blanks=1", "with blanks=1"),
        ("-1", -1),
        ("42", 42),
        ("0.75", 0.75),
        ("007", "007"),
        ("1e3", "1e3"),
        ("nan", "nan"),
        ("1_000", "1_000"),
        ("12345678901234567890", "12345678901234567890"),
        ("@", "@"),
        ("a=b", {"a": "b"}),
        ("a: 1", {"a": 1}),
        ("a:", {"a": None}),
        ("- 1", [1]),
        ("- 1\n- 2", [1, 2]),
        ("[1, 2]", [1, 2]),
        ("{}", {}),
        ("# version\nversion=5.10", {"version": "5.10"}),
    ],
)
def test_executable_prints_a_single_value(
    tmp_path: Path, bundle: Path, put: Put, printed: str, value: Any
) -> None:
    put("said.sh", f"cat <<'END'\n{printed}\nEND")
    assert facts_over(host(tmp_path), bundle)["said"] == value


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("echo no sshd >&2; exit 3", "facts.d/said.sh: exit code 3: no sshd"),
        ("kill -9 $$", "facts.d/said.sh: ended by signal SIGKILL"),
        ("exit 0", "output of facts.d/said.sh: is empty, expected a value ({} for an empty mapping)"),
        (
            "echo one; echo two",
            "output of facts.d/said.sh: is 'one\\ntwo', expected a mapping, a list or one line of text",
        ),
        ("echo '{\"a\": '", "output of facts.d/said.sh:2:1: Expecting value"),
        ("echo 'a: [1'; echo 'b: }'", "output of facts.d/said.sh:2"),
        ("printf 'caf\\351'", "output of facts.d/said.sh: is not UTF-8 text"),
        (
            f"head -c {SIZE_LIMIT + 10} /dev/zero | tr '\\0' x",
            f"output of facts.d/said.sh: has more than {SIZE_LIMIT} bytes",
        ),
    ],
)
def test_failed_executable_fails_the_uses_of_its_fact(
    tmp_path: Path, bundle: Path, put: Put, body: str, sentence: str
) -> None:
    put("said.sh", body)
    put("other.txt", "a=b\n", 0o644)
    facts = facts_over(host(tmp_path), bundle)

    assert failure(facts, "said").startswith(sentence)
    # A failed fact is not a missing fact, for all kinds of access.
    for ask in (lambda: "said" in facts, lambda: facts.get("said"), lambda: dict(facts)):
        with pytest.raises(HieraError):
            ask()
    assert facts["other"] == {"a": "b"}
    assert "said" in list(facts)


def test_hanging_executable_is_killed_with_its_children(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("slow.sh", f"sleep 61.25 & echo $! > {tmp_path}/child; echo ready; wait")
    facts = facts_over(host(tmp_path, limit=1.5), bundle)

    assert failure(facts, "slow").startswith("facts.d/slow.sh: killed after ")
    assert not is_running(int((tmp_path / "child").read_text()))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("said.json", '{"a": }', "facts.d/said.json:1:7: Expecting value"),
        ("said.yaml", "a: [", "facts.d/said.yaml:2:1: did not find"),
        ("said.txt", "no assignment", "facts.d/said.txt:1: is 'no assignment', expected NAME=VALUE"),
    ],
)
def test_invalid_document_fails_the_uses_of_its_fact(
    tmp_path: Path, bundle: Path, put: Put, name: str, text: str, sentence: str
) -> None:
    put(name, text, 0o644)
    assert failure(facts_over(host(tmp_path), bundle), "said").startswith(sentence)


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("said.py", "").write_text("#!/no/such/interpreter\n")
    put("bare", "").write_text("no program")
    facts = facts_over(host(tmp_path), bundle)

    assert failure(facts, "said") == "facts.d/said.py: cannot be started: no such file or directory"
    assert failure(facts, "bare") == "facts.d/bare: cannot be started: exec format error"


def test_a_file_that_has_gone_since_is_a_failure(tmp_path: Path, bundle: Path, put: Put) -> None:
    output = put("said.json", "{}", 0o644)
    facts = facts_over(host(tmp_path), bundle)
    output.unlink()
    assert failure(facts, "said") == "facts.d/said.json: cannot be read: no such file or directory"


# --- time of reading ------------------------------------------------------------------------------------------


def test_a_file_is_read_when_its_fact_is_asked_for_and_once(tmp_path: Path, bundle: Path, put: Put) -> None:
    requested = tmp_path / "asked"
    put("one.sh", f"echo one >> {requested}; echo 1")
    put("two.sh", f"echo two >> {requested}; exit 1")
    known = host(tmp_path)
    facts = facts_over(known, bundle)

    assert facts["kernel"] == "Linux"
    assert "nothing" not in facts
    assert len(list(facts)) == len(facts)
    assert not requested.exists()

    again = facts_over(known, bundle)  # a run reads a bundle twice
    assert [facts["one"], facts["one"], again["one"]] == [1, 1, 1]
    assert [failure(facts, "two"), failure(again, "two")] == ["facts.d/two.sh: exit code 1"] * 2
    assert requested.read_text() == "one\ntwo\n"


def test_failure_is_the_same_for_each_reader(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("said.sh", "exit 1")
    facts = facts_over(host(tmp_path), bundle)
    with pytest.raises(HieraError) as caught:
        facts["said"]
    caught.value.at("web/manifest.yaml:3")
    assert failure(facts, "said") == "facts.d/said.sh: exit code 1"


def test_two_bundles_see_each_its_own(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("role.txt", "name=web\n", 0o644)
    other = tmp_path / "db"
    (other / "facts.d").mkdir(parents=True)
    (other / "facts.d" / "role.yaml").write_text("name: db\n")
    known = host(tmp_path)

    assert facts_over(known, bundle)["role"] == {"name": "web"}
    assert facts_over(known, other)["role"] == {"name": "db"}
    assert "role" not in known


def test_executable_starts_in_root_with_a_fixed_environment(
    tmp_path: Path, bundle: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_SHELL", "hush")
    put("said.sh", 'echo "at=$PWD"; echo "own=$0"; echo "secret=$SECRET_OF_SHELL"; echo "lang=$LANG"')
    assert facts_over(host(tmp_path), bundle)["said"] == {
        "at": "/",
        "own": os.path.realpath(bundle / "facts.d" / "said.sh"),
        "secret": "",
        "lang": "C.UTF-8",
    }


# --- precedence -----------------------------------------------------------------------------------------------


def test_host_fact_overrides_the_bundled_file(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("given.sh", f"touch {tmp_path}/ran; exit 1")
    put("custom.sh", f"touch {tmp_path}/ran; exit 1")
    site = tmp_path / "site"
    site.mkdir(mode=0o755)
    (site / "custom.yaml").write_text("custom: null\n")
    known = gather(custom_directories=[str(site)], overrides={"given": {"version": "1"}})

    facts = facts_over(known, bundle)
    assert facts["given"] == {"version": "1"}
    assert facts["custom"] is None
    assert not (tmp_path / "ran").exists()


def test_standalone_facts_read_documents_and_require_values(bundle: Path, put: Put, tmp_path: Path) -> None:
    put("document.yaml", "version: 1\n", 0o644)
    put("program.sh", f"touch {tmp_path}/ran; echo 1")
    facts = facts_over({"os": {"family": "Debian"}}, bundle)

    assert facts["document"] == {"version": 1}
    assert failure(facts, "program") == (
        "facts.d/program.sh: is not run without the facts of this machine,"
        " so pass its value with --fact or --facts"
    )
    assert facts_over({"program": "2"}, bundle)["program"] == "2"
    assert not (tmp_path / "ran").exists()


# --- problems with files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "sentence"),
    [
        (
            "openssh-server.sh",
            0o755,
            "'openssh-server' is not a valid fact name, expected letters, digits and underscores before the extension",
        ),
        ("1st.json", 0o644, "'1st' is not a valid fact name"),
        ("a.b.sh", 0o755, "'a.b' is not a valid fact name"),
        ("überall.sh", 0o755, "'überall' is not a valid fact name"),
        ("os.yaml", 0o644, "os is a fact of every machine that bundles cannot replace"),
        ("osfamily.yaml", 0o644, "osfamily is a fact of every machine"),
        ("ipaddress_eth0.sh", 0o755, "ipaddress_eth0 is a fact of every machine"),
        ("trusted.yaml", 0o644, "trusted is a fact of every machine"),
        ("README.md", 0o644, "must be executable, or named *.json, *.yaml, *.yml or *.txt"),
        ("openssh.sh", 0o644, "must be executable, or named *.json, *.yaml, *.yml or *.txt"),
    ],
)
def test_a_file_that_can_be_no_fact_is_named(
    tmp_path: Path, bundle: Path, put: Put, name: str, mode: int, sentence: str
) -> None:
    put(name, "echo 1", mode)
    (problem,) = problems_in(tmp_path, bundle)
    assert problem.startswith(f"facts.d/{name}: {sentence}")


def test_two_files_of_a_fact_are_both_named(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("openssh.sh", "echo 1")
    put("openssh.json", "{}", 0o644)
    assert problems_in(tmp_path, bundle) == [
        "facts.d/openssh.sh: defines the fact openssh, as facts.d/openssh.json does, so rename one of them"
    ]


def test_fact_name_belongs_to_a_single_directory(tmp_path: Path, bundle: Path, put: Put) -> None:
    library = bundle / "libraries" / "common"
    (library / "facts.d").mkdir(parents=True)
    (library / "facts.d" / "nginx.yaml").write_text("version: 1\n")
    put("openssh.txt", "a=b\n", 0o644)
    facts = facts_over(host(tmp_path), bundle, library)
    assert [facts["openssh"], facts["nginx"]] == [{"a": "b"}, {"version": 1}]

    put("nginx.sh", "echo 1")
    assert problems_in(tmp_path, bundle, library) == [
        "libraries/common/facts.d/nginx.yaml: defines the fact nginx, as facts.d/nginx.sh does, so rename one of them"
    ]


def test_links_are_refused_as_they_are_when_a_bundle_is_packed(tmp_path: Path, bundle: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (bundle / "facts.d" / "said.json").symlink_to(outside)
    link = "is a symbolic link, which a bundle cannot contain, expected the target itself"
    assert problems_in(tmp_path, bundle) == [f"facts.d/said.json: {link}"]

    other = tmp_path / "other"
    other.mkdir()
    (other / "facts.d").symlink_to(bundle / "facts.d")
    assert problems_in(tmp_path, other) == [f"facts.d: {link}"]


def test_special_files_are_refused_and_leftovers_skipped(tmp_path: Path, bundle: Path, put: Put) -> None:
    put(".gitkeep", "", 0o644)
    put("openssh.sh~", "echo 1")
    put("openssh.sh.bak", "echo 1")
    (bundle / "facts.d" / "__pycache__").mkdir()
    assert problems_in(tmp_path, bundle) == []
    os.mkfifo(bundle / "facts.d" / "pipe.json")
    assert problems_in(tmp_path, bundle) == ["facts.d/pipe.json: is not a regular file"]


def test_facts_d_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.d").write_text("")
    assert problems_in(tmp_path, tmp_path) == ["facts.d: cannot be read: not a directory"]


def test_the_directory_of_the_hosts_own_facts_is_no_bundles(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("10-site.yaml", "role: web\n", 0o644)
    known = gather(custom_directories=[str(bundle / "facts.d")])
    facts, problems = over(known, bundle, [bundle / "facts.d"])
    assert problems == []
    assert facts["role"] == "web"


@pytest.mark.root
def test_root_runs_no_file_writable_by_others(tmp_path: Path, bundle: Path, put: Put) -> None:
    output = put("said.sh", f"touch {tmp_path}/ran; echo 1")
    os.chown(output, 12345, -1)
    open_to_all = put("document.json", "{}", 0o666)
    facts = facts_over(host(tmp_path), bundle)

    assert failure(facts, "said") == (
        f"facts.d/said.sh: is not read: {os.path.realpath(output)} belongs to user 12345,"
        " expected root or the running user 0"
    )
    assert "mode 0666" in failure(facts, "document"), open_to_all
    assert not (tmp_path / "ran").exists()


@pytest.mark.root
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_file_that_this_user_may_not_read_is_a_failure(tmp_path: Path, bundle: Path, put: Put) -> None:
    put("said.json", "{}", 0o600)
    facts = facts_over(host(tmp_path), bundle)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setresuid(65534, 65534, 65534)
            output = failure(facts, "said")
            status = int(output != "facts.d/said.json: cannot be read: permission denied")
        finally:
            os._exit(status)  # do not return to pytest in the child
    assert os.waitpid(child, 0)[1] == 0
