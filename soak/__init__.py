"""Long tests that try to break kbtool: ``make soak``. ``make test`` runs a short form of each.

``base/`` is the knowledge base that they break. Every model of a record is in it, and no record
means anything: its runs are real ones, cut down, and their figures prove nothing.
"""
