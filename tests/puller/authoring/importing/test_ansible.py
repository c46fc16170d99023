"""`puller import ansible`: short stories of a role, its draft, and the result of lint."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hiera.envelopes import create_key_pair
from hiera.eyaml import Decryptor
from hiera.parsing import load_yaml
from hiera.tree import psych
from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.draft import Draft, Outcome, document_text, scalar, write_draft
from puller.authoring.importing.reading import Secrets, SourceTree, VaultError, decrypt_vault
from puller.cli.command_table import cli
from puller.errors import SourceError
from puller.resources.edits.file_text import Text
from puller.resources.edits.lines import Line, LineProperties

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a role: files by path."""

    def write_role(files: Mapping[str, str], name: str = "web") -> Path:
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return tmp_path / name

    return write_role


def draft_of(role: Path) -> Draft:
    return import_ansible(role, role.name)


def resources_of(draft: Draft, path: str = "manifest.yaml") -> dict[str, Any]:
    """Return the properties of all active resources of a manifest, by reference."""
    manifest = load_yaml(draft.all_files()[path], path)
    result = {}
    for group in manifest["resources"]:
        for kind, entries in group.items():
            for entry in entries:
                item = dict(entry) if isinstance(entry, dict) else {entry: None}
                loop = item.pop("for", None)
                [(name, properties)] = item.items()
                result[f"{kind}#{name}"] = {**(properties or {}), **({"for": loop} if loop else {})}
    return result


def outcomes(draft: Draft) -> dict[str, Outcome]:
    return {remark.subject: remark.outcome for remark in draft.remarks}


def test_package_file_and_service_are_mapped(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - name: Packages
                  apt: {name: [nginx, curl], state: present, update_cache: true}
                - name: Configuration
                  ansible.builtin.template: {src: web.conf.j2, dest: /etc/web.conf, mode: 0640}
                  notify: Restart web
                - name: Service
                  service: {name: nginx, state: started, enabled: yes}
                """,
            "handlers/main.yml": "- {name: Restart web, service: {name: nginx, state: restarted}}\n",
            "templates/web.conf.j2": "port = {{ web_port }} on {{ ansible_os_family }}\n",
            "defaults/main.yml": "web_port: 80\n",
        }
    )

    draft = draft_of(role)

    assert resources_of(draft) == {
        "package#nginx": {"ensure": "present"},
        "package#curl": {"ensure": "present"},
        "file#/etc/web.conf": {
            "template": "templates/web.conf.j2",
            "interpolate": True,
            "owner": "root",
            "group": "root",
            "mode": "0640",
        },
        "service#nginx": {"ensure": "running", "enable": True, "subscribe": ["file#/etc/web.conf"]},
    }
    files = draft.all_files()
    assert files["templates/web.conf.j2"] == (role / "templates/web.conf.j2").read_bytes()
    assert load_yaml(files["data/common.yaml"], "") == {"web_port": 80}
    assert load_yaml(files["manifest.yaml"], "")["data"] == {"ansible_os_family": "{{ facts.os.family }}"}


def test_draft_passes_lint_and_its_test_cases(write: Write, tmp_path: Path) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - include_vars: "{{ ansible_os_family }}.yml"
                - package: {name: "{{ web_packages }}", state: present}
                - include_tasks: "setup-{{ ansible_facts['os_family'] }}.yml"
                - template: {src: "a.j2", dest: /etc/a.conf}
                """,
            "tasks/setup-Debian.yml": "- command: a2enmod ssl\n  args: {creates: /etc/apache2/ssl}\n",
            "vars/Debian.yml": "web_packages: [apache2]\n",
            "vars/RedHat.yml": "web_packages: [httpd]\n",
            "templates/a.j2": "# {{ ansible_managed }}\n{{ greeting }} {{ derived }} {{ web_packages | join(' ') }}\n",
            "defaults/main.yml": "greeting: hello\nderived: '{{ greeting }} x'\nupper: '{{ greeting | upper }}'\n",
            "meta/main.yml": "galaxy_info: {platforms: [{name: Debian}, {name: EL}]}\n",
        }
    )
    target = tmp_path / "draft"

    result = CliRunner().invoke(cli, ["import", "ansible", str(role), str(target)], standalone_mode=False)

    assert result.return_value == 0
    assert "0 errors, 0 warnings" in result.output
    assert "5 mapped, 0 with a remark, 0 not mapped" in result.output
    tested = CliRunner().invoke(cli, ["test", str(target)], standalone_mode=False)
    assert "3 cases: 3 passed" in tested.output
    assert (target / "data/os/Debian.yaml").read_text() == "web_packages: [apache2]\n"
    assert "derived: '%{lookup(\"greeting\")} x'" not in (target / "data/common.yaml").read_text()
    assert load_yaml((target / "data/common.yaml").read_text(), "")["derived"] == "%{lookup('greeting')} x"
    assert 'upper: "{{ data.greeting | upper }}"' in (target / "manifest.yaml").read_text()
    assert "control: {if: \"facts.os.family == 'Debian'\"}" in (target / "manifest.yaml").read_text()


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (
            "{service: {name: x, state: started}, when: other.rc == 0}",
            "depends on other, the result of the task at",
        ),
        ("{debug: {msg: x}}", ""),
        ("{file: {path: /x, state: absent}, delegate_to: db}", "delegate_to: a host changes only itself"),
        ("{copy: {content: \"{{ lookup('pipe', 'id') }}\", dest: /x}}", "uses lookup('pipe')"),
        ("{copy: {content: \"{{ hostvars['a'].b }}\", dest: /x}}", "contains other hosts"),
        ('{copy: {content: "{{ x | no_such }}", dest: /x}}', "the filter no_such"),
        ("{file: {path: /x, state: directory}, when: ansible_mounts | length > 1}", "reads the fact mounts"),
        ("{mysql_db: {name: x}}", "use an exec with a guard"),
        ("{no_such_module: {name: x}}", "lacks a type for the module no_such_module"),
        ("{copy: {src: missing.conf, dest: /x}}", "is not in files of the role"),
        ("{copy: {src: ../../../etc/passwd, dest: /x}}", "is outside of the role"),
        ("{file: {path: /x, state: directory}, tags: never}", "the tag never"),
    ],
)
def test_unmapped_task_stays_as_a_comment(write: Write, task: str, reason: str) -> None:
    before = "- {name: Query, shell: test -e /x | cat, register: other, ignore_errors: true}\n"
    role = write({"tasks/main.yml": f"{before}- {task}\n"})

    draft = draft_of(role)

    last = draft.remarks[-1]
    if not reason:
        assert last.outcome is Outcome.NO_CHANGE
        return
    assert last.outcome is Outcome.UNMAPPED
    assert reason in ". ".join(last.reasons)
    text = draft.all_files()["manifest.yaml"].decode()
    assert "# Not mapped: " in text
    assert "tasks/main.yml:2" in text
    assert "tasks/main.yml:2" in draft.report()


