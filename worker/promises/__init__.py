"""The promises about security, tried on this machine, for ``deputize doctor``."""
