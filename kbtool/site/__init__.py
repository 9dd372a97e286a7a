"""Records become pages: one pure function from a knowledge base to Markdown, and its drivers.

``pages`` is pure; ``tree`` writes what it returns; ``html`` lays that out, by mkdocs or Zensical.
Whatever stands in a record is data: it passes through ``escape`` before it reaches a page.
"""
