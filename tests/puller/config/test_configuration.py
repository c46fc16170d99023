"""The configuration: every key is documented, and errors have the line."""

from pathlib import Path

import msgspec
import pytest

from puller.config.configuration import Configuration, HttpOptions, ReportOptions, load_configuration, sample
from puller.errors import ConfigurationError

MINIMAL = "site: https://www.example.org/\nbundles: [{name: web}]\n"


def load(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_configuration(path)


def test_the_shipped_sample_is_valid(tmp_path: Path) -> None:
    configuration = load(tmp_path, sample())
    assert [choice.name for choice in configuration.bundles] == ["base", "web"]


@pytest.mark.parametrize("options", [Configuration, HttpOptions, ReportOptions])
def test_the_shipped_sample_documents_every_key(options: type[msgspec.Struct]) -> None:
    text = sample()
    for field in msgspec.structs.fields(options):
        assert f"{field.encode_name}:" in text, field.encode_name


def test_the_defaults_in_the_sample_are_the_real_ones(tmp_path: Path) -> None:
    shown, minimal = load(tmp_path, sample()), load(tmp_path, MINIMAL)
    for field in msgspec.structs.fields(Configuration):
        if field.name not in ("site", "bundles"):
            assert getattr(shown, field.name) == getattr(minimal, field.name), field.name


def test_a_list_of_sites_is_a_list_of_mirrors(tmp_path: Path) -> None:
    text = "site: [https://a.example.org/, /media/usb/public]\nbundles: [{name: web}]\n"
    assert load(tmp_path, text).mirrors == ("https://a.example.org/", "/media/usb/public")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MINIMAL + "sites: x\n",
            "config.yaml:3: sites is not a key of the configuration (did you mean 'site'?)",
        ),
        (
            MINIMAL + "http:\n  retry: 3\n",
            "config.yaml:4: retry is not a key of http (did you mean 'retries'?)",
        ),
        (
            MINIMAL + "http: {read_timeout: soon}\n",
            "read_timeout is 'soon', expected a duration such as '30s', '1h30m' or '7d'",
        ),
        ("site: https://a/\nbundles:\n  - name: 5\n", "config.yaml:3: name is 5, expected text; quote it"),
        ("site: https://a/\n", "bundles is missing"),
        ("site: https://a/\nbundles: []\n", "config.yaml:2: bundles is empty, expected at least one bundle"),
        ("site: https://a/\nbundles: [{name: a}, {name: a}]\n", "config.yaml:2: bundles names 'a' twice"),
        (
            "site: ftp://a/\nbundles: [{name: a}]\n",
            "config.yaml:1: site is 'ftp://a/', expected a URL or the absolute path",
        ),
        (
            MINIMAL + "state_directory: var\n",
            "config.yaml:3: state_directory is 'var', expected an absolute path",
        ),
        (
            "site: https://a/\nbundles: [{name: a, give_up_after: -1}]\n",
            "config.yaml:2: bundles has 'a' with give_up_after: -1, expected a number of runs",
        ),
        (MINIMAL + "reports: {keep: 0}\n", "config.yaml:3: reports has keep: 0, expected at least 1"),
        (MINIMAL + "reports: {most: 9}\n", "config.yaml:3: reports has most: 9, expected at least keep: 20"),
        (MINIMAL + "reports: {most_bytes: 0}\n", "config.yaml:3: reports has most_bytes: 0"),
        (
            MINIMAL + "reports: {quiet_for: 100d}\n",
            "config.yaml:3: reports has a longer quiet_for than eventful_for",
        ),
        (
            MINIMAL + "reports: {quiet_for: later}\n",
            "config.yaml:3: quiet_for is 'later', expected a duration",
        ),
        ("a: [\n", "config.yaml:2:1: "),
        ("", "is not a mapping"),
        ("site: a\nsite: b\n", "config.yaml:2:1: "),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, text)
    assert message in str(error.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, "sitee: a\nhost_name: 5\n")
    text = str(error.value)
    assert len(text.splitlines()) == 3
    for mistake in ("sitee is not a key", "host_name is 5", "bundles is missing"):
        assert mistake in text


def test_a_missing_configuration_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match="the configuration does not exist; create it from the output of `puller config sample`",
    ):
        load_configuration(tmp_path / "none.yaml")
