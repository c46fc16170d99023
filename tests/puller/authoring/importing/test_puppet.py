"""`puller import puppet`: short stories of a module, its draft, and the result of lint."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from hiera.expressions.expressions import Scope as Names
from hiera.expressions.expressions import resolve
from hiera.parsing import load_yaml
from puller.authoring.importing.draft import Draft, Outcome
from puller.authoring.importing.puppet.puppet_importer import import_puppet
from puller.authoring.importing.puppet.scopes import table
from puller.bundle_paths import BundleFiles
from puller.cli.command_table import cli
from puller.errors import SourceError
from puller.templates.jinja import JinjaEngine

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a module: files by path. A text is ``manifests/init.pp``."""

    def write_module(files: Mapping[str, str] | str, name: str = "web") -> Path:
        for path, text in ({"manifests/init.pp": files} if isinstance(files, str) else files).items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return tmp_path / name

    return write_module


def draft_of(module: Path) -> Draft:
    return import_puppet(module, module.name)


def resources_of(draft: Draft, path: str = "classes/web.yaml") -> dict[str, Any]:
    """Return the properties of all active resources of a manifest, by reference."""
    result = {}
    for group in load_yaml(draft.all_files()[path], path)["resources"]:
        for kind, entries in group.items():
            for entry in entries:
                item = dict(entry) if isinstance(entry, dict) else {entry: None}
                loop = item.pop("for", None)
                [(name, properties)] = item.items()
                result[f"{kind}#{name}"] = {**(properties or {}), **({"for": loop} if loop else {})}
    return result


def data_of(draft: Draft) -> dict[str, Any]:
    """Return the data of all manifests."""
    return {key: value for manifest in draft.manifests.values() for key, value in manifest.data.items()}


def outcomes(draft: Draft) -> dict[str, Outcome]:
    return {remark.subject: remark.outcome for remark in draft.remarks}


def lint(module: Path, target: Path) -> str:
    result = CliRunner().invoke(cli, ["import", "puppet", str(module), str(target)])
    assert result.exit_code == 0, result.output
    return result.output


MODULE = {
    "manifests/init.pp": """
        class web (
          Array[String] $packages = ['nginx', 'curl'],
          Integer $port = 80,
          Boolean $tls = false,
          Hash $sites = {},
        ) inherits web::params {
          File { owner => 'root', group => 'adm' }
          package { $packages: ensure => installed }
          -> file { '/etc/web': ensure => directory, mode => '0640' }
          file { 'config':
            path    => '/etc/web/web.conf',
            mode    => '0640',
            content => template('web/web.conf.erb'),
            notify  => Service['web'],
          }
          if $tls { file { '/etc/web/tls.pem': source => 'puppet:///modules/web/tls.pem' } }
          $sites.each |$name, $site| { web::site { $name: port => $site['port'] } }
          service { 'web': name => $web::params::service, ensure => running, enable => true }
          mysql_user { 'web@localhost': }
        }
        """,
    "manifests/params.pp": """
        class web::params {
          case $facts['os']['family'] {
            'Debian': { $service = 'nginx' }
            default: { $service = 'httpd' }
          }
        }
        """,
    "manifests/site.pp": """
        define web::site (Integer $port, String $root = "/srv/${title}") {
          file { "/etc/web/${title}.conf":
            content => epp('web/site.conf.epp', {'port' => $port, 'root' => $root, 'base' => $web::port}),
            owner => 'root', group => 'root', mode => '0644',
          }
        }
        """,
    "templates/web.conf.erb": "port <%= @port %>\n<% if @tls -%>\ntls <%= @tls %>\n<% end -%>\n",
    "templates/site.conf.epp": "<%- | Integer $port, String $root, Integer $base | -%>\nroot <%= $root %>\n",
    "files/tls.pem": "certificate\n",
    "hiera.yaml": "version: 5\nhierarchy:\n  - {name: common, path: common.yaml}\n",
    "data/common.yaml": "web::sites: {shop: {port: 81}}\n",
}


