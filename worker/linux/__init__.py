"""Linux features that Python's modules lack: process trees and the pipes of child processes."""
