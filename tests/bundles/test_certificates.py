"""All versions of Python accept the same certificates."""

import ssl
from collections.abc import Callable

import pytest

from bundles.transport.plain import make_context
from bundles.transport.settings import TransportSettings
from bundles.transport.web import Adapter, LimitedAdapter, session
from puller.checks import http


@pytest.fixture(params=[0, ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN], ids=["3.11", "3.13"])
def of_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulate the default context of a version of Python."""
    make = ssl.create_default_context

    def made(*arguments: object, **options: object) -> ssl.SSLContext:
        context = make(*arguments, **options)  # type: ignore[arg-type]  # as they come
        context.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_TRUSTED_FIRST | request.param)
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)
    monkeypatch.setattr("bundles.transport.web.create_urllib3_context", made)


CONTEXTS: dict[str, Callable[[], ssl.SSLContext]] = {
    "site": lambda: make_context(TransportSettings()),
    "health checks": lambda: http._context(None),
    "downloads": lambda: LimitedAdapter().poolmanager.connection_pool_kw["ssl_context"],
    "proxies": lambda: Adapter().proxy_manager_for("http://a:1").connection_pool_kw["ssl_context"],
    "messages": lambda: session().get_adapter("https://a/").poolmanager.connection_pool_kw["ssl_context"],  # type: ignore[attr-defined]
}


@pytest.mark.usefixtures("of_python")
@pytest.mark.parametrize("of", CONTEXTS)
def test_rules_do_not_depend_on_the_version_of_python(of: str) -> None:
    flags = CONTEXTS[of]().verify_flags
    assert not flags & ssl.VERIFY_X509_STRICT
    assert flags & ssl.VERIFY_X509_PARTIAL_CHAIN
