"""Modal's control plane on this machine, for the unmodified client. See README.md."""

from tests.modal_loopback.loopback import Loopback

__all__ = ["Loopback"]
