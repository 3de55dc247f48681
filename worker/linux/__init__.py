"""What Linux offers beyond Python's own modules: openat2, process trees and the pipes of child processes."""
