"""Errors of Modal's client -> messages for the user, and whether trying again can help."""

from __future__ import annotations

import asyncio

from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

TOKEN = "`modal token new` makes a token"  # noqa: S105 - it is none
DEPLOY = "`orbit-lsp modal deploy` deploys this version's app"


@dataclass(frozen=True, slots=True)
class Trouble:
    """`kind` is auth, transport, infrastructure, timed out or version. `again`: soon may be better."""

    kind: str
    message: str
    remedy: str
    again: bool = False

    def failure(self) -> c.Failure:
        category: c.Outcome = "timed out" if self.kind == "timed out" else "infrastructure"
        return c.Failure(category, self.message, self.remedy, retryable=self.again)


class ModalError(Exception):
    """A `Trouble` on its way to the one who says it."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def trouble(error: BaseException) -> Trouble:
    """The most specific row that fits. Modal's own ConnectionError and TimeoutError are not Python's."""
    if isinstance(error, ModalError):
        return error.trouble
    try:
        from grpclib.exceptions import StreamTerminatedError
        from modal import exception as m
    except ImportError:
        return Trouble(
            "infrastructure", "the package modal is not installed", "install it: `pip install modal`"
        )
    message = _words(error)
    match error:
        case m.AuthError() if "Token missing" in message or "not found in" in message:
            return Trouble("auth", "there is no Modal token on this machine", TOKEN)
        case m.AuthError():
            return Trouble("auth", f"Modal does not accept the token: {message}", TOKEN)
        case m.PermissionDeniedError():
            return Trouble(
                "auth", f"Modal refuses this account: {message}", "`modal profile list` shows which is used"
            )
        case m.FunctionTimeoutError():
            return Trouble(
                "timed out",
                "Modal ended the run at the function's time limit",
                "raise the settings `orbit.build_timeout_s` and `orbit.run_timeout_s`",
            )
        case m.ConnectionError() | m.ServiceError() | m.ClientClosed() | OSError() | StreamTerminatedError():
            return Trouble(
                "transport", f"Modal cannot be reached: {message}", "check the network connection", again=True
            )
        case m.ResourceExhaustedError():
            return Trouble(
                "infrastructure", f"Modal has no free machine now: {message}",
                "run it again in a minute, or choose another GPU", again=True,
            )  # fmt: skip
        case m.NotFoundError():
            return Trouble("version", f"the app is not on Modal: {message}", DEPLOY)
        case m.UnimplementedError() | m.ExecutionError() | m.DeserializationError():
            return Trouble(
                "version", f"Modal's client and Modal's service do not fit together: {message}", DEPLOY
            )
        case m.ConflictError() | m.InternalError() | m.InternalFailure() | m.DataLossError():
            return Trouble(
                "infrastructure", f"Modal failed: {message}", "run it again; see also status.modal.com",
                again=True,
            )  # fmt: skip
        case m.InvalidError():
            return Trouble("infrastructure", f"Modal rejected the request: {message}", "see the log")
        case m.RemoteError():
            return Trouble(
                "infrastructure", f"the container failed: {message or 'it was ended'}",
                "run it again; `modal app logs` has its output", again=True,
            )  # fmt: skip
        case TimeoutError() | asyncio.TimeoutError():
            return Trouble(
                "transport", "Modal did not answer in time", "check the network connection", again=True
            )
        case _:
            return Trouble("infrastructure", f"{type(error).__name__}: {message}", "see the server's log")


def retryable(error: BaseException) -> bool:
    return isinstance(error, Exception) and trouble(error).again


def unreachable(error: BaseException) -> bool:
    return isinstance(error, Exception) and trouble(error).kind == "transport"


def _words(error: BaseException) -> str:
    """The error's first line: what follows is for a terminal."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
