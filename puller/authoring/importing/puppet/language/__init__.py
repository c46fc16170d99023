"""The Puppet language: its tokens, its grammar and its syntax tree."""
