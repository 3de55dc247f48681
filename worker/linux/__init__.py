"""Linux features that Python's modules lack: openat2, process trees and the pipes of child processes."""
