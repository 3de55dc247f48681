"""Skills: folders that tell how a specific kind of work is done, loaded once and handed out on demand."""