def test_module_becomes_manifests_that_pass_lint(write: Write, tmp_path: Path) -> None:
    module = write(MODULE)

    output = lint(module, tmp_path / "draft")

    assert "8 mapped, 0 with a remark, 1 not mapped" in output
    assert "0 errors, 0 warnings" in output
    draft = draft_of(module)
    resources = resources_of(draft)
    assert resources["package#{{ item }}"] == {
        "for": "item in data['web::packages']",
        "label": "package",
    }
    assert resources["file#/etc/web"]["mode"] == "0750"
    assert resources["file#/etc/web"]["require"] == ["label#package"]
    assert resources["file#/etc/web/web.conf"]["group"] == "adm"
    assert resources["file#/etc/web/tls.pem"]["source"] == "bundle:files/web/tls.pem"
    assert resources["file#/etc/web/tls.pem"]["control"] == {"if": "data['web::tls']"}
    assert resources["service#{{ data['web::params::service'] }}"]["subscribe"] == ["file#/etc/web/web.conf"]
    assert resources["apply#bundle:defines/web/site.yaml"]["data"] == {
        "title": "{{ name }}",
        "port": "{{ site['port'] | default(none) }}",
        "web::port": "{{ data['web::port'] }}",
    }
    assert (
        data_of(draft)["web::params::service"] == "{{ 'nginx' if facts.os.family == 'Debian' else 'httpd' }}"
    )
    assert draft.files["data/common.yaml"] == (module / "data/common.yaml").read_bytes()
    text = draft.manifests["classes/web.yaml"].text()
    assert "# Not mapped: Mysql_user[web@localhost] (manifests/init.pp:20)" in text
    assert "Mysql_user[web@localhost]" in draft.report()


def test_same_source_gives_the_same_draft(write: Write) -> None:
    module = write(MODULE)

    assert draft_of(module).all_files() == draft_of(module).all_files()


@pytest.mark.parametrize(
    ("declaration", "reference", "properties"),
    [
        ("package { 'a': ensure => '1.2' }", "package#a", {"ensure": "1.2"}),
        ("package { 'a': ensure => purged }", "package#a", {"ensure": "purged"}),
        ("file { '/x': ensure => link, target => '/y' }", "link#/x", {"target": "/y"}),
        ("file { '/x': ensure => '/y' }", "link#/x", {"target": "/y"}),
        ("file { '/x': ensure => absent, force => true }", "file#/x", {"ensure": "absent", "force": True}),
        ("file { '/x': mode => '600' }", "file#/x", {"create": False, "mode": "0600"}),
        (
            "file { '/x': content => \"a\\n\", validate_cmd => 'visudo -cf %', replace => false }",
            "file#/x",
            {"ensure": "exists", "content": "a\n", "validate": "visudo -cf {}"}
            | {"owner": "root", "group": "root", "mode": "0644"},
        ),
        (
            "file_line { 'x': path => '/x', line => 'a=1', match => '^a=', after => '^b' }",
            "line#x",
            {"path": "/x", "line": "a=1", "match": "^a=", "insert_after": "^b"},
        ),
        (
            "ini_setting { 'x': path => '/x', section => 's', setting => 'k', value => 5 }",
            "setting#x",
            {"path": "/x", "format": "ini", "create": True, "section": "s", "key": "k", "value": "5"},
        ),
        (
            "service { 'a': ensure => true, enable => false, hasrestart => true }",
            "service#a",
            {"enable": False},
        ),
        (
            "exec { 'x': command => '/bin/a | b', path => ['/bin', '/sbin'], unless => ['a', 'b'], timeout => 0 }",
            "exec#x",
            {"command": "/bin/a | b", "unless": "(a) || (b)", "provider": "shell", "path": "/bin:/sbin"}
            | {"timeout": "24h"},
        ),
        (
            "cron { 'a b': command => 'x', hour => [1, 2], minute => '*/5', user => 'web' }",
            "cron#a-b",
            {"schedule": "*/5 1,2 * * *", "command": "x", "user": "web"},
        ),
        (
            "user { 'a': uid => '900', gid => 'g', groups => ['x'], managehome => true, shell => '/bin/sh' }",
            "user#a",
            {"uid": 900, "group": "g", "groups": ["x"], "manage_home": True, "shell": "/bin/sh"},
        ),
        ("group { 'g': gid => 900, system => true }", "group#g", {"gid": 900, "system": True}),
        (
            "ssh_authorized_key { 'a@b': user => 'u', type => 'ed25519', key => 'AAAA', options => ['no-pty'] }",
            "user#u",
            {"authorized_keys": ["no-pty ssh-ed25519 AAAA a@b"]},
        ),
        (
            "mount { '/mnt': ensure => mounted, device => '/dev/x', fstype => 'ext4', options => 'ro,noatime' }",
            "mount#/mnt",
            {"ensure": "mounted", "device": "/dev/x", "type": "ext4", "options": ["ro", "noatime"]},
        ),
        ("sysctl { 'net.a': value => 1 }", "sysctl#net.a", {"value": "1"}),
        ("kmod::load { 'zfs': }", "kernel_module#zfs", {"ensure": "loaded"}),
        (
            "host { 'db': ip => '192.0.2.1', host_aliases => ['d'] }",
            "host_entry#db",
            {"address": "192.0.2.1", "aliases": ["d"]},
        ),
        (
            "concat::fragment { 'f': target => '/x', content => \"a\\n\", order => '05' }",
            "fragment#f",
            {"path": "/x", "order": 5, "content": "a\n"},
        ),
    ],
)
def test_resource(write: Write, declaration: str, reference: str, properties: Mapping[str, Any]) -> None:
    draft = draft_of(write(f"class web {{ {declaration} }}"))

    assert resources_of(draft)[reference] == properties


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$flag", "data['web::flag']"),
        ("!$flag", "not data['web::flag']"),
        ("$name_of", "data['web::name_of'] is not none"),
        ("$any", "data['web::any'] is not none and data['web::any'] is not false"),
        ("$name_of == 'a' and $flag", "data['web::name_of'] == 'a' and data['web::flag']"),
        ("$facts['os']['family'] =~ /^Deb/", "facts.os.family is search('^Deb')"),
        ("$::osfamily in ['Debian', 'RedHat']", "facts.os.family in ['Debian', 'RedHat']"),
        ("versioncmp($facts['os']['release']['full'], '9') >= 0", "facts.os.release.full is version('9', '>=')"),
        ("$any =~ Array", "data['web::any'] is sequence and data['web::any'] is not string and "
         "data['web::any'] is not mapping"),
        ("empty($name_of)", "(data['web::name_of'] or '') | length == 0"),
    ],
)  # fmt: skip
def test_condition(write: Write, condition: str, expected: str) -> None:
    source = f"""
        class web (Boolean $flag = true, Optional[String] $name_of = undef, $any = undef) {{
          if {condition} {{ package {{ 'a': }} }}
        }}
        """

    draft = draft_of(write(source))

    assert resources_of(draft)["package#a"]["control"] == {"if": expected}


