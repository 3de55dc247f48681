"""The containers of compose and of Kubernetes without an engine, and the programs that their images have.

`make containers` (``__main__.py``) runs what is shipped on a real engine (``engine.py``).
"""
