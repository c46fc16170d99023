"""Site data: the operator's values for all hosts override bundles, and problems with them stop no run."""

from __future__ import annotations

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher, WebServer

MANIFEST = """\
data: {greeting: from the bundle, list: [bundle], web: {port: 80}}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd":
          content: >-
            {{ data.greeting }} {{ data.list | join(',') }} {{ data.web.port }} {{ lookup('data.web.tls', 'no') }}
"""


@pytest.fixture
def site(host: Host, publisher: Publisher, web: WebServer) -> str:
    """Return the URL of site data that the host reads."""
    publisher.publish("1.0.0", MANIFEST, files={})
    host.configure(data=f"{web.url}/site.yaml")
    return f"{web.url}/site.yaml"


def write(web: WebServer, text: str, age: float = 60) -> None:
    """Write the site data, with a modification time ``age`` seconds ago."""
    path = web.root / "site.yaml"
    path.write_text(text)
    os.utime(path, (time.time() - age, time.time() - age))


def motd(host: Host) -> str:
    return (host.machine / "motd").read_text()


def copies(host: Host) -> list[Path]:
    return sorted((host.state / "data").glob("*"))


@pytest.mark.usefixtures("site")
def test_site_data_is_over_the_bundle_and_below_the_host(host: Host, web: WebServer, tmp_path: Path) -> None:
    write(web, "data: {greeting: from the site, list: [site], web: {tls: true}}")
    assert host.run().status == 0
    assert motd(host) == "from the site site 80 true"
    (tmp_path / "host" / "data.yaml").write_text("data: {greeting: '{{ data.web.tls }} from the host'}")
    assert host.run().status == 0
    assert motd(host) == "true from the host site 80 true"


@pytest.mark.usefixtures("site")
def test_unchanged_site_data_are_not_sent_again(host: Host, web: WebServer) -> None:
    write(web, "data: {greeting: one}")
    host.run()
    before = copies(host)[0].stat().st_mtime_ns
    write(web, "data: {greeting: unseen}")  # an old time, so that the server answers 304
    os.utime(web.root / "site.yaml", (1, 1))
    assert host.run().status == 0
    assert motd(host).startswith("one ")
    assert copies(host)[0].stat().st_mtime_ns == before
    write(web, "data: {greeting: two}", age=-60)
    assert host.run().status == 0
    assert motd(host).startswith("two ")


BAD = {
    "not YAML": ("data: [", 13, "/site.yaml:2:1: "),
    "not a document": ("port: 80", 13, "unknown key 'port'"),
    "not for this host": ("data: {greeting: '{{ facts.nope }}'}", 13, "unknown key 'nope' in facts"),
}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("bad", BAD)
def test_invalid_document_keeps_the_last_good_copy(host: Host, web: WebServer, bad: str) -> None:
    text, status, message = BAD[bad]
    write(web, "data: {greeting: good}", age=120)
    host.run()
    write(web, text, age=-60)
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == status
        assert message in outcome.output
        assert ", using its last good copy" in host.report()["problems"][0]["message"]
        assert motd(host).startswith("good ")
    write(web, "data: {greeting: mended}", age=-120)
    assert host.run().status == 0
    assert motd(host).startswith("mended ")


@pytest.mark.usefixtures("site")
def test_a_server_that_is_away_does_not_take_the_data_along(host: Host, web: WebServer) -> None:
    write(web, "data: {greeting: good}")
    host.run()
    (web.root / "site.yaml").unlink()
    outcome = host.run()
    assert outcome.status == 14
    assert "/site.yaml: status 404 Not Found, using its last good copy" in outcome.output
    assert motd(host).startswith("good ")


@pytest.mark.usefixtures("site")
def test_without_any_good_copy_the_run_goes_on_and_says_so(host: Host) -> None:
    outcome = host.run()
    assert outcome.status == 14
    assert "continuing without it" in outcome.output
    assert motd(host).startswith("from the bundle ")


@pytest.mark.usefixtures("site")
def test_a_damaged_copy_is_replaced(host: Host, web: WebServer) -> None:
    write(web, "data: {greeting: good}")
    host.run()
    copies(host)[0].write_bytes(b'{"location"')
    assert host.run().status == 0
    assert motd(host).startswith("good ")


@pytest.mark.usefixtures("site")
def test_dry_run_uses_new_data_and_keeps_no_copy(host: Host, web: WebServer) -> None:
    write(web, "data: {greeting: good}", age=120)
    host.run()
    before = [path.read_bytes() for path in copies(host)]
    write(web, "data: {greeting: newer}", age=-60)
    assert "Would have" in host.run("--noop").output
    assert [path.read_bytes() for path in copies(host)] == before


