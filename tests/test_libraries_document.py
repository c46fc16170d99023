"""``docs/libraries.md``: the page's repository can be packed, and its bundle applied, as described."""

import re
from pathlib import Path

from bundles.archive.pack import build_bundle
from bundles.archive.unpack import unpack
from puller.manifest.libraries import files_in, unused_libraries, used_libraries
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.templates.rendering import render_file

PAGE = (Path(__file__).parents[1] / "docs/libraries.md").read_text()
FILES = {
    name: text
    for text, name in re.findall(r"```\w+\n((?:#|\{#) (\S+)(?: #\})?\n.*?)```", PAGE, re.DOTALL)
    if "/" in name
}

OTHERS = {"libraries/common/files/robots.txt": "User-agent: *\n", "libraries/base/library.yaml": ""}


def write(directory: Path) -> Path:
    """Write the page's repository and return the directory of the bundle."""
    for name, text in {**FILES, **OTHERS}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory / "bundles/shop"


def shown_by(manifest: Manifest) -> dict[str, str]:
    """Return the files that the manifest creates."""
    result = {}
    for declaration in manifest.declarations:
        home, properties = declaration.home, declaration.shown()
        if template := properties.get("template"):
            path = home.files.find(template)
            result[declaration.properties.name] = render_file(path, "jinja", home.scope, home.files).text
        elif source := properties.get("source"):
            result[declaration.properties.name] = Path(home.files.find(source)).read_text()
    return result


def test_documented_repository_gives_its_result(tmp_path: Path) -> None:
    bundle = write(tmp_path)
    assert set(re.findall(r"^    (\w+/\S+)$", PAGE, re.MULTILINE)) == {
        *FILES,
        *OTHERS,
    }
    assert list(unused_libraries(files_in(bundle), "manifest.yaml")) == []
    archive = tmp_path / "shop.tar.gz"
    build_bundle(bundle, archive, name="shop", version="1", libraries=used_libraries(bundle))
    unpack(archive, tmp_path / "unpacked")
    desired = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    for directory in (bundle, tmp_path / "unpacked"):
        shown = shown_by(load_manifest(directory / "manifest.yaml", "manifest.yaml", Inputs({}, {})))
        assert shown.pop("/srv/www/shop/robots.txt") == "User-agent: *\n"
        assert list(shown.values()) == desired
        assert all(f"`{name}`:" in PAGE for name in shown)
