"""Build every notebook of the course from its master (see ``course/README.md``).

``master`` reads a master; ``languages``, ``prose`` and ``solution`` make and judge its
two languages and its solution regions; ``notebook`` assembles the copies; ``execute``
and ``outputs`` run and clean them; ``links``, ``stored`` and ``spelling`` judge what is
committed.
"""
