"""Files of Puller in a reader of another author: ``sops-age`` for Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hiera import parsing
from hiera.sops.format import Rule
from hiera.sops.identities import new_identity
from hiera.sops.writing import Readers, encrypt
from tests.hiera.sops.test_sops import VALUES
from tests.support.ssh_keys import make_ssh_key

pytestmark = pytest.mark.node

SOPS_AGE = "sops-age@4.0.2"
PROGRAM = """\
import { decryptSops } from "sops-age";
import { readFileSync } from "node:fs";
const [path, key] = process.argv.slice(2);
const text = readFileSync(path, "utf8");
const options = { secretKey: readFileSync(key, "utf8").trim(), fileType: path.split(".").pop() };
console.log(JSON.stringify(await decryptSops(text, options)));
"""


@pytest.fixture(scope="module")
def sops_age(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library from the npm registry, and a program that prints a decrypted file."""
    directory = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", SOPS_AGE]
    subprocess.run(command, cwd=directory, check=True, timeout=200)
    (directory / "show.mjs").write_text(PROGRAM)
    return directory


PLAIN = {
    "values.yaml": VALUES,
    "values.json": json.dumps({"db": {"port": 5, "list": [1.5, "\u00e9", True, ""]}, "a_unencrypted": 1}),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("rule", [None, Rule("encrypted_regex", "^(db|list)$")])
def test_sops_age_reads_files_of_puller(sops_age: Path, tmp_path: Path, name: str, rule: Rule | None) -> None:
    identity, recipient = new_identity()
    (tmp_path / "key.txt").write_text(f"{identity}\n")
    host = make_ssh_key(tmp_path / "host")
    readers = Readers({host: "web1.example.com", recipient: "alice"}, rule)
    (tmp_path / name).write_text(encrypt(PLAIN[name], name, readers))
    command = ["node", "show.mjs", str(tmp_path / name), str(tmp_path / "key.txt")]
    done = subprocess.run(command, cwd=sops_age, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == parsing.load_yaml(PLAIN[name], "")
