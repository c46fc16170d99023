"""Commands that apply single resources."""
