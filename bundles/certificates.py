"""Rules for certificates, identical for all versions of Python.

* Python 3.13 and later requires everything that RFC 5280 prescribes (``VERIFY_X509_STRICT``). Many certificates of
  private authorities lack key usage, and their hosts would lose their site with an upgrade of the system. Names, dates,
  signatures and the chain are still checked.
* Python 3.13 and later also accepts an authority that is not at the end of its chain (``VERIFY_X509_PARTIAL_CHAIN``).
"""

import ssl


def accept_alike(context: ssl.SSLContext) -> ssl.SSLContext:
    """Set these rules in a context, and return it."""
    flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags = ssl.VerifyFlags(flags)
    return context
