"""Lines of ``authorized_keys``: which are valid keys, and how a file is edited."""

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.resources.accounts.authorized_keys import DesiredKeys, Key, KeysState, find_key, merged, parse_key
from tests.support.rows import each_row

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBDlcD4g1y4EYOglWEsj6QfNHs7zyGHnZULGb"
    "/odTEJdTwCFYyvlOgIFUR1yEMUpS6miIgoQaiaaN65zsnciTEdQ="
)


def blob(*pieces: bytes) -> str:
    return base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in pieces)).decode()


RSA = "ssh-rsa " + blob(b"ssh-rsa", bytes([1, 0, 1]), bytes(257))
SK = f"sk-ssh-ed25519@openssh.com {blob(b'sk-ssh-ed25519@openssh.com', bytes(32), b'ssh:')}"
SK_ECDSA = (
    "sk-ecdsa-sha2-nistp256@openssh.com "
    + blob(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", bytes(65), b"ssh:")
)  # fmt: skip


@pytest.mark.parametrize("line", [ED25519, ECDSA, RSA, SK, SK_ECDSA, f"{ED25519} Anna's key # 1"])
def test_every_type_is_known_with_a_comment_or_without(line: str) -> None:
    kind, body, *comment = line.split(" ", 2)
    assert parse_key(line) == Key(kind, body, "", *comment)
    assert str(parse_key(line)) == line


@pytest.mark.parametrize(
    "options",
    [
        "restrict",
        "no-pty,no-X11-forwarding",
        'from="192.0.2.0/24,*.example.com",command="echo \\"a b\\", c",restrict',
        'environment="A=ssh-ed25519 AAAA"',
        'cert-authority,principals="a,b"',
    ],
)
def test_options_may_have_quotes_blanks_and_the_names_of_types(options: str) -> None:
    key = parse_key(f"{options} {SK} a@b c")
    assert (key.options, key.type, key.comment) == (options, "sk-ssh-ed25519@openssh.com", "a@b c")


@each_row(
    ("line", "why"),
    [
        ("hello", "is not a public key"),
        ("", "is not a public key"),
        ("# a comment", "is not a public key"),
        ("ssh-ed25519", "is not a public key"),
        ("ssh-ed448 AAAA", "is not a public key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "is a private key, expected a public one"),
        (f"{ED25519}\n{OTHER}", "has a line end"),
        (f"{ED25519} a\x00b", "has a line end"),
        (f"{ED25519[:-4]}!!!!", "has a key that is not valid Base64"),
        (ED25519[:-4], "has a key that is not a whole ssh-ed25519"),
        (f"ssh-rsa {ED25519.split()[1]}", "names the type ssh-rsa, but the key has another type"),
        (f"ssh-rsa {blob(b'ssh-rsa', b'3', bytes(64))}", "has an RSA key of less than 1024 bits"),
        (f"ssh-ed25519 {blob(b'ssh-ed25519', bytes(32), b'more')}", "not a whole ssh-ed25519"),
        (f"command=sh {ED25519}", "has options that are not understood"),
        (f'command="sh {ED25519}', "is not a public key"),
        (f",restrict {ED25519}", "has options that are not understood"),
    ],
)
def test_incomplete_public_key_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_key(line)


@given(st.text())
def test_no_line_is_a_key_that_is_written_otherwise(line: str) -> None:
    if (key := find_key(line)) is not None:
        assert find_key(str(key)) == key


@pytest.mark.everything
def test_keys_are_those_that_ssh_itself_makes(tmp_path: Path) -> None:
    for kind in ("ed25519", "rsa", "ecdsa"):
        path = tmp_path / kind
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", kind, "-f", str(path)], check=True)
        assert parse_key(path.with_suffix(".pub").read_text().strip())


# Files


def desired(*lines: str, exclusive: bool = False) -> DesiredKeys:
    return DesiredKeys(tuple(map(parse_key, lines)), exclusive, "a", 1, 1, "/home/a")


@each_row(
    ("content", "keys", "expected", "state"),
    [
        (b"", desired(ED25519), f"{ED25519}\n", KeysState(missing=1)),
        (f"{ED25519}\n".encode(), desired(ED25519), f"{ED25519}\n", KeysState()),
        (f"  {ED25519}  \n".encode(), desired(ED25519), f"  {ED25519}  \n", KeysState()),
        (f"{ED25519}".encode(), desired(ED25519), f"{ED25519}\n", KeysState()),
        (f"{ED25519}".encode(), desired(OTHER), f"{ED25519}\n{OTHER}\n", KeysState(missing=1)),
        (f"{ED25519} x\n".encode(), desired(f"{ED25519} y"), f"{ED25519} y\n", KeysState(changed=1)),
        (
            f"# first\n\nno-pty {ED25519}\nhello\n".encode(),
            desired(OTHER, ED25519),
            f"# first\n\n{ED25519}\nhello\n{OTHER}\n",
            KeysState(missing=1, changed=1),
        ),
        (
            f"# first\n{OTHER}\nhello\n\n".encode(),
            desired(ED25519, exclusive=True),
            f"# first\n\n{ED25519}\n",
            KeysState(missing=1, surplus=2),
        ),
        (f"{OTHER}\n".encode(), desired(exclusive=True), "", KeysState(surplus=1)),
        (
            f"restrict {ED25519}\n{OTHER}\n{ED25519}\n".encode(),
            desired(f"restrict {ED25519}"),
            f"restrict {ED25519}\n{OTHER}\n",
            KeysState(surplus=1),
        ),
        (b"# \xff\n", desired(ED25519), f"# \udcff\n{ED25519}\n", KeysState(missing=1)),
        (f"{ED25519}\r\n".encode(), desired(ED25519), f"{ED25519}\r\n", KeysState()),
    ],
)
def test_comments_and_other_keys_stay_in_order(
    content: bytes, keys: DesiredKeys, expected: str, state: KeysState
) -> None:
    new, result = merged(content, keys)
    assert (new.decode("utf-8", "surrogateescape"), result) == (expected, state)
    assert merged(new, keys) == (new, KeysState()), "what was written is in order"


@given(st.lists(st.sampled_from([ED25519, OTHER, f"restrict {OTHER}", "# c", "", "hello", "\tssh-rsa AA"])))
def test_any_key_file_converges_in_a_step(lines: list[str]) -> None:
    for exclusive in (False, True):
        keys = desired(ED25519, RSA, exclusive=exclusive)
        new, _ = merged("\n".join(lines).encode(), keys)
        assert merged(new, keys)[1].is_right
        results = [key for line in new.decode().split("\n") if (key := find_key(line)) and line[0] != "#"]
        if exclusive:
            assert sorted(map(str, results)) == sorted([ED25519, RSA])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (KeysState(missing=1), "added 1 key"),
        (KeysState(missing=1, surplus=2), "added 1 key, removed 2"),
        (KeysState(changed=2), "changed 2 keys"),
        (KeysState(attributes=(".ssh has mode 0755",)), "made authorized_keys the user's alone"),
    ],
)
def test_a_change_is_said_in_numbers(state: KeysState, words: str) -> None:
    assert state.done() == words
