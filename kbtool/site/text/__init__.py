"""Texts that people wrote, as Markdown of a page: links, terms, mathematics, drawings."""
