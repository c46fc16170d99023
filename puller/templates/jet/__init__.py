"""The Jet template language: lexer, parser, and a compiler to closures."""