@pytest.mark.parametrize(
    ("when", "control"),
    [
        ("ansible_os_family == 'Debian'", "facts.os.family == 'Debian'"),
        ("ansible_facts['distribution'] == 'Ubuntu'", "facts.os.name == 'Ubuntu'"),
        (
            "ansible_facts.distribution_major_version | int >= 9",
            "(facts.os.release.major.split('.')[0]) | int >= 9",
        ),
        ("web_ssl | bool", "data.web_ssl | bool"),
        ("web_port is defined and web_port != 80", "data.web_port is defined and data.web_port != 80"),
        ("[web_a, web_b or web_c]", "data.web_a and (data.web_b or data.web_c)"),
        ("'web' in group_names", "'web' in lookup('facts.groups', [])"),
        ("ansible_default_ipv4.address == '192.0.2.1'", "facts.networking.ip == '192.0.2.1'"),
    ],
)
def test_conditions_become_control(write: Write, when: str, control: str) -> None:
    quoted = when if when.startswith("[") else f'"{when}"'
    role = write({"tasks/main.yml": f"- package: {{name: x}}\n  when: {quoted}\n"})

    assert resources_of(draft_of(role))["package#x"]["control"] == {"if": control}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("path: /bin/vim", {"path": "/bin/vim"}),
        ("path: /bin/vim, priority: 5", {"path": "/bin/vim"}),
        ("path: /bin/vim, link: /bin/vi", {"path": "/bin/vim", "link": "/bin/vi", "priority": 50}),
        ("path: /bin/vim, state: auto", {"auto": True}),
        (
            "path: /bin/vim, link: /bin/vi, priority: 5, state: auto",
            {"path": "/bin/vim", "link": "/bin/vi", "priority": 5, "auto": True},
        ),
        ("path: /bin/vim, state: absent", {"ensure": "absent"}),
    ],
)
def test_alternatives_keep_their_meaning(write: Write, arguments: str, expected: dict[str, Any]) -> None:
    role = write({"tasks/main.yml": f"- alternatives: {{name: editor, {arguments}}}\n"})

    assert resources_of(draft_of(role)) == {"alternative#editor": expected}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("rename: true", {}),
        ("divert: /bin/real", {"to": "/bin/real", "rename": False}),
        ("rename: true, holder: LOCAL", {}),
        ("rename: true, holder: app", {"package": "app"}),
        ("rename: true, state: absent, divert: /bin/real", {"ensure": "absent"}),
    ],
)
def test_diversions_keep_their_meaning(write: Write, arguments: str, expected: dict[str, Any]) -> None:
    role = write({"tasks/main.yml": f"- dpkg_divert: {{path: /bin/ping, {arguments}}}\n"})

    assert resources_of(draft_of(role)) == {"diversion#/bin/ping": expected}


