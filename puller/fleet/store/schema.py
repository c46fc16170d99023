"""The tables of the store. Times are seconds since 1970, UTC; lists and mappings are JSON.

* The last report of each host is kept whole; of earlier ones, for a time, those in which something happened.
* What holds for a while (the state of a host, the version of a bundle on it) is a row from its beginning to its end, so
  that a fleet in which nothing happens adds none.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

FORMAT = 3
"""Of the store; another one is refused."""

metadata = MetaData()
_NAME, _REFERENCE = String(255), Text

settings = Table(
    "settings",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

hosts = Table(
    "hosts",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), nullable=False),  # the last one
    Column("at", Double, nullable=False),  # when it had ended
    Column("condition", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("exit_status", Integer, nullable=False),
    Column("system", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("expires", Double),  # the first of the site's metadata
    Column("ahead", Double),  # seconds that its clock is before ours, when that is too far
    Column("facts", Text, nullable=False),
    Column("details", String(64), nullable=False),  # a digest of what the tables below have of it
    Column("document", LargeBinary, nullable=False),
)

standings = Table(  # the bundles of a host
    "standings",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("bundle", _NAME, primary_key=True),
    Column("channel", Text, nullable=False),
    Column("enforced", Text, nullable=False),
    Column("since", Double),
    Column("published", Text, nullable=False),
    Column("waits_until", Text, nullable=False),
    Column("good", Text, nullable=False),
    Column("held", Text, nullable=False),
    Column("pin", Text, nullable=False),
    Column("quarantined", Text, nullable=False),
    Index("standings_by_bundle", "bundle"),
)

failing = Table(  # what failed in the last run of a host
    "failing",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("key", String(32), primary_key=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("problem", Text, nullable=False),  # without the values of the host
    Column("example", Text, nullable=False),  # the problem of the host
    Column("since", Double, nullable=False),
    Index("failing_by_key", "key"),
)

restless = Table(  # resources of a host that change in run after run
    "restless",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("differences", Text, nullable=False),
)

runs = Table(  # in which something happened
    "runs",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("exit_status", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("counts", Text, nullable=False),
    Column("problems", Text, nullable=False),
)

events = Table(  # of those runs: resources that changed, failed or were skipped for a failure
    "events",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("resource", String(16), nullable=False),  # a digest of it, as an index has a bound
    Column("state", String(16), nullable=False),
    Column("problems", Text, nullable=False),
    Column("sentences", Text, nullable=False),
    Column("differences", Text, nullable=False),
    Index("events_by_resource", "resource", "at"),
)

periods = Table(  # a host in a condition, with a version of a bundle; without one: the host itself
    "periods",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("bundle", _NAME, primary_key=True),
    Column("began", Double, primary_key=True),
    Column("ended", Double),
    Column("version", Text, nullable=False),
    Column("condition", String(16), nullable=False),
    Index("periods_by_bundle", "bundle", "began"),
)

documents = Table(  # the files that were imported, as far as they are still where they were
    "documents",
    metadata,
    Column("source", String(1024), primary_key=True),
    Column("path", String(600), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("stamp", BigInteger, nullable=False),  # of its last change
    Column("refused", Text, nullable=False),  # why; empty when it was imported
    Column("reader", String(64), nullable=False),  # the version of Puller that has read it
    Column("at", Double, nullable=False),
)
