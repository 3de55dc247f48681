"""The sandbox in which commands run: isolated, and without processes left behind."""
