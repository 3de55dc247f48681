"""Texts as tools handle them: decoding, numbering, finding, replacing, comparing."""
