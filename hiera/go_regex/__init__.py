"""Regular expressions with the syntax of RE2: matching takes linear time in the length of the text."""