UNIT = "copy: {content: x, dest: /etc/systemd/system/a.service, owner: root, group: root, mode: '0644'}"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (UNIT, {"unit#a.service": {"content": "x"}}),
        (
            "template: {src: a.service.j2, dest: /etc/systemd/system/}",
            {"unit#a.service": {"template": "templates/a.service.j2", "interpolate": True}},
        ),
        (
            "copy: {src: x.conf, dest: /etc/systemd/system/a.service.d/x.conf}",
            {"unit#a.service.d/x.conf": {"source": "files/x.conf"}},
        ),
        (UNIT.replace("0644", "0600"), {"file#/etc/systemd/system/a.service": None}),
        (UNIT.replace("a.service", "a.conf"), {"file#/etc/systemd/system/a.conf": None}),
        (UNIT.replace("owner: root", "owner: app"), {"file#/etc/systemd/system/a.service": None}),
        (
            UNIT.replace("content: x", "content: x, force: false"),
            {"file#/etc/systemd/system/a.service": None},
        ),
        (
            UNIT.replace("content: x", "content: x, validate: test %s"),
            {"file#/etc/systemd/system/a.service": None},
        ),
    ],
)
def test_files_of_systemd_become_units(write: Write, tasks: str, expected: dict[str, Any]) -> None:
    files = {"templates/a.service.j2": "x", "files/x.conf": "x"}
    resources = resources_of(draft_of(write({"tasks/main.yml": f"- {tasks}\n", **files})))

    assert list(resources) == list(expected)
    assert all(properties in (None, resources[name]) for name, properties in expected.items())


def test_creates_of_a_declared_file_is_not_checked_again(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - {name: Flush, command: app flush, args: {creates: /etc/app}}
                - {name: Make, command: app make, args: {creates: /var/lib/app}}
                - copy: {content: x, dest: /etc/app}
                """
        }
    )

    resources = resources_of(draft_of(role))

    assert resources["exec#Flush"] == {"command": "app flush", "creates": "/etc/app", "recheck": False}
    assert resources["exec#Make"] == {"command": "app make", "creates": "/var/lib/app"}


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("''", None),
        ("bookworm-backports", {"release": "bookworm-backports"}),
        ("'{{ x }}'", {"release": "{{ (data.x) or none }}"}),
    ],
)
def test_empty_release_of_a_package_is_the_default(
    write: Write, release: str, options: dict[str, str] | None
) -> None:
    role = write({"tasks/main.yml": f"- apt: {{name: a, default_release: {release}}}\n"})

    assert resources_of(draft_of(role))["package#a"].get("options") == options


def test_variables_with_an_unknown_condition_select_no_system(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - include_vars: "{{ ansible_os_family }}.yml"
                - {command: app --version, register: version, changed_when: false}
                - {include_vars: app-2.yml, when: version.stdout == '2'}
                """,
            "vars/Debian.yml": "a: 1\n",
            "vars/app-2.yml": "b: 1\n",
        }
    )

    draft = draft_of(role)

    assert [path for path in draft.files if path.startswith("data/os/")] == ["data/os/Debian.yaml"]
    assert outcomes(draft)["include_vars"] is Outcome.UNMAPPED


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("lineinfile: {path: /f, line: a, insertbefore: ^b}", "precedes the first match of insertbefore"),
        ("lineinfile: {path: /f, line: a, insertafter: ^b, firstmatch: true}", "firstmatch is not mapped"),
        ("lineinfile: {path: /f, line: a, regexp: ^a}", "A line that the file contains already is kept"),
        ("lineinfile: {path: /etc/hosts, line: 192.0.2.1 db}", "Lines of /etc/hosts are host entries"),
        ("blockinfile: {path: /f, block: a, insertbefore: ^b}", "precedes the first match of insertbefore"),
        ("blockinfile: {path: /f, block: a, append_newline: true}", "append_newline is not mapped"),
        ("ini_file: {path: /f, section: a, option: b, value: c}", "leaves a commented line of its key"),
        (
            "template: {src: t, dest: /f, trim_blocks: false}",
            "`#jinja2: trim_blocks: False` as the first line",
        ),
        ('template: {src: t, dest: /f, newline_sequence: "\\r\\n"}', "newline_sequence: "),
        ("template: {src: t, dest: /f}", "`ansible_managed` is 'Managed by Puller' in templates"),
        ("template: {src: t, dest: /f}", "Files without owner or group in the source belong to root"),
        ("template: {src: t, dest: /f}\n  changed_when: false\n  notify: x", "changed_when is not mapped"),
        (
            "unarchive: {src: 'https://example.com/a.tar.gz', dest: /srv, mode: '0755'}",
            "the mode is not mapped",
        ),
        ("git: {repo: 'https://example.com/a', dest: /srv/a, version: next}", "If next is a branch, add"),
        ("copy: {src: d/, dest: /srv/d, directory_mode: '0700'}", "directory_mode is not mapped"),
        ("cron: {name: a, job: 'date +%F'}", "`%` is a percent sign in the draft"),
        ("sysctl: {name: vm.swappiness, value: 1}", "are in /etc/sysctl.d/90-puller.conf"),
        ("sysctl: {name: vm.swappiness, value: 1, reload: false}", "Puller also sets the running value"),
        ("modprobe: {name: loop}", "Kernel modules are also loaded at boot"),
        (
            "apt_repository: {repo: 'deb [signed-by=/k] https://example.com a b'}",
            "Repositories are in NAME.sources",
        ),
        ("timezone: {name: UTC, hwclock: local}", "the hardware clock keeps its setting"),
        ("pip: {name: a, extra_args: --pre}", "the argument extra_args is not mapped"),
        ("known_hosts: {name: a, key: a ssh-rsa AA, hash_host: true}", "without a hash"),
        ("known_hosts: {name: a, key: '{{ app_key }}'}", "keys of the host with another type"),
        ("command: app fix\n  changed_when: false", "a query, by `changed_when: false`"),
        ("service: {name: a, enabled: true}", "The draft also starts it"),
        ("debconf: {name: a, question: b, vtype: string, value: c}", "Puller also installs the package"),
    ],
)
def test_approximation_is_named_in_the_report(write: Write, task: str, sentence: str) -> None:
    files = {"templates/t": "{{ ansible_managed }}", "files/d/x": "x"}

    assert sentence in draft_of(write({"tasks/main.yml": f"- {task}\n", **files})).report()


