"""Destinations of reports: valid settings, and errors with the line."""

from pathlib import Path

import pytest

from puller.config.configuration import Configuration, load_configuration
from puller.config.transport import settings_for_destination
from puller.errors import ConfigurationError

HEAD = """\
site: https://site.example.com/
bundles: [{name: web}]
http: {proxy: "http://p:1", username: u, password: p}
"""


def load(tmp_path: Path, to: str, more: str = "") -> Configuration:
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}{more}reports:\n  to:\n    - /srv/reports\n    - {to}\n")
    return load_configuration(path)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("{ulr: x}", "config.yaml:7: ulr is not a key of to (did you mean 'url'?)"),
        ("{url: 3}", "config.yaml:7: url is 3, expected text; quote it"),
        ("7", "config.yaml:7: to has a whole number at [1], expected text or a mapping"),
        ("{}", "config.yaml:7: reports.to[1] requires either url or directory"),
        ("{url: https://a/, directory: /a}", "config.yaml:7: reports.to[1] requires either url or directory"),
        ("/srv/reports", "config.yaml:7: reports.to[1] names '/srv/reports' twice"),
        ("{directory: reports}", "reports.to[1] is 'reports', expected the absolute path of a directory"),
        ("{directory: /a, username: u}", "reports.to[1] has username, which a directory does not support"),
        ("ftp://u:secret@a/", "reports.to[1] is 'ftp://***@a/', expected a URL (http, https, s3)"),
        (
            "https://a/reports",
            "where each report would replace the previous report: expected a URL that ends with '/'",
        ),
        ("'https://a/{run}'", "where each report would replace the previous report"),
        ("'https://a/{host}/{Run}'", "where braces may contain only {host} and {run}"),
        ("'https://{host}.a/'", "{host} and {run} are valid only in the path"),
        ("https://a/?token=secret", "contains a query or fragment"),
        ("https://a:port/", "expected a URL such as"),
        ("{url: https://a/, method: GET}", "config.yaml:7: method is 'GET', expected PUT or POST"),
        ("{url: https://a/, client_key: /k}", "has client_key without client_certificate"),
        ("{url: https://a/, password: secret}", "has a password without username"),
        ("{url: https://a/, username: u, token_file: /t}", "has both token_file and a username or password"),
        ("s3://", "is not an object store: expected s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "is not an object store: expected s3://BUCKET/PREFIX"),
        ("'s3://bucket/{host}'", "is not an object store: expected s3://BUCKET/PREFIX"),
        ("{url: 's3://b/x', token_file: /t}", "has token_file, which an object store does not support"),
    ],
)
def test_invalid_destination_is_refused_with_its_line(tmp_path: Path, to: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, to)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "host_name: ../x\n",
            "config.yaml:4: host_name is '../x', which is invalid as the sender of reports",
        ),
        ("host_name: .x\n", "expected letters, digits, '.', '-' and '_', not starting with '.'"),
        ("host_name: " + "a" * 254 + "\n", "at most 253 of them"),
    ],
)
def test_invalid_host_name_is_refused_with_reports(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, "https://a/", more)
    assert message in str(error.value)
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}{more}")
    assert load_configuration(path).reports.destinations == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{send_timeout: 0}", "has send_timeout: 0, expected more than 0 seconds"),
        ("{spool: {count: 0}}", "has a spool without room"),
        ("{spool: {size: 1}}", "size is not a key of spool"),
        ("{facts: [os..name]}", "has 'os..name' among facts"),
        ("{to: https://a/}", "to is 'https://a/', expected a list"),
    ],
)
def test_other_mistakes_are_named_too(tmp_path: Path, options: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}reports: {options}\n")
    with pytest.raises(ConfigurationError) as error:
        load_configuration(path)
    assert message in str(error.value)


def test_destination_inherits_site_settings_but_no_credentials(tmp_path: Path) -> None:
    def settings(to: str) -> tuple[str, str | None, str | None]:
        configuration = load(tmp_path, to)
        results = settings_for_destination(configuration, configuration.reports.destinations[1])
        return results.proxy.reveal() if results.proxy else "", results.username, results.client_cert

    assert settings("https://other.example.com/") == ("http://p:1", None, None)
    assert settings("https://site.example.com:443/reports/") == ("http://p:1", "u", None)
    assert settings("{url: https://site.example.com/, client_certificate: /c}") == ("http://p:1", None, "/c")
    assert settings("{url: https://other.example.com/, proxy: '', username: me, password: x}") == (
        "",
        "me",
        None,
    )
