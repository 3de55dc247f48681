"""Skills: directories with instructions for one kind of task, loaded once and used on demand."""
