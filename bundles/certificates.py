"""Which certificates are accepted: the same ones whatever the version of Python.

* Since 3.13 Python asks for all that RFC 5280 prescribes (``VERIFY_X509_STRICT``). Many private authorities were made
  without key usage, and their hosts would lose their site with an upgrade of the system. Names, dates, signatures and
  the chain are checked as before.
* Since 3.13 Python also accepts an authority that is not at the end of its chain (``VERIFY_X509_PARTIAL_CHAIN``).
"""

import ssl


def accept_alike(context: ssl.SSLContext) -> ssl.SSLContext:
    """Set the rules of all versions in a context, and return it."""
    flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags = ssl.VerifyFlags(flags)
    return context
