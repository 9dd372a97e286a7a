"""Rules over records. Each rule is a generator, and its docstring states the rule.

Rules in ``record_rules``, ``run_rules``, ``text_rules`` and ``prose_rules`` see one file. Rules in
``rules/`` see relations between files, one module per subject. ``check`` runs all of them.
"""