def test_else_and_case_negate_the_other_branches(write: Write) -> None:
    draft = draft_of(
        write(
            """
            class web (Boolean $flag = true, String $kind = 'a') {
              if $flag { package { 'a': } } else { package { 'b': } }
              case $kind { 'x', 'y': { package { 'c': } } default: { package { 'd': } } }
            }
            """
        )
    )

    conditions = {name: item["control"]["if"] for name, item in resources_of(draft).items()}
    kind = "data['web::kind']"
    assert conditions == {
        "package#a": "data['web::flag']",
        "package#b": "not data['web::flag']",
        "package#c": f"{kind} == 'x' or {kind} == 'y'",
        "package#d": f"not ({kind} == 'x' or {kind} == 'y')",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "nova_config { 'DEFAULT/x': value => 1 }",
        "@@sshkey { 'x': key => 'y' }",
        "File <| tag == 'x' |> { mode => '0600' }",
        "if defined(Class['x']) { package { 'a': } }",
        "if unknown_function($x) { package { 'a': } }",
        "package { 'a': provider => 'gem' }",
        "file { '/x': content => template('other/x.erb') }",
        "file { '/x': content => $facts['a'].map |$x| { $x } }",
        "file { '/x': source => 'puppet:///modules/web/missing' }",
        "include other",
        "$list.each |$index, $item| { package { $item: } }",
        "$x = unknown_function()",
        "user { 'a': password => Sensitive('secret') }",
    ],
)
def test_statement_without_counterpart_is_a_comment(write: Write, tmp_path: Path, statement: str) -> None:
    module = write(f"class web (Array $list = []) {{\n  {statement}\n  package {{ 'kept': }}\n}}\n")

    output = lint(module, tmp_path / "draft")

    assert "1 not mapped" in output
    assert " 0 errors" in output
    draft = draft_of(module)
    assert "Not mapped: " in draft.manifests["classes/web.yaml"].text()
    assert "manifests/init.pp:2" in draft.report()
    assert "secret'" not in "".join(content.decode() for content in draft.all_files().values())
    assert "package#kept" in resources_of(draft)


