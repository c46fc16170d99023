"""Sprig's functions beyond the table of cases: names, laziness, hostile arguments, random results."""

import base64
import importlib
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from puller.templates.gotemplate.go_engine import GoEngine
from puller.templates.gotemplate.go_functions import BUILTIN_FUNCTIONS as BUILTINS
from puller.templates.gotemplate.go_functions import find_function
from puller.templates.gotemplate.sprig import GROUP_OF
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, FunctionError, Limits, TemplateError
from tests.support.rows import each_row

SLOW = {
    "bcrypt",
    "derivePassword",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htpasswd",
}


def render(text: str, **data: Any) -> str:
    return GoEngine().compile("t", text).render(TemplateScope(data=data))


# Names ---------------------------------------------------------------------------------------------------------------


@each_row("group", sorted(set(GROUP_OF.values())))
def test_each_group_has_the_functions_that_the_table_says(group: str) -> None:
    functions = importlib.import_module(f"puller.templates.gotemplate.sprig.{group}").FUNCTIONS
    assert sorted(functions) == sorted(name for name, of in GROUP_OF.items() if of == group)


def test_every_function_has_a_signature_of_go() -> None:
    assert len(GROUP_OF) == 211
    for name in (*GROUP_OF, *BUILTINS):
        assert find_function(name).signature.fixed is not None


# Hostile arguments ---------------------------------------------------------------------------------------------------

ARGUMENTS = st.sampled_from(
    [
        *(
            ".data.l",
            ".data.m",
            ".data.s",
            ".data.n",
            ".data.f",
            ".data.nope",
            ".data.u",
            ".",
            "$",
            ".data.big",
        ),
        *("nil", "1", "-1", "0", "1.5", "1e308", "true", "1i", "'a'", "9223372036854775807", "100000"),
        *(
            '"a"',
            '""',
            '"a,b"',
            '"2006-01-02"',
            '"[a-"',
            '"(a|b)*"',
            '"1.2.3"',
            '">=1"',
            '"%s %d"',
            '"{\\"a\\":1}"',
        ),
        *('"é\\xff"', '"http://a:b@c/d?e#f"', '"Europe/Berlin"', '"../../etc/passwd"', '"-1h"', '"inf"'),
        *(
            "(list)",
            "(dict)",
            '(list 1 "a" nil)',
            "(add 1 2)",
            "(until 5)",
            '(split "," "a")',
            "now",
            "(rest list)",
        ),
        *('(semver "1.2.3")', '(splitList "," "a,b")', "(float64 1)", '(toDate "2006" "2000")'),
    ]
)
DATA = {
    "l": [1, 2.5, "x"],
    "m": {"a": {"b": None}},
    "s": "abc",
    "n": 5,
    "f": 0.1,
    "u": "Straße\udcff",
    "big": "x" * 5000,
}


