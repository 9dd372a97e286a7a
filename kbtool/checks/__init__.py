"""Rules over records: one generator a rule, its docstring the rule."""
