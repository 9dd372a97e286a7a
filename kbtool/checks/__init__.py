"""Rules over records: one generator a rule, its docstring the rule.

``record_rules`` sees one file, ``tree_rules`` sees what all files say of each other. ``check`` runs
both and returns every finding.
"""
