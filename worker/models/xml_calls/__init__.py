"""Tool calls as XML in the model's text, for models that cannot call tools natively."""