def test_class_arrows_order_children_and_refresh_services(write: Write) -> None:
    draft = draft_of(
        write(
            {
                "manifests/init.pp": """
                    class web {
                      contain web::config
                      contain web::service
                      Class['web::config'] ~> Class['web::service']
                    }
                    """,
                "manifests/config.pp": "class web::config { file { '/x': content => 'a' } }",
                "manifests/service.pp": "class web::service { service { 'web': ensure => running } }",
            }
        )
    )

    config = "apply#bundle:classes/web/config.yaml"
    assert resources_of(draft)["apply#bundle:classes/web/service.yaml"] == {"require": [config]}
    assert resources_of(draft, "classes/web/service.yaml")["service#web"] == {"subscribe": [config]}


def test_control_repository_has_nodes_and_class_values(write: Write, tmp_path: Path) -> None:
    repository = write(
        {
            "manifests/site.pp": """
                node 'web01.example.com' { class { 'profile::web': port => 81 } }
                node default { include profile::base }
                """,
            "site/profile/manifests/web.pp": """
                class profile::web (Integer $port = 80) { file { '/x': content => "port ${port}\\n" } }
                """,
            "modules/profile/manifests/ignored.pp": "class profile::ignored { }",
            "modules/base/manifests/init.pp": "class base { package { 'curl': } }",
            "site/profile/manifests/base.pp": "class profile::base { include base }",
            "hiera.yaml": "version: 5\nhierarchy:\n  - {name: common, path: common.yaml}\n",
            "data/common.yaml": "other::key: 1\n",
        }
    )

    assert " 0 errors" in lint(repository, tmp_path / "draft")
    draft = draft_of(repository)
    resources = resources_of(draft, "manifest.yaml")
    test = "facts.networking.fqdn == 'web01.example.com'"
    assert resources["apply#bundle:classes/profile/web.yaml"]["control"] == {"if": test}
    assert resources["apply#bundle:classes/profile/base.yaml"]["control"] == {"if": f"not ({test})"}
    assert data_of(draft)["profile::web::port"] == 81
    assert draft.files["data/common.yaml"] == b"other::key: 1\n"


@pytest.mark.parametrize(
    ("name", "template", "expected"),
    [
        ("x.erb", "a <%= @port %>\n<% if @flag -%>\nyes\n<% else -%>\nno\n<% end -%>\nz\n", "a 80\nyes\nz\n"),
        ("x.erb", "<% if @flag %>\nyes\n<% end %>\n", "\nyes\n\n"),
        ("x.erb", "x\n  <%- @list.each do |item| -%>\n  <%= item %>,\n  <%- end -%>\n", "x\n  a,\n  b,\n"),
        ("x.erb", "<% if @flag -%>\nyes<% end -%>\n", "yes"),
        ("x.erb", "<%= @list.join(', ') %> <%= @flag %> <%= @none %>|\n", "a, b true |\n"),
        ("x.erb", "<%= @map['k'] %> {{ <%= scope['web::port'] %> {%\n", "v {{ 80 {%\n"),
        ("x.erb", "<% @map.each do |key, value| %><%= key %>=<%= value %><% end %>\n", "k=v\n"),
        ("x.erb", "<% unless @none.nil? -%>\nx\n<% end -%>\n<%# note -%>\n<%% y\n", "<% y\n"),
        ("x.epp", "<% if $web::flag and !$web::none { -%>\nyes\n<% } -%>\n", "yes\n"),
        ("x.epp", "<% $web::list.each |$i| { %><%= $i %> <% } %>\n", "a b \n"),
        ("x.epp", "<% $web::map.each |$k, $v| { -%>\n<%= $k %>: <%= $v %>\n<% } -%>\n", "k: v\n"),
        ("x.epp", "<%= $web::port ? { 80 => 'http', default => 'other' } -%>\n!\n", "http!\n"),
    ],
)
def test_template_renders_like_puppet(
    write: Write, tmp_path: Path, name: str, template: str, expected: str
) -> None:
    function = "epp" if name.endswith("epp") else "template"
    module = write(
        {
            "manifests/init.pp": f"""
                class web (Integer $port = 80, Boolean $flag = true, Array[String] $list = ['a', 'b'],
                           Hash $map = {{'k' => 'v'}}, Optional[String] $none = undef) {{
                  file {{ '/x': content => {function}('web/{name}') }}
                }}
                """,
            f"templates/{name}": template,
        }
    )

    draft = draft_of(module)

    assert resources_of(draft)["file#/x"]["template"] == "bundle:templates/web/x.j2"
    scope = Names({}).with_names({"data": data_of(draft), "facts": {}})
    engine = JinjaEngine(root=BundleFiles.of(tmp_path))
    assert engine.render("x.j2", draft.files["templates/web/x.j2"].decode(), scope) == expected