@pytest.mark.parametrize(
    ("task", "reference", "properties"),
    [
        ("user: {name: a, system: true}", "user#a", {"system": True, "manage_home": True}),
        ("user: {name: a, system: true, create_home: false}", "user#a", {"manage_home": False}),
        ("get_url: {url: 'https://example.com/a', dest: /f}", "file#/f", {"ensure": "exists"}),
        ("get_url: {url: 'https://example.com/a', dest: /f, force: true}", "file#/f", {"ensure": None}),
        (
            "lineinfile: {path: /etc/hosts, line: 192.0.2.1 db db1, regexp: '.*\\bdb\\b'}",
            "host_entry#db",
            {"address": "192.0.2.1", "aliases": ["db1"]},
        ),
        ("lineinfile: {path: /etc/hosts, line: 192.0.2.1 db, regexp: ^192}", "line#/etc/hosts: ^192", {}),
        (
            "lineinfile: {path: /etc/hosts, line: 127.0.0.1 localhost}",
            "line#/etc/hosts: 127.0.0.1 localhost",
            {},
        ),
        (
            "cron: {name: a, job: b, state: '{{ x }}'}",
            "cron#a",
            {"ensure": "{{ data.x }}", "schedule": "* * * * *", "command": "b"},
        ),
        (
            "known_hosts: {name: a.b, key: a.b ssh-rsa AA}",
            "line#/root/.ssh/known_hosts: a.b ssh-rsa",
            {"match": r"^(?:\S+,)?a\.b(?:,\S+)? ssh\-rsa ", "line": "a.b ssh-rsa AA"},
        ),
        (
            "lineinfile: {path: /f, line: a, regexp: ^a, state: '{{ x }}'}",
            "line#/f: ^a",
            {"ensure": "{{ data.x }}", "line": "a", "match": "^a"},
        ),
        (
            "known_hosts: {name: a.b, state: absent}",
            "line#/root/.ssh/known_hosts: a.b",
            {"ensure": "absent", "match": r"^(?:\S+,)?a\.b(?:,\S+)? "},
        ),
        ("template: {src: t, dest: /f, output_encoding: latin-1}", "file#/f", {"encoding": "latin-1"}),
    ],
)
def test_defaults_of_modules_are_kept(
    write: Write, task: str, reference: str, properties: dict[str, Any]
) -> None:
    role = write({"tasks/main.yml": f"- {task}\n", "templates/t": "x"})

    result = resources_of(draft_of(role))[reference]

    assert properties == {key: result.get(key) for key in properties}


@pytest.mark.parametrize(
    ("regexp", "replacement"),
    [
        ("^a=.*$", "a=1"),
        ("^a=", "b="),
        ("^#?(a)=", r"\1 = "),
        ("b=(x+)", r"c=<\1>"),
        ("(a)(=)", r"\g<1>\2\2"),
        ("^a|x$", "z"),
        ("(?i)X+", "y"),
        ("[#x]", ""),
    ],
)
@given(lines=st.lists(st.text("ab=x#", max_size=6), max_size=4))
def test_replaced_parts_of_lines_are_those_of_ansible(
    tmp_path_factory: pytest.TempPathFactory, regexp: str, replacement: str, lines: list[str]
) -> None:
    role = tmp_path_factory.mktemp("role")
    (role / "tasks").mkdir()
    (role / "tasks/main.yml").write_text(
        json.dumps([{"replace": {"path": "/f", "regexp": regexp, "replace": replacement}}])
    )
    [properties] = resources_of(draft_of(role)).values()
    assume(all(len(re.findall(regexp, line)) < 2 for line in lines))
    before = "".join(f"{line}\n" for line in lines)
    expected = re.sub(regexp, replacement, before, flags=re.MULTILINE)
    edited = Line.edit(msgspec.convert({"name": "a", **properties}, LineProperties), Text.of(before.encode()))

    assert (edited.text.data.decode() if edited else before) == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (r"regexp: '(a)\1', replace: b", "refers to its own groups"),
        (r"regexp: a, replace: '\g<0>b'", "refers to the complete match"),
        ("regexp: '{{ x }}', replace: b", "a pattern with expressions must start with ^"),
        (r"regexp: 'a\n', replace: b", "spans several lines"),
        ("regexp: ^a$, replace: ''", "leaves an empty line"),
        ("regexp: a, replace: b, after: c", "after and before are unsupported"),
    ],
)
def test_replacement_without_a_counterpart_is_not_mapped(write: Write, arguments: str, reason: str) -> None:
    role = write({"tasks/main.yml": f"- replace: {{path: /f, {arguments}}}\n"})

    [remark] = draft_of(role).remarks

    assert remark.outcome is Outcome.UNMAPPED
    assert reason in remark.reasons[0]


