from tests.modal_loopback.fixture import modal_loopback

__all__ = ["modal_loopback"]