@pytest.mark.parametrize(
    "template", ["<%= @a.map { |x| x + 1 } %>", "<%= Dir.pwd %>", "<% if @a %>", "<%= `id` %>", "<% def x %>"]
)
def test_template_that_is_not_plain_is_kept_and_listed(write: Write, template: str) -> None:
    source = "class web ($a = 1) { file { '/x': content => template('web/x.erb') } }"

    draft = draft_of(write({"manifests/init.pp": source, "templates/x.erb": template}))

    assert draft.files["templates/web/x.erb"] == template.encode()
    assert any("templates/x.erb is not converted" in check for check in draft.checks)
    assert outcomes(draft)["File[/x]"] is Outcome.UNMAPPED


def test_invalid_manifest_is_listed_and_others_are_imported(write: Write) -> None:
    draft = draft_of(
        write({"manifests/init.pp": "class web { include web::a }", "manifests/a.pp": "class {"})
    )

    assert "manifests/a.pp" in draft.report()
    assert "line 1" in draft.report()


def test_links_out_of_the_source_are_not_followed(write: Write, tmp_path: Path) -> None:
    module = write("class web { file { '/x': source => 'puppet:///modules/web/../../../secret' } }")
    (tmp_path / "secret").write_text("secret")
    (module / "files").mkdir()
    (module / "files/link").symlink_to(tmp_path / "secret")
    (module / "templates").symlink_to(tmp_path)

    draft = draft_of(module)

    assert not any(content == b"secret\n" or content == b"secret" for content in draft.files.values())
    assert any("files/link" in check for check in draft.checks)
    assert "file#/x" not in draft.manifests["classes/web.yaml"].text().replace("#   - file", "")


PAGE = (Path(__file__).parents[4] / "docs/from-puppet.md").read_text()


def test_page_shows_the_module_and_its_draft(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output, draft = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("puppet", "console", "yaml")
    )
    files = dict(re.findall(r"# modules/greeter/(\S+)\n(.*?)(?=# modules/|\Z)", source, re.DOTALL))
    write(files, "modules/greeter")
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(cli, ["import", "puppet", "modules/greeter", "greeter"])

    assert result.output == output.partition("\n")[2]
    assert (tmp_path / "greeter/classes/greeter.yaml").read_text() == draft.partition("\n")[2]


def test_page_lists_each_type_of_the_table_with_its_counterpart() -> None:
    rows = re.findall(
        r"^\| (`.*?`[^|]*) \| (`[^|]+) \| [^|]+ \|$", PAGE.partition("## Types")[2], re.MULTILINE
    )
    types = {name: counterparts for names, counterparts in rows for name in re.findall(r"`([\w:]+)`", names)}
    for name, row in table()["types"].items():
        if "notes" in row:
            counterpart = row.get("type") or row.get("counterpart") or "setting"
            assert f"`{counterpart}`" in types[name], name


@pytest.mark.parametrize("name", ["accounts", "daemon", "webserver", "system", "fragments"])
def test_compared_module_is_mapped_completely(name: str, tmp_path: Path) -> None:
    module = Path(__file__).parents[3] / "cases/puppet" / name

    output = lint(module, tmp_path / "draft")

    assert "0 with a remark, 0 not mapped" in output
    assert " 0 errors, 0 warnings" in output


def test_several_keys_of_one_user_are_all_kept(write: Write, tmp_path: Path) -> None:
    key = "AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0Y"
    module = write(
        f"""
        class web {{
          user {{ 'ann': ensure => present }}
          Ssh_authorized_key {{ type => 'ssh-ed25519', user => 'ann', require => User['ann'] }}
          ssh_authorized_key {{ 'one': key => '{key}iN' }}
          ssh_authorized_key {{ 'two': key => '{key}iQ' }}
        }}
        """
    )

    assert "0 errors" in lint(module, tmp_path / "draft")
    text = draft_of(module).manifests["classes/web.yaml"].text()
    assert [line.split()[-1] for line in text.splitlines() if key in line] == ["one", "two"]


