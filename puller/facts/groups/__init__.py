"""Groups of built-in facts.

To add a fact, return it from the function of its group, and add its name to ``FACT_NAMES`` in ``fact_tree.py``. If
``anonymous.py`` should keep it in shared facts, add a rule there.
"""
