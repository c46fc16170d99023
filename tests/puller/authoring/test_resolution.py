"""A bundle resolved for other machines: its declared resources there, and the content of its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hiera.values import Secret
from puller.authoring.resolution import Resolution, ResolvedResource, resolve
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.manifest.manifest import Inputs, ManifestSource

KEY = b"0123456789abcdef"
MANIFEST = """\
data: {port: 80}
resources:
  - file:
      - /etc/app: {ensure: directory, owner: nobody-here, group: staff, mode: "0755"}
      - defaults: {owner: nobody-here, group: staff, mode: "0644"}
      - /etc/app/plain: {source: files/plain}
      - /etc/app/made: {template: templates/made.j2}
      - /etc/app/tree: {ensure: directory, source: files/tree, recurse: true, mode: "0755"}
      - /etc/app/gone: {ensure: absent}
      - /etc/app/theirs: {source: https://example.com/x}
      - /etc/app/role: {content: "{{ facts.role }}"}
      - /etc/app/debian: {content: deb, control: {if: "facts.os.family == 'Debian'"}}
  - scaffold:
      - /srv/app: {source: templates/app, engine: jinja, require: ["file#/etc/app"]}
  - service:
      - app: {ensure: running, subscribe: ["file#/etc/app/made"], reload: ["file#/etc/app/plain"]}
"""

Resolve = Callable[..., Resolution]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = tmp_path / "app"
    for name, text in {
        "manifest.yaml": MANIFEST,
        "files/plain": "plain\n",
        "files/tree/sub/one": "one\n",
        "templates/made.j2": "port = {{ data.port }}\n",
        "templates/app/conf": "name = {{ facts.name }}\n",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def of(bundle: Path) -> Resolve:
    """Return ``of(facts, **data)``: the bundle on a machine with these facts and data."""

    def run(facts: dict[str, Any] | None = None, key: bytes = KEY, **data: Any) -> Resolution:
        base = {"name": "web01", "os": {"family": "Debian"}, "role": "web"}
        sources = (DataSource(Origin.COMMAND_LINE, "test", data),) if data else ()
        inputs = Inputs({**base, **(facts or {})}, {}, sources)
        return resolve(ManifestSource(bundle / "manifest.yaml", "app/manifest.yaml"), inputs, key=key)

    return run


def one(resolution: Resolution, reference: str) -> ResolvedResource:
    return next(resource for resource in resolution.resources if resource.reference == reference)


def texts(resolution: Resolution) -> dict[str, str | None]:
    return {path: c.text for resource in resolution.resources for path, c in resource.contents.items()}


def test_bundle_is_resolved_without_reading_the_machine(of: Resolve) -> None:
    assert texts(of()) == {
        "/etc/app/plain": "plain\n",
        "/etc/app/made": "port = 80\n",
        "/etc/app/tree/sub/one": "one\n",
        "/etc/app/role": "web",
        "/etc/app/debian": "deb",
        "/srv/app/conf": "name = web01\n",
    }


def test_links_are_told_by_the_names_of_resources(of: Resolve) -> None:
    service = one(of(), "service#app")
    assert service.refreshed_by == ("file#/etc/app/made",)
    assert service.reloaded_by == ("file#/etc/app/plain",)
    assert one(of(), "scaffold#/srv/app").requires == ("file#/etc/app",)


def test_unmanaged_resource_states_the_reason(of: Resolve) -> None:
    assert one(of(), "file#/etc/app/debian").unmanaged == ""
    other = one(of({"os": {"family": "RedHat"}}), "file#/etc/app/debian")
    assert other.unmanaged == "control: if facts.os.family == 'Debian' is false"
    assert other.contents == {}


@pytest.mark.parametrize("break_it", [lambda d: (d / "files/plain").unlink(), None])
def test_failed_resource_states_the_reason(bundle: Path, of: Resolve, break_it: Any) -> None:
    if break_it:
        break_it(bundle)
        assert "files/plain" in one(of(), "file#/etc/app/plain").failure
    else:
        (bundle / "templates/made.j2").write_text("{{ data.prt }}")
        assert "prt" in one(of(), "file#/etc/app/made").failure


def test_a_manifest_that_a_host_refuses_is_refused(bundle: Path, of: Resolve) -> None:
    (bundle / "manifest.yaml").write_text("resources:\n  - flie: [/x]\n")
    with pytest.raises(ManifestError, match="flie"):
        of()


def test_secrets_are_compared_by_keyed_fingerprints(of: Resolve) -> None:
    def made(password: str, key: bytes = KEY) -> ResolvedResource:
        return one(of({}, key, port=Secret(password)), "file#/etc/app/made")

    result = made("s3cret").contents["/etc/app/made"]
    assert (result.text, result.is_secret) == (None, True)
    assert result == made("s3cret").contents["/etc/app/made"]
    assert result.fingerprint != made("other").contents["/etc/app/made"].fingerprint
    assert result.fingerprint != made("s3cret", b"fedcba9876543210").contents["/etc/app/made"].fingerprint
    assert "s3cret" not in repr(of({}, port=Secret("s3cret")))


def test_a_property_with_a_secret_has_a_fingerprint_of_it(bundle: Path, of: Resolve) -> None:
    text = (bundle / "manifest.yaml").read_text().replace("content: deb,", "content: '{{ data.port }}',")
    (bundle / "manifest.yaml").write_text(text)
    old, new = (one(of({}, port=Secret(word)), "file#/etc/app/debian") for word in ("one", "two"))
    assert old.properties == new.properties
    assert old.fingerprint != new.fingerprint