def test_handler_refers_to_names_of_children_by_label(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": "- {include_tasks: debian.yml, when: ansible_os_family == 'Debian'}\n",
            "tasks/debian.yml": "- {name: Site, copy: {content: x, dest: '{{ app_path }}/site'}, notify: Reload}\n",
            "handlers/main.yml": "- {name: Reload, command: app reload}\n",
        }
    )

    draft = draft_of(role)

    assert resources_of(draft)["exec#Reload"]["subscribe"] == ["label#site"]
    assert resources_of(draft, "debian.yaml")["file#{{ data.app_path }}/site"]["label"] == "site"


def test_unit_that_another_task_removes_stays_a_file(write: Write) -> None:
    removal = "{file: {path: /etc/systemd/system/a.service, state: absent}, when: not web_on}"
    role = write({"tasks/main.yml": f"- {UNIT}\n  when: web_on\n- {removal}\n"})

    assert list(resources_of(draft_of(role))) == ["file#/etc/systemd/system/a.service"]


def test_handler_subscribes_to_the_unit(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": f"- {UNIT}\n  notify: Restart\n- service: {{name: a, state: started}}\n",
            "handlers/main.yml": "- {name: Restart, systemd: {name: a, state: restarted, daemon_reload: true}}\n",
        }
    )

    draft = draft_of(role)

    assert resources_of(draft)["service#a"]["subscribe"] == ["unit#a.service"]
    assert "Files in /etc/systemd/system are units" in draft.report()


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("loop: [a, b]", "item in ['a', 'b']"),
        ("with_items: '{{ names }}'", "item in data.names"),
        ("with_items: ['{{ a }}', '{{ b }}']", "item in [data.a, data.b] | flatten"),
        ("with_dict: '{{ users }}'", "item in data.users | dict2items"),
        ("loop: '{{ users | dict2items }}'", "item in data.users | dict2items"),
        ("loop: '{{ names }}'\n  loop_control: {loop_var: name}", "name in data.names"),
    ],
)
def test_loops_become_for(write: Write, loop: str, expected: str) -> None:
    variable = expected.split()[0]
    role = write({"tasks/main.yml": f"- group: {{name: 'x{{{{ {variable} }}}}'}}\n  {loop}\n"})

    assert resources_of(draft_of(role))[f"group#x{{{{ {variable} }}}}"]["for"] == expected


def test_results_of_queries_become_guards(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - {name: Look, command: app status, register: app, changed_when: false, failed_when: false}
                - {name: Init, command: app init, when: app.rc != 0}
                - {stat: {path: /var/lib/app}, register: state}
                - {name: Seed, command: app seed, when: not state.stat.exists}
                - {name: Unit, copy: {content: x, dest: /etc/app}, register: unit}
                - {name: Reload, command: app reload, when: unit is changed}
                """
        }
    )

    resources = resources_of(draft_of(role))

    assert resources["exec#Init"] == {"command": "app init", "unless": "app status"}
    assert resources["exec#Seed"] == {"command": "app seed", "creates": "/var/lib/app"}
    assert resources["exec#Reload"] == {
        "command": "app reload",
        "refreshonly": True,
        "subscribe": ["file#/etc/app"],
    }


def test_set_fact_with_absent_variable_becomes_a_default(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - set_fact: {web_user: "{{ __web_user }}"}
                  when: web_user is not defined
                - set_fact: {web_home: /srv}
                - set_fact: {web_home: /opt}
                  when: ansible_os_family == 'RedHat'
                """,
            "vars/main.yml": "__web_user: www-data\n",
        }
    )

    manifest = load_yaml(draft_of(role).all_files()["manifest.yaml"], "")

    assert manifest["data"] == {
        "web_user": "{{ data.__web_user }}",
        "web_home": "{{ '/opt' if facts.os.family == 'RedHat' else '/srv' }}",
    }


