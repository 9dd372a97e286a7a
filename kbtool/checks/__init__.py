"""Rules over records: one generator a rule, its docstring the rule.

``record_rules``, ``run_rules``, ``text_rules`` and ``prose_rules`` see one file; ``rules/`` sees
what all files say of each other, by subject. ``check`` runs them and returns every finding.
"""