EXPRESSIONS = [
    ("['b', 'A', 'C'].sort", ["A", "C", "b"]),
    ("sprintf('%s|%5.1f', true, 2.25)", "true|  2.2"),
    ("unique(['a', 'A', 'a'])", ["a", "A"]),
    ("['a', 'a', 'b'] - ['b']", ["a", "a"]),
    ("difference(['a', 'a', 'b'], ['b'])", ["a", "a"]),
    ("delete(['a', 'b', 'a', 'b'], 'a')", ["b", "b"]),
    ('to_json({a => 1, b => ["é"]})', '{"a":1,"b":["é"]}'),
    ('chomp(" x \\n\\n")', " x \n"),
]
"""Expressions and their values in Puppet 7.23."""


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_function_has_the_result_of_puppet(write: Write, expression: str, expected: Any) -> None:
    draft = draft_of(write(f"class web {{ $x = {expression} file {{ '/x': content => $x }} }}"))

    assert resolve(data_of(draft)["web::x"], Names({})) == expected


DIFFERENCES = {
    "`^` and `$` of regular expressions": "if $facts['kernel'] =~ /^Linux$/ { file { '/x': ensure => file } }",
    "`split` of Puppet drops empty texts": "file { '/x': content => split($a, ',')[0] }",
    "Versions are compared": "if versioncmp($a, '2') > 0 { file { '/x': ensure => file } }",
    "A division has a whole number": "file { '/x': content => String(7 / 2) }",
    "`shell_escape` writes quotes": "file { '/x': content => shell_escape($a) }",
    "`sprintf` with `%s` expects": "file { '/x': content => sprintf('%s', $c[0]) }",
    "`join` expects a list of texts": "file { '/x': content => join($c, ',') }",
    "The types of parameters are not checked": "",
    "Defaults of resources in a class": "File { mode => '0600' } file { '/x': ensure => file }",
    "tries and try_sleep are not mapped": "exec { '/bin/true': tries => 3, try_sleep => 5 }",
    "A command fails if its `creates`": "exec { '/bin/touch /x': creates => '/x' }",
    "schedule is not mapped": "file { '/x': ensure => file, schedule => 'night' }",
    "stage is not mapped": "file { '/x': ensure => file, stage => 'pre' }",
    "alias is not mapped": "file { '/x': ensure => file, alias => 'x' }",
    "a variable noop is not mapped": "file { '/x': ensure => file, noop => $b }",
    "purge is not mapped": "file { '/x': ensure => directory, purge => true }",
    "ignore is not mapped": "file { '/x': ensure => directory, recurse => true, ignore => '.git' }",
    "recurselimit is not mapped": "file { '/x': ensure => directory, recurselimit => 1 }",
    "links is not mapped": "file { '/x': ensure => file, links => follow }",
    "By default, concat compares texts": "concat { '/x': }",
    "Puller ends each fragment": "concat { '/x': } concat::fragment { 'a': target => '/x', content => $a }",
    "warn is not mapped": "concat { '/x': warn => true }",
    "a variable replace is not mapped": "file { '/x': ensure => file, replace => $b }",
    "a variable force is not mapped": "file { '/x': ensure => link, target => '/y', force => $b }",
    "replace is not mapped: Puller replaces an": "concat { '/x': replace => false }",
    "the format json of fragments": "concat { '/x': format => 'json' }",
    "a variable source is not mapped": "package { 'x': source => $a }",
    "gpgcheck is not mapped": "yumrepo { 'x': baseurl => 'http://x/', gpgkey => 'file:///k', gpgcheck => 0 }",
    "the draft does not apply the class": "file { '/x': require => Class['web::other'] }",
    "can be applied without it": "file { '/x': require => File['/other'] }",
    "defaults in a branch": "if $b { File { mode => '0600' } }",
    "a refresh of apply#bundle:defines/web/job.yaml": "web::job { 'a': } file { '/x': notify => Web::Job['a'] }",
}
"""Parts of ``IMPORT.md`` and the bodies of classes that need them. Each draft would otherwise differ silently."""


@pytest.mark.parametrize(("sentence", "body"), DIFFERENCES.items())
def test_differences_to_puppet_are_stated(write: Write, sentence: str, body: str) -> None:
    module = write(
        {
            "manifests/init.pp": (
                f"class web (String $a = 'x', Boolean $b = true, Array $c = [], Array $unused = []) {{ {body} }}"
            ),
            "manifests/other.pp": "class web::other { file { '/other': ensure => file } }",
            "manifests/job.pp": "define web::job { exec { '/bin/true': refreshonly => true } }",
        }
    )

    assert sentence in draft_of(module).report()


