"""Regular expressions with the syntax and the promise of RE2: matching takes time linear in the text."""