def test_files_are_site_data_too_and_later_ones_win(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("data: {greeting: a, list: [a], web: {port: 1}}")
    second.write_text("data: {greeting: 'b after {{ data.list[0] }}'}")
    host.configure(data=[str(first), str(second)])
    assert host.run().status == 0
    assert motd(host) == "b after a a 1 no"
    assert len(copies(host)) == 2
    second.unlink()
    assert host.run().status == 78
    assert motd(host) == "b after a a 1 no"
    host.configure(data=[str(first)])
    assert host.run().status == 0
    assert motd(host) == "a a 1 no"
    assert len(copies(host)) == 1


@pytest.mark.attack("credentials.other-host")
def test_the_sites_credentials_go_to_its_own_origin_only(host: Host, publisher: Publisher) -> None:
    from puller.config.configuration import load_configuration
    from puller.config.transport import settings_for

    publisher.publish("1.0.0", MANIFEST, files={})
    host.configure(http={"username": "fleet", "password": "s3cret"})
    configuration = load_configuration(host.configuration)
    assert settings_for(configuration, f"{configuration.mirrors[0]}/site.yaml").username == "fleet"
    assert settings_for(configuration, "https://data.example.org/site.yaml").username is None


def test_invalid_location_is_refused(host: Host) -> None:
    host.configure(data=["site.yaml"])
    outcome = host.run()
    assert outcome.status == 78
    assert "data has 'site.yaml', expected a URL, the absolute path of a file, or site:NAME" in outcome.output


EMPTY = {
    "nothing": "",
    "blank lines": "\n\n",
    "a comment": "# maintenance\n",
    "null": "null",
    "braces": "{}",
    "a key alone": "data:\n",
    "empty data": "data: {}\noverrides: {a: {}}\n",
}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", EMPTY)
def test_empty_document_keeps_the_last_good_copy(host: Host, web: WebServer, name: str) -> None:
    write(web, "data: {greeting: good}", age=120)
    host.run()
    write(web, EMPTY[name], age=-60)
    for arguments in ((), (), ("--noop",)):
        outcome = host.run(*arguments)
        assert outcome.status == 13
        assert (
            "/site.yaml: is empty, and empty documents are ignored, using its last good copy"
            in outcome.output
        )
        assert motd(host).startswith("good ")


def test_emptied_file_keeps_the_last_good_copy(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    path = tmp_path / "a.yaml"
    path.write_text("data: {greeting: good}")
    host.configure(data=[str(path)])
    host.run()
    path.write_text("")
    assert host.run().status == 13
    assert motd(host).startswith("good ")


@pytest.mark.parametrize("name", ["data.yaml", "data.d/a.yaml"])
def test_emptied_data_of_the_host_stop_the_run(
    host: Host, publisher: Publisher, tmp_path: Path, name: str
) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    path = tmp_path / "host" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("data: {greeting: mine}")
    host.configure(host_data_directory=str(tmp_path / "host" / "data.d"))
    assert host.run().status == 0
    path.write_text("\n")
    outcome = host.run()
    assert outcome.status == 78
    assert f"{path}: is empty; write {{}} for a host without data" in outcome.output
    assert motd(host).startswith("mine ")
    path.write_text("# none\n{}\n")
    assert host.run().status == 0
    assert motd(host).startswith("from the bundle ")


class Unframed(BaseHTTPRequestHandler):
    """Serves documents without a length, like a proxy that has lost its connection."""

    document = b""

    def do_GET(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + self.document)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_document_without_a_length_needs_an_end_marker(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    with ThreadingHTTPServer(("127.0.0.1", 0), Unframed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host.configure(data=f"http://127.0.0.1:{server.server_port}/site.yaml")
        for document, status, greeting in (
            (b"data:\n  greeting: one\n...\n", 0, "one "),
            (b"data:\n  greeting: tw", 14, "one "),
            (b"data:\n  greeting: two\n", 14, "one "),
            (b'{"data": {"greeting": "three"', 14, "one "),
            (b'{"data": {"greeting": "three"}}', 0, "three "),
        ):
            Unframed.document = document
            assert host.run().status == status
            assert motd(host).startswith(greeting)
        server.shutdown()


@pytest.mark.usefixtures("site")
def test_apply_after_a_run_changes_nothing(host: Host, web: WebServer, tmp_path: Path) -> None:
    write(web, "data: {greeting: from the site, list: [site]}")
    data, directory = tmp_path / "host" / "data.yaml", tmp_path / "host" / "data.d"
    directory.mkdir()
    host.configure(host_data_directory=str(directory), host_name="web01.example.com")
    data.write_text("data: {greeting: mine}")
    (directory / "a.yaml").write_text("data: {web: {port: 8080}}")
    assert host.run().status == 0
    source = tmp_path / "web"
    source.mkdir()
    (source / "manifest.yaml").write_text(MANIFEST)
    write(web, "data: {greeting: unseen}", age=-60)
    for options in (("--noop",), ()):
        outcome = host.puller("apply", str(source), "-v", *options)
        assert outcome.status == 0, outcome
        assert "2 stable, 0 changed" in outcome.output
    assert motd(host) == "mine site 8080 no"
    assert host.puller("apply", str(source), "--set", "greeting=theirs").status == 0
    assert motd(host) == "theirs site 8080 no"


@pytest.mark.usefixtures("site")
def test_apply_without_the_facts_of_this_host_reads_no_data(host: Host, tmp_path: Path) -> None:
    (tmp_path / "host" / "data.yaml").write_text("data: {greeting: mine}")
    source = tmp_path / "web"
    source.mkdir()
    (source / "manifest.yaml").write_text(MANIFEST)
    facts = tmp_path / "host" / "facts.d" / "story.json"
    assert host.puller("apply", str(source), "--no-system-facts", "--facts", str(facts)).status == 0
    assert motd(host).startswith("from the bundle ")