@pytest.mark.parametrize("name", sorted({*GROUP_OF, *BUILTINS} - SLOW))
@pytest.mark.representatives(60)
@given(st.lists(ARGUMENTS, max_size=4), ARGUMENTS, st.booleans())
@settings(max_examples=settings().max_examples // 5)  # there are hundreds of functions
def test_functions_raise_template_errors_only(
    name: str, arguments: list[str], last: str, is_piped: bool
) -> None:
    call = f"{last} | {name} {' '.join(arguments)}" if is_piped else f"{name} {' '.join([*arguments, last])}"
    try:
        template = GoEngine().compile("t", f"{{{{ {call} }}}}")
        template.render(TemplateScope(data=DATA), budget=Budget(Limits(seconds=5)))
    except TemplateError as error:
        cause = error.__cause__
        assert cause is None or isinstance(cause, FunctionError | ValueError), repr(cause)


# Random and secret values --------------------------------------------------------------------------------------------


@each_row(
    ("call", "pattern"),
    [
        ("randAlphaNum 20", r"[A-Za-z0-9]{20}"),
        ("randAlpha 20", r"[A-Za-z]{20}"),
        ("randNumeric 20", r"[0-9]{20}"),
        ("randAscii 20", r"[ -~]{20}"),
        ("randAlpha 0", r""),
        ("randBytes 15", r"[A-Za-z0-9+/]{20}"),
        ("randInt 5 7", r"[56]"),
        ("uuidv4", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        ('shuffle "aab"', r"aab|aba|baa"),
        ('bcrypt "secret"', r"\$2a\$10\$[./A-Za-z0-9]{53}"),
        ('htpasswd "ann" "secret"', r"ann:\$2a\$10\$[./A-Za-z0-9]{53}"),
        ('htpasswd "a:b" "secret"', r"invalid username: a:b"),
        ('bcrypt (repeat 73 "x")', r"failed to encrypt string with bcrypt: .*"),
        ('genPrivateKey "nope"', r"Unknown type nope"),
    ],
)
def test_random_results_have_their_shape(call: str, pattern: str) -> None:
    import re

    assert re.fullmatch(pattern, render(f"{{{{ {call} }}}}"))


def test_two_random_results_differ() -> None:
    first, second = render("{{ randAlphaNum 30 }} {{ randAlphaNum 30 }}").split()
    assert first != second


def test_encrypted_text_decrypts_with_its_password_only() -> None:
    encrypted = render('{{ encryptAES "secret" "text: é" }}')
    assert render('{{ decryptAES "secret" .data.e }}', e=encrypted) == "text: é"
    assert len(base64.b64decode(encrypted)) == 32
    damaged = base64.b64encode(base64.b64decode(encrypted)[:-16]).decode()
    for wrong in (damaged, "###", "AAAA"):
        with pytest.raises(TemplateError, match="the encrypted text"):
            render('{{ decryptAES "secret" .data.e }}', e=wrong)


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        ("ecdsa", "EC PRIVATE KEY"),
        ("ed25519", "PRIVATE KEY"),
        pytest.param("dsa", "DSA PRIVATE KEY", marks=pytest.mark.everything),
    ],
)
def test_a_private_key_is_one(kind: str, header: str) -> None:
    text = render("{{ genPrivateKey .data.kind }}", kind=kind)
    assert text.startswith(f"-----BEGIN {header}-----\n")
    serialization.load_pem_private_key(text.encode(), password=None)


def test_a_certificate_is_signed_by_its_authority() -> None:
    text = render(
        '{{ $key := genPrivateKey "ed25519" }}{{ $ca := genCAWithKey "ca" 100 (genPrivateKey "ecdsa") }}'
        '{{ $c := genSignedCertWithKey "web" (list "10.0.0.1") (list "web.example" "w") 30 $ca $key }}'
        "{{ $ca.Cert }}|{{ $c.Cert }}|{{ (buildCustomCert (b64enc $c.Cert) (b64enc $c.Key)).Key }}"
    )
    authority, certificate = (x509.load_pem_x509_certificate(part.encode()) for part in text.split("|")[:2])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["web.example", "w"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(days=30)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert text.split("|")[2].startswith("-----BEGIN PRIVATE KEY-----")


@each_row(
    ("call", "message"),
    [
        ('genCAWithKey "ca" 1 "no key"', "parsing private key"),
        (
            'genSelfSignedCertWithKey "a" (list "nope") nil 1 (genPrivateKey "ecdsa")',
            "does not appear to be an IPv4",
        ),
        ('genSelfSignedCertWithKey "a" (list 5) nil 1 (genPrivateKey "ecdsa")', "is not a string"),
        (
            'genSelfSignedCertWithKey "a" nil nil 1000000 (genPrivateKey "ecdsa")',
            "1000000 days are more than",
        ),
        ('buildCustomCert "?" "?"', "unable to decode base64"),
        ('buildCustomCert (b64enc "x") (b64enc "y")', "error parsing certificate"),
        (
            'genSignedCert "a" nil nil 1 (dict "Cert" "x")',
            "expected sprig.certificate; got map[string]interface {}",
        ),
    ],
)
def test_a_certificate_that_cannot_be_made_is_an_error(call: str, message: str) -> None:
    with pytest.raises(TemplateError) as failed:
        render(f"{{{{ {call} }}}}")
    assert message in str(failed.value)


def test_now_is_now() -> None:
    assert render(
        '{{ ago now }} {{ lt (now.Sub (toDate "2006" "2000")).Hours 1e9 }} {{ date "2006" 5.5 | len }}'
    ) == ("0s true 4")
