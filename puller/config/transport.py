"""Transport settings from ``http`` of config.yaml, with secrets from their files.

* The site's credentials are sent only to its own origin. Other servers, for site data and reports, never get them.
* A file with a secret that others may write is rejected, like the configuration itself.
"""

from typing import Any

import msgspec

from bundles.transport.settings import TransportSettings, origin_of, require_files
from hiera.values import Secret
from puller.config.configuration import Configuration, HttpOptions
from puller.config.report_destinations import DestinationOptions
from puller.errors import ConfigurationError, file_problem
from puller.system.trusted_files import find_trusted
from puller.version import __version__


def transport_settings(options: HttpOptions) -> TransportSettings:
    """Return the settings for the site. Raise ``ConfigurationError`` for an unreadable or unsafe file."""
    token = _secret(options.token_file)
    password = _secret(options.password_file) or options.password
    try:
        return TransportSettings(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            total_timeout=options.total_timeout,
            retries=options.retries,
            proxy=options.proxy,
            ca_bundle=options.ca_bundle and str(find_trusted(options.ca_bundle)),
            client_cert=options.client_certificate,
            client_key=options.client_key,
            username=options.username,
            password=password,
            token=token,
            headers=options.headers,
            user_agent=f"puller/{__version__}",
        )
    except ValueError as error:
        raise ConfigurationError(f"http: {error}") from error


def settings_for(configuration: Configuration, url: str) -> TransportSettings:
    """Return the settings for any URL. Raise the errors of ``transport_settings``."""
    settings = transport_settings(configuration.http)
    return settings if _is_of_site(configuration, url) else settings.without_credentials()


def settings_for_destination(
    configuration: Configuration, destination: DestinationOptions
) -> TransportSettings:
    """Return the settings for a destination of reports. Raise the errors of ``transport_settings``.

    Missing settings default to those of the site. Its credentials are used only for destinations at the site's origin
    without own credentials.
    """
    provided, http = destination.given(), configuration.http
    if provided & _CREDENTIALS.keys() or not _is_of_site(configuration, destination.location):
        http = msgspec.structs.replace(http, **_CREDENTIALS)
    own = {name: getattr(destination, name) for name in provided}
    return transport_settings(msgspec.structs.replace(http, **own))


_CREDENTIALS: dict[str, Any] = {
    "client_certificate": None,
    "client_key": None,
    "username": None,
    "password": None,
    "password_file": None,
    "token_file": None,
    "headers": {},
}


def _is_of_site(configuration: Configuration, url: str) -> bool:
    site = configuration.mirrors[0]
    return not site.startswith("/") and origin_of(site) == origin_of(url)


def _secret(path: str | None) -> Secret | None:
    if path is None:
        return None
    try:
        return Secret(find_trusted(path).read_text(encoding="utf-8").strip())
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None


def verify_files(settings: TransportSettings) -> None:
    """Raise for a file of the settings that cannot be read, or that OpenSSL rejects."""
    require_files(settings)
    if settings.ca_bundle or settings.client_cert:
        _verify_certificates(settings.ca_bundle, settings.client_cert, settings.client_key)


def _verify_certificates(ca_bundle: str | None, certificate: str | None, key: str | None) -> None:
    import ssl  # 2 % of an idle run, which needs it without TLS settings later or not at all

    context = ssl.create_default_context()
    try:
        if ca_bundle:
            named = "ca_bundle"
            context.load_verify_locations(ca_bundle)
        if certificate:
            named = "client_certificate"
            context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise ValueError(f"{named}: {ca_bundle if named == 'ca_bundle' else certificate}: {why}") from None
