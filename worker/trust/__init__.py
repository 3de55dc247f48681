"""Where the words of a conversation come from."""
