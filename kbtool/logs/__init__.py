"""Draft the record of a session from a report that somebody wrote in prose and tables.

``blocks`` splits the text into lines that know their headings, ``figures`` and ``clock`` find
figures, dates and times in a line, ``sections`` places what stands under a heading, ``draft`` puts
the record together, and ``take_in`` checks and writes it. Everything but ``take_in`` is a function
of the text alone. What no rule places is listed: nothing is guessed.
"""
