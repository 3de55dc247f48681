"""The tools: their contract is ``base.py``, and ``builtin.py`` lists those that every worker has."""