CHOICES = {
    "manifests/init.pp": """
        class web (Optional[String] $text = undef, Optional[String] $issue = undef, String $name_of = 'web/b.epp') {
          if $text { $motd = $text } else { $motd = epp('web/a.epp') }
          if $issue { $banner = $issue } else { $banner = false }
          file { '/etc/motd': content => $motd, owner => 'root', group => 'root', mode => '0644' }
          if $motd { file { '/etc/on': content => epp($name_of) } }
          if $banner { file { '/etc/issue': content => $banner } }
        }
        """,
    "templates/a.epp": "A\n",
    "templates/b.epp": "B\n",
}


def test_templates_in_branches_become_one_expression(write: Write, tmp_path: Path) -> None:
    module = write(CHOICES)

    assert "0 errors" in lint(module, tmp_path / "draft")
    draft = draft_of(module)
    resources = resources_of(draft)
    text = "(data['web::text'] if data['web::text'] is not none else template('bundle:templates/web/a.j2'))"
    assert resources["file#/etc/motd"]["content"] == f"{{{{ {text} }}}}"
    assert resources["file#/etc/on"]["control"] == {"if": f"{text} is not none and {text} is not false"}
    assert resources["file#/etc/on"]["template"] == "bundle:templates/web/b.j2"
    assert resources["file#/etc/issue"]["content"] == "{{ data['web::banner'] }}"
    assert "The parameter web::name_of names a template" in draft.report()


def test_secret_template_takes_its_values_from_a_variable(write: Write) -> None:
    draft = draft_of(
        write(
            {
                "manifests/init.pp": """
                    class web (Integer $port = 80) {
                      $values = {'port' => $port}
                      file { '/x': content => Sensitive(epp('web/x.epp', $values)) }
                    }
                    """,
                "templates/x.epp": "<%- | Integer $port | -%>\n<%= $port %>\n",
            }
        )
    )

    properties = resources_of(draft)["file#/x"]
    assert properties["sensitive"] is True
    assert properties["data"] == {"port": "{{ data['web::port'] }}"}


def test_erb_tests_the_class_of_a_value(write: Write) -> None:
    module = write(
        {
            "manifests/init.pp": "class web (Array $names) { file { '/x': content => template('web/x.erb') } }",
            "templates/x.erb": "<% if @names.kind_of? Array -%>\n<%= @names.uniq().join(' ') %>\n<% end -%>\n",
        }
    )

    template = draft_of(module).files["templates/web/x.j2"].decode()
    names = {"web::names": ["b", "B", "b"]}
    engine = JinjaEngine(root=BundleFiles.of(module))
    assert engine.render("x.j2", template, Names({}).with_names({"data": names})) == "b B\n"


def test_parameters_from_a_mapping_keep_their_defaults(write: Write) -> None:
    draft = draft_of(
        write(
            {
                "manifests/init.pp": """
                    class web (Hash $sites = {}) {
                      $sites.each |$name, $site| { web::site { $name: port => 80, * => $site } }
                    }
                    """,
                "manifests/site.pp": "define web::site (Integer $port, String $root = '/srv', $mode = undef) { }",
            }
        )
    )

    assert resources_of(draft)["apply#bundle:defines/web/site.yaml"]["data"] == {
        "title": "{{ name }}",
        "port": 80,
        "root": (
            "{{ (site['root'] | default(none)) if (site['root'] | default(none)) is not none "
            "and (site['root'] | default(none)) != '' else '/srv' }}"
        ),
        "mode": "{{ site['mode'] | default(none) }}",
    }


def test_lookups_of_a_module_without_a_tree_get_one(write: Write, tmp_path: Path) -> None:
    module = write(
        """
        class web ($port = lookup('web::port', undef, undef, 80)) {
          $size = lookup('web::size', Integer, 'first', 7)
          file { '/x': content => lookup('x', { default_value => 'none' }), owner => 'root', mode => '0644' }
          file { '/y': content => "${size}" }
        }
        """
    )

    assert "0 errors" in lint(module, tmp_path / "draft")
    draft = draft_of(module)
    assert b"path: common.yaml" in draft.files["hiera.yaml"]
    assert resources_of(draft)["file#/x"]["content"] == "{{ hiera('x', default='none') }}"
    assert "The source has lookups, but no Hiera tree" in draft.report()
    assert "the lookup has the key of the variable" in draft.report()


