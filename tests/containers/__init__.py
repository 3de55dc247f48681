"""The containers of compose and of Kubernetes without an engine, and the programs that their images have."""
