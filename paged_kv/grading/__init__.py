"""Grading of a class's notebooks: ``paged-kv grade``.

A notebook is read (``notebook``), and the definitions that its exercise asks for are
collected (``statements``, ``collect``) and checked criterion by criterion by a process
of its own (``worker``), within limits (``limits``). ``run`` starts those processes,
several at a time, and ``grade`` holds what they say; ``table`` and ``page`` write it as
CSV and HTML.
"""