@pytest.mark.parametrize(
    ("mode", "expected"), [("", "0644"), ("0640", "0640"), ("0755", "0755"), ("0600", "0600")]
)
def test_files_of_a_tree_get_no_execute(write: Write, tmp_path: Path, mode: str, expected: str) -> None:
    attributes = "ensure => directory, recurse => true, source => 'puppet:///modules/web/tree'"
    attributes += f", mode => '{mode}'" if mode else ""
    module = write(
        {"manifests/init.pp": f"class web {{ file {{ '/x': {attributes} }} }}", "files/tree/a": "a\n"}
    )

    assert " 0 errors, 0 warnings" in lint(module, tmp_path / "draft")
    assert resources_of(draft_of(module))["file#/x"]["mode"] == expected


def test_name_of_the_module_is_a_constant(write: Write, tmp_path: Path) -> None:
    module = write(
        {
            "manifests/init.pp": """
                class web {
                  file { '/x': content => template("${module_name}/x.erb") }
                  file { '/y': source => "puppet:///modules/${module_name}/y" }
                }
                """,
            "templates/x.erb": "x\n",
            "files/y": "y\n",
        }
    )

    assert " 0 errors, 0 warnings" in lint(module, tmp_path / "draft")
    resources = resources_of(draft_of(module))
    assert resources["file#/x"]["template"] == "bundle:templates/web/x.j2"
    assert resources["file#/y"]["source"] == "bundle:files/web/y"


def test_template_named_by_a_variable_has_all_candidates(write: Write, tmp_path: Path) -> None:
    module = write(
        {
            "manifests/init.pp": """
                class web (String $kind = 'small') {
                  file { '/x': content => template("web/${kind}.conf.erb") }
                }
                """,
            "templates/small.conf.erb": "small\n",
            "templates/large.conf.erb": "large\n",
            "templates/other.erb": "other\n",
        }
    )

    assert " 0 errors, 0 warnings" in lint(module, tmp_path / "draft")
    draft = draft_of(module)
    assert resources_of(draft)["file#/x"]["template"] == (
        "bundle:templates/web/{{ data['web::kind'] }}.conf.j2"
    )
    assert [path for path in draft.files if path.endswith(".j2")] == [
        "templates/web/large.conf.j2",
        "templates/web/small.conf.j2",
    ]


def test_guards_decide_about_a_refresh(write: Write) -> None:
    draft = draft_of(
        write(
            """
            class web {
              file { '/x': ensure => file }
              ~> exec { '/bin/a': unless => 'test -e /a' }
              exec { '/bin/b': refreshonly => true, subscribe => File['/x'] }
            }
            """
        )
    )

    resources = resources_of(draft)
    assert resources["exec#/bin/a"]["guard_refresh"] is True
    assert resources["exec#/bin/a"]["subscribe"] == ["file#/x"]
    assert "guard_refresh" not in resources["exec#/bin/b"]


def test_defaults_outside_of_classes_apply_everywhere(write: Write) -> None:
    draft = draft_of(
        write(
            {
                "manifests/site.pp": "Exec { path => '/opt/bin' } include web",
                "modules/web/manifests/init.pp": "class web { exec { 'true': } exec { 'x': path => '/bin' } }",
            },
            "site",
        )
    )

    resources = resources_of(draft)
    assert resources["exec#true"]["path"] == "/opt/bin"
    assert resources["exec#x"]["path"] == "/bin"


def test_directory_without_manifests_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither a module nor a control repository"):
        import_puppet(tmp_path, "x")


def test_encrypted_data_stay_encrypted_and_are_listed(write: Write) -> None:
    secret = "web::password: ENC[PKCS7,MIIBeQYJKoZIhvcNAQcDoIIBajCCAWYCAQAxggEhMIIBHQIBADAF]\n"
    draft = draft_of(
        write(
            {
                "manifests/init.pp": "class web (Sensitive[String] $password) { }",
                "hiera.yaml": "version: 5\nhierarchy:\n  - {name: common, path: common.yaml}\n",
                "data/common.yaml": secret,
            }
        )
    )

    assert draft.files["data/common.yaml"] == secret.encode()
    assert any("eyaml_private_key" in check for check in draft.checks)
