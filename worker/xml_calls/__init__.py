"""Tool calls as XML in the model's text, for models that cannot call tools natively.

``instruction.py`` tells the model how, ``finding.py`` says where in a reply calls stand, ``reading.py`` reads one,
``values.py`` gives its values their types, ``parser.py`` is all three in one; ``spelling.py`` writes calls and results.
"""
