"""The JSON Schemas of tools: bounds for foreign ones, and validation against them."""
