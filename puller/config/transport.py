"""How the site is reached, as the configuration says: ``http`` of config.yaml, with its secrets read from their files.

* The site's credentials are for its own origin: another one, from which site data comes, is asked without them.
* A file with a secret that others may write is refused, as the configuration itself is.
"""

from bundles.transport.settings import TransportSettings
from hiera.values.secrets import Secret
from puller.config.configuration import Configuration, HttpOptions
from puller.errors import ConfigurationError, file_problem
from puller.system.trusted import find_trusted
from puller.version import __version__


def transport_settings(options: HttpOptions) -> TransportSettings:
    """How the site is reached; raises ``ConfigurationError`` for a file that cannot be read, or others may write."""
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
    """How any URL is reached; raises as ``transport_settings``."""
    from bundles.transport.location import origin_of

    settings = transport_settings(configuration.http)
    site = configuration.mirrors[0]
    is_own = not site.startswith("/") and origin_of(site) == origin_of(url)
    return settings if is_own else settings.without_credentials()


def _secret(path: str | None) -> Secret | None:
    if path is None:
        return None
    try:
        return Secret(find_trusted(path).read_text(encoding="utf-8").strip())
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
