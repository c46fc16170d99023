"""Go's ``text/template`` with Sprig's functions: lexer, parser, compiler to closures, and the functions."""
