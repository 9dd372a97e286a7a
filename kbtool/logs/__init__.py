"""Draft the record of a session from a report that somebody wrote in prose and tables.

``blocks`` splits the text into lines that know their headings, ``figures`` and ``clock`` find
figures, dates and times in a line, ``head``, ``tables``, ``bugs``, ``commits``, ``plans`` and
``sections`` place what stands under a heading, ``claims`` takes the figures left over, ``draft``
puts the record together, and ``take_in`` checks and writes it. Everything but ``take_in`` is a
function of the text alone. What no rule places is listed: nothing is guessed.
"""
