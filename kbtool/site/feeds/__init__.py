"""What programs read: the JSON of each page, the Atom feed, ``llms.txt``."""
