"""Tool calls as XML in the model's text, for models without native tool calls."""
