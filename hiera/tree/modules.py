"""Which directory holds a module: the module path of an environment."""

import posixpath
import re

from hiera.tree.config.documents import Documents, Kind, join

# Where Puppet itself looks last; directories that are not there do no harm.
BASE = ("/etc/puppetlabs/code/modules", "/opt/puppetlabs/puppet/modules")


def module_path(environment: str, documents: Documents) -> list[str]:
    """The directories that hold modules: ``modulepath`` of ``environment.conf``, or ``modules``."""
    config = posixpath.join(environment, "environment.conf")
    if documents.kind(config) is Kind.FILE:
        text = documents.read(config).decode(errors="replace")
        found = re.search(r"^\s*modulepath\s*=\s*(.*?)\s*$", text, re.MULTILINE)
        if found:
            said = found[1]
            if len(said) > 1 and said[0] == said[-1] and said[0] in "'\"":
                said = said[1:-1]
            return [path for part in said.split(":") for path in _directories(part, environment)]
    return [posixpath.join(environment, "modules"), *BASE]


def _directories(part: str, environment: str) -> list[str]:
    if part.strip() in ("$basemodulepath", "${basemodulepath}"):
        return list(BASE)
    known = {"environment": posixpath.basename(environment), "codedir": "/etc/puppetlabs/code"}
    part = re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], found[0]), part.strip())
    return [join(environment, part)] if part else []


def find(name: str, path: list[str], documents: Documents) -> str | None:
    """The directory of the module ``name``, in the first part of ``path`` that has one."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return None
    candidates = (posixpath.join(directory, name) for directory in path)
    return next((found for found in candidates if documents.kind(found) is Kind.DIRECTORY), None)
