"""Packages with the libraries of extras: ``puller-fleet`` and ``puller-s3``.

* They are separate from the agent's package, because most hosts need neither, and ``puller-fleet`` is larger than it.
* A package contains only files, in ``/usr/lib/NAME/python3.11``, with byte code. It needs no scripts, and the installed
  versions of the agent share it. The agent lists these directories in ``extensions.pth``, after its own modules.
* The lock of an addition omits the libraries of the agent's lock. ``pip check`` compares both together.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Addition:
    """A package with the libraries of extras. ``libraries`` are shared libraries that its modules need.

    ``services`` are the services of AWS whose descriptions it contains. Without the other 400, botocore has a fifth of
    its size.
    """

    name: str
    lock: str
    summary: str
    description: str
    debian_libraries: str = ""
    rpm_libraries: str = ""
    services: tuple[str, ...] = ()

    def directory(self, python: str) -> str:
        """Return the installed directory of the modules, without a leading slash."""
        return f"usr/lib/{self.name}/python{python}"


ADDITIONS = (
    Addition(
        "puller-fleet",
        "requirements-fleet.lock",
        "libraries for the fleet store and the fleet pages of Puller",
        "The libraries that the commands of `puller fleet` and `puller site watch` need: SQLAlchemy, the driver of "
        "PostgreSQL, and Matplotlib for the pages.",
        debian_libraries="libstdc++6",
        rpm_libraries="libstdc++",
    ),
    Addition(
        "puller-s3",
        "requirements-s3.lock",
        "library for sites and reports of Puller in object stores",
        "The library that Puller needs to push a site to an object store, to send reports to it and to read reports "
        "from it: boto3, with the services S3, STS, SSO and KMS only.",
        services=("kms", "s3", "signin", "sso", "sso-oidc", "sts"),
    ),
)