def test_declarations_with_opposite_conditions_are_joined(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - {file: {path: /etc/x, state: touch, mode: "0600"}, when: web_on}
                - {file: {path: /etc/x, state: absent}, when: not web_on}
                """
        }
    )

    properties = resources_of(draft_of(role))["file#/etc/x"]

    assert properties["ensure"] == "{{ 'absent' if not data.web_on else 'exists' }}"
    assert properties["control"] == {"if": "(data.web_on) or (not data.web_on)"}
    assert properties["mode"] == "0600"


def test_long_list_becomes_data_of_its_manifest(write: Write) -> None:
    items = "".join(f"    - {{name: user{number}, shell: /bin/bash}}\n" for number in range(5))
    task = f"- name: Accounts\n  user: {{name: '{{{{ item.name }}}}', shell: '{{{{ item.shell }}}}'}}\n  loop:\n{items}"
    role = write({"tasks/main.yml": "- include_tasks: users.yml\n", "tasks/users.yml": task})

    files = draft_of(role).all_files()

    child = load_yaml(files["users.yaml"], "")
    assert [item["name"] for item in child["data"]["items_of_accounts"]] == [f"user{n}" for n in range(5)]
    assert child["resources"][0]["user"][0]["for"] == "item in data.items_of_accounts"
    assert "data" not in load_yaml(files["manifest.yaml"], "")


def test_variable_without_a_value_is_declared_as_null(write: Write) -> None:
    role = write(
        {
            "tasks/main.yml": """
                - copy: {content: "{{ web_secret }} {{ web_optional | default('x') }}", dest: /etc/x}
                """
        }
    )

    draft = draft_of(role)

    assert load_yaml(draft.all_files()["manifest.yaml"], "")["data"] == {"web_secret": None}
    assert "The source sets no value for the variable web_secret" in draft.report()


def test_repository_becomes_a_bundle_with_groups(write: Write) -> None:
    repository = write(
        {
            "site.yml": """
                - hosts: web
                  roles: [nginx, missing]
                - hosts: all
                  tasks: [{name: Tools, package: {name: curl}}]
                """,
            "roles/nginx/tasks/main.yml": "- package: {name: '{{ nginx_package }}'}\n",
            "roles/nginx/defaults/main.yml": "nginx_package: nginx\n",
            "group_vars/all.yml": "site: example\n",
            "group_vars/web.yml": "nginx_package: nginx-full\n",
            "host_vars/web01.yml": "nginx_package: nginx-light\n",
            "hosts": "[web]\nweb[01:02]\n[servers:children]\nweb\n",
        }
    )

    draft = draft_of(repository)
    files = draft.all_files()

    assert resources_of(draft) == {
        "apply#roles/nginx/manifest.yaml": {"control": {"if": "'web' in lookup('facts.groups', [])"}},
        "apply#play-1.yaml": {},
    }
    assert [level["name"] for level in load_yaml(files["hiera.yaml"], "")["hierarchy"]] == [
        *("host", "groups", "all hosts", "defaults"),
    ]
    assert load_yaml(files["data/groups/web.yaml"], "") == {"nginx_package": "nginx-full"}
    assert load_yaml(files["hosts/web02.yaml"], "") == {"groups": ["servers", "web"]}
    assert outcomes(draft)["missing"] is Outcome.UNMAPPED


def test_vault_values_are_left_out_and_listed(write: Write) -> None:
    secret = "$ANSIBLE_VAULT;1.1;AES256\n  6162\n"
    role = write({"tasks/main.yml": "[]\n", "defaults/main.yml": f"password: !vault |\n  {secret}"})

    draft = draft_of(role)

    assert not [path for path, content in draft.all_files().items() if b"ANSIBLE_VAULT" in content]
    assert "The variable password is encrypted by Vault" in draft.report()


# Both are from ansible-vault of ansible-core, with the password "pass".
VAULT_VALUE = """\
$ANSIBLE_VAULT;1.1;AES256
64336139376164346664373562356331643236333161353739363764633139323866323334303233
3261623064646633316630623735356366633632623466630a386163336465396333613435633537
62316562393038633762353733666166616565303035386535623461393832333365623133633733
3134373137363737380a356330393165663238396533303336646639303633363933363561383839
6533
"""
VAULT_FILE = """\
$ANSIBLE_VAULT;1.1;AES256
64613630623138613864343964346433653761326232376131663631666533396331633831623961
3439616330363030663166666630326530356234386364370a626665366430663030393961656333
62363039663061393433663965303235643737396439386561383430313763376662376131356438
3537626661666537360a633535363132313934303037366262636665663134356436663665323763
31343166663535626131366134373363626432663431336666306230363736333866353036386534
3535396133643833626363343830666435626266316334373164
"""


def vault_role(write: Write) -> Path:
    value = "".join(f"  {line}\n" for line in VAULT_VALUE.splitlines())
    return write(
        {
            "tasks/main.yml": "- copy: {content: '{{ token }} {{ db_password }}', dest: /etc/x}\n",
            "defaults/main.yml": f"token: !vault |\n{value}",
            "vars/main.yml": VAULT_FILE,
        }
    )


def test_vault_values_are_encrypted_for_the_certificate(write: Write, tmp_path: Path) -> None:
    role, target = vault_role(write), tmp_path / "draft"
    for path, content in zip(("key", "certificate"), create_key_pair(), strict=True):
        (tmp_path / path).write_bytes(content)
    (tmp_path / "password").write_text("pass\n")
    options = [
        "--vault-password-file",
        str(tmp_path / "password"),
        "--certificate",
        str(tmp_path / "certificate"),
    ]

    CliRunner().invoke(cli, ["import", "ansible", str(role), str(target), *options], standalone_mode=False)

    texts = [path.read_text() for path in target.rglob("*") if path.is_file()]
    assert not [text for text in texts if "hunter2" in text or "top secret" in text]
    decryptor = Decryptor((tmp_path / "key").read_bytes)
    common, variables = (
        load_yaml((target / f"data/{name}.yaml").read_text(), "") for name in ("common", "vars")
    )
    assert decryptor.decrypt(common["token"]) == "top secret"
    assert {key: decryptor.decrypt(value) for key, value in variables.items()} == {
        "db_password": "hunter2",
        "db_port": "5",
    }
    levels = load_yaml((target / "hiera.yaml").read_text(), "")["hierarchy"]
    assert {level["lookup_key"] for level in levels} == {"eyaml_lookup_key"}


def test_vault_with_a_wrong_password_is_left_out(write: Write) -> None:
    draft = import_ansible(vault_role(write), "web", Secrets(b"wrong", lambda text: text))

    assert "the password of the vault is wrong" in draft.report()
    assert not [path for path, content in draft.all_files().items() if b"ANSIBLE_VAULT" in content]


def test_vault_file_without_a_password_is_listed(write: Write) -> None:
    assert "vars/main.yml is encrypted by Vault" in draft_of(vault_role(write)).report()


def test_octal_modes_in_variables_stay_text(write: Write) -> None:
    role = write({"tasks/main.yml": "[]\n", "defaults/main.yml": "a: 0644\nb: 02770\nc: 10\n"})

    values = load_yaml(draft_of(role).all_files()["data/common.yaml"], "")

    assert values == {"a": "0644", "b": "02770", "c": 10}


def test_unsafe_text_keeps_its_braces(write: Write) -> None:
    role = write({"tasks/main.yml": "[]\n", "defaults/main.yml": "log: !unsafe '{{ x }} %{HOST}'\n"})

    files = draft_of(role).all_files()

    assert load_yaml(files["data/common.yaml"], "") == {"log": "{{ x }} %{literal('%')}{HOST}"}


def test_same_source_gives_the_same_bytes(write: Write) -> None:
    role = write({"tasks/main.yml": "- {package: {name: [b, a]}}\n", "defaults/main.yml": "b: 1\na: 2\n"})

    assert draft_of(role).all_files() == draft_of(role).all_files()


def test_used_directory_is_refused_and_unchanged(write: Write, tmp_path: Path) -> None:
    role = write({"tasks/main.yml": "[]\n"})
    target = tmp_path / "draft"
    target.mkdir()
    (target / "mine").write_text("mine")

    with pytest.raises(SourceError, match="exists already and is not empty"):
        CliRunner().invoke(
            cli, ["import", "ansible", str(role), str(target)], standalone_mode=False, catch_exceptions=False
        )
    assert os.listdir(target) == ["mine"]


def test_links_that_lead_outside_are_not_followed(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret of the machine")
    role = write({"tasks/main.yml": "- copy: {src: key, dest: /etc/key}\n", "files/other": "x"})
    (role / "files/key").symlink_to(tmp_path / "secret")
    (role / "templates").symlink_to(tmp_path)

    draft = draft_of(role)

    assert not [path for path, content in draft.all_files().items() if b"the secret" in content]
    assert "files/key is a link that leads outside" in draft.report()
    assert draft.remarks[0].outcome is Outcome.UNMAPPED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(f"c{n}: &c{n} [{'*b, ' * 900}]\n" for n in range(900)),
            "aliases",
        ),
        ("[" * 2000, "nested more than 100 deep"),
        ("- &a [*a]\n", "unknown alias"),
        ("a: 1\na: 2\n", "duplicate"),
        ("- !!python/object/apply:os.system [id]\n", "tag"),
        ("a: [\n", "did not find expected node content"),
    ],
    ids=["bomb", "deep", "recursion", "duplicate", "python", "syntax"],
)
def test_hostile_yaml_is_reported_and_loses_nothing(write: Write, text: str, reason: str) -> None:
    role = write({"tasks/main.yml": "- {package: {name: x}}\n", "defaults/main.yml": text})

    draft = draft_of(role)

    assert "package#x" in resources_of(draft)
    [remark] = [remark for remark in draft.remarks if remark.origin.file == "defaults/main.yml"]
    assert remark.outcome is Outcome.UNMAPPED
    assert reason in remark.reasons[0]


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "value",
    [
        "{% if a %}" * 5000 + "{% endif %}" * 5000,
        "{{ " + "(" * 4000 + "a" + ")" * 4000 + " }}",
        "{{ " + " + ".join(["a"] * 20_000) + " }}",
        "{{ a" + "['b']" * 900 + " }}",
        "{{ a }}" * 14_000,
        "{{ " + "not " * 1500 + "a }}",
    ],
    ids=["statements", "brackets", "sum", "steps", "expressions", "not"],
)
def test_hostile_expressions_end(write: Write, value: str) -> None:
    text = f'- copy: {{dest: /x, content: "{value}"}}\n- package: {{name: x}}\n'
    role = write({"tasks/main.yml": text, "defaults/main.yml": f'v: "{value}"\n', "templates/t": value})

    draft = draft_of(role)

    assert "package#x" in resources_of(draft)


def test_include_of_itself_ends(write: Write) -> None:
    role = write({"tasks/main.yml": "- include_tasks: a.yml\n", "tasks/a.yml": "- include_tasks: a.yml\n"})

    draft = draft_of(role)

    assert "the file includes itself" in draft.report()


def test_source_without_a_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"lacks tasks/main\.yml"):
        import_ansible(tmp_path, "x")


def test_written_draft_keeps_executable_files(write: Write, tmp_path: Path) -> None:
    role = write(
        {"tasks/main.yml": "- copy: {src: run, dest: /usr/local/bin/run}\n", "files/run": "#!/bin/sh\n"}
    )
    (role / "files/run").chmod(0o755)

    write_draft(draft_of(role), tmp_path / "draft")

    assert os.access(tmp_path / "draft/files/run", os.X_OK)
    assert not os.access(tmp_path / "draft/manifest.yaml", os.X_OK)


def test_example_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[4] / "docs/from-ansible.md").read_text()
    (role,) = re.findall(r"```yaml\n(# roles/greeter/tasks.*?)```", page, re.DOTALL)
    (draft,) = re.findall(r"```yaml\n# greeter/manifest.yaml of the draft\n(.*?)```", page, re.DOTALL)
    (session,) = re.findall(r"```console\n\$ (puller import ansible.*?)```", page, re.DOTALL)
    command, *output = session.splitlines()
    monkeypatch.chdir(tmp_path)
    for part in re.split(r"^(?=# roles/)", role, flags=re.MULTILINE)[1:]:
        file = Path(part.splitlines()[0].removeprefix("# "))
        file.parent.mkdir(parents=True)
        file.write_text(part)
    Path("roles/greeter/templates").mkdir()
    Path("roles/greeter/templates/greeter.conf.j2").write_text("x\n")

    result = CliRunner().invoke(cli, command.split()[1:], standalone_mode=False)

    assert result.output.splitlines() == output
    assert Path("greeter/manifest.yaml").read_text() == draft


@pytest.mark.parametrize("text", ["", "\n", "$ANSIBLE_VAULT;1.1;AES256", "$ANSIBLE_VAULT;1.1;AES256\nxyz"])
def test_damaged_vault_is_an_error_of_the_vault(text: str) -> None:
    with pytest.raises(VaultError):
        decrypt_vault(text, b"password")


def test_path_with_a_null_character_is_missing(tmp_path: Path) -> None:
    assert not SourceTree(tmp_path).is_file("a\0b")


def test_unreadable_directory_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    tree = SourceTree(tmp_path)

    assert list(tree.files("")) == []
    assert "permission denied" in tree.rejected[""]


@given(st.text(alphabet="0123456789:.-_+,=~eExobynft/ ", max_size=10))
@example("03:00")
@example("1:30:00")
@example("1,000")
@example(":word")
@example("2026-1-2")
def test_text_is_text_for_both_readers_of_yaml(text: str) -> None:
    document = document_text({"key": text, "list": [text]})

    assert load_yaml(document, "a.yaml") == {"key": text, "list": [text]}
    assert psych.load(document.encode(), "a.yaml") == {"key": text, "list": [text]}


@pytest.mark.parametrize("number", [1e16, 1e-07, -2e20, 1.5])
def test_numbers_stay_numbers(number: float) -> None:
    assert load_yaml(scalar(number), "a.yaml") == number


@pytest.mark.parametrize(
    "task",
    [
        "{apt: {name: {a: 1}}}",
        "{mount: {path: /m, state: []}}",
        "{block: [{apt: {name: x}}], vars: [1]}",
        "{apt: {name: x}, vars: text}",
    ],
)
def test_task_of_an_unknown_form_keeps_other_tasks(tmp_path: Path, task: str) -> None:
    directory = tmp_path / "role"
    (directory / "tasks").mkdir(parents=True)
    (directory / "meta").mkdir()
    (directory / "tasks/main.yml").write_text(f"- {task}\n- apt: {{name: nginx}}\n")
    (directory / "meta/main.yml").write_text("{dependencies: 5, galaxy_info: {platforms: true}}\n")

    manifest = import_ansible(directory, "role").all_files()["manifest.yaml"].decode()

    assert "- nginx" in manifest


@pytest.mark.parametrize("host", ["../../x", "a/b", "a\0b", f"{'x' * 300}", "web[1:2]/x"])
def test_host_with_an_invalid_name_is_left_out(tmp_path: Path, host: str) -> None:
    (tmp_path / "roles/web/tasks").mkdir(parents=True)
    (tmp_path / "roles/web/tasks/main.yml").write_text("- apt: {name: nginx}\n")
    (tmp_path / "hosts").write_text(f"[web]\ngood.example\n{host}\n")

    draft = import_ansible(tmp_path, "site")

    assert [path for path in draft.files if path.startswith("hosts/")] == ["hosts/good.example.yaml"]
    assert "of the inventory is left out" in draft.report()
