"""Turns errors of Modal's client into messages for the user, and says whether trying again can help."""

from __future__ import annotations

import re
import sys

from orbit_lsp.runners.modal import account
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing

_NEWER = f"`{installing.installer(sys.executable)} --upgrade modal`"
_PROFILES = f"`{account.client('profile list')}`"
DEPLOY = installing.located("`orbit-lsp modal deploy` deploys this version's app")
REPORT = "report it, with the server's log"
IMAGE = (
    "check the settings `orbit.modal.pip` and `orbit.modal.apt`, which add packages to the image, and the torch and triton "
    "of the Python that `orbit.python` names"
)


@dataclass(frozen=True, slots=True)
class ModalTrouble:
    """A trouble with Modal. `kind` is auth, transport, infrastructure, timed out or version. `again`: another try may
    soon succeed.
    """

    kind: str
    message: str
    remedy: str
    again: bool = False

    def failure(self) -> c.Failure:
        category: c.Outcome = "timed out" if self.kind == "timed out" else "infrastructure"
        return c.Failure(category, self.message, self.remedy, retryable=self.again)


class ModalError(Exception):
    """Carries a `ModalTrouble` to the caller that reports it."""

    def __init__(self, trouble: ModalTrouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def not_installed() -> ModalTrouble:
    install = installing.command(sys.executable, "modal")
    return ModalTrouble("infrastructure", "the package modal is not installed", f"install it: `{install}`")


def trouble(error: BaseException) -> ModalTrouble:
    """Return the trouble of an error: a known sentence of Modal's service first, then the most specific class that
    fits. Modal's own ConnectionError and TimeoutError are not Python's.
    """
    if isinstance(error, ModalError):
        return error.trouble
    try:
        from grpclib.exceptions import StreamTerminatedError
        from modal import exception as m
    except ImportError:
        return not_installed()
    message = _words(error)
    refused = m.ResourceExhaustedError | m.PermissionDeniedError | m.InvalidError
    if isinstance(error, refused) and (known := _known(message)):
        return known
    match error:
        case m.AuthError() if "Token missing" in message or "not found in" in message:
            return ModalTrouble("auth", account.NO_TOKEN, account.remedy())
        case m.AuthError():
            return ModalTrouble("auth", f"Modal does not accept the token: {message}", account.remedy())
        case m.PermissionDeniedError() | m.WorkspaceManagementError():
            return ModalTrouble(
                "auth",
                f"Modal refuses this account: {message}",
                f"{_PROFILES} shows which is used; the owner of its workspace grants permissions",
            )
        case m.FunctionTimeoutError():
            return ModalTrouble(
                "timed out",
                "Modal ended the run at the function's time limit",
                "raise the settings `orbit.build_timeout_s` and `orbit.run_timeout_s`",
            )
        case m.MountUploadTimeoutError() | m.VolumeUploadTimeoutError():
            return ModalTrouble(
                "transport", f"files could not be sent to Modal in time: {message}",
                "check the network connection, and run it again", again=True,
            )  # fmt: skip
        case m.OutputExpiredError():
            return ModalTrouble(
                "infrastructure", f"Modal no longer has the answer: {message}", "run it again"
            )
        case m.ConnectionError() | m.ServiceError() | m.ClientClosed() | OSError() | StreamTerminatedError():
            return ModalTrouble(
                "transport", f"Modal cannot be reached: {message}", "check the network connection", again=True
            )
        case m.ResourceExhaustedError():
            return ModalTrouble(
                "infrastructure", f"Modal has no free machine now: {message}",
                "run it again in a minute, or choose another GPU", again=True,
            )  # fmt: skip
        case m.NotFoundError() | m.RemoteError() if isinstance(error, m.NotFoundError) or re.search(
            r"\b(vo|qu)-\S+ not found", message
        ):
            return _not_found(message)
        case m.VersionError():
            return _version(" ".join(str(error).split()))
        case m.UnimplementedError() | m.ExecutionError() | m.DeserializationError() | m.SerializationError():
            return ModalTrouble(
                "version", f"Modal's client and Modal's service do not fit together: {message}",
                f"{_NEWER} installs another client; then {DEPLOY}",
            )  # fmt: skip
        case m.RequestSizeError():
            text = f"the request is larger than Modal takes: {message}"
            return ModalTrouble(
                "infrastructure",
                text,
                "send less: `.orbitignore` and the setting `orbit.modal.data` choose the files",
            )
        case m.ConflictError() if not _aborted(error):
            return ModalTrouble(
                "infrastructure", f"Modal refuses this as things are: {message}",
                "change what it names: trying again does not help",
            )  # fmt: skip
        case (
            m.ConflictError()
            | m.AlreadyExistsError()
            | m.InternalError()
            | m.InternalFailure()
            | m.DataLossError()
        ):
            return ModalTrouble(
                "infrastructure", f"Modal failed: {message}", "run it again; see also status.modal.com",
                again=True,
            )  # fmt: skip
        case m.InvalidError():
            return ModalTrouble("infrastructure", f"Modal rejected the request: {message}", REPORT)
        case m.ImageBuildError():
            return ModalTrouble("infrastructure", message, IMAGE)
        case m.RemoteError() | m.InputCancellation():
            return ModalTrouble(
                "infrastructure", f"the container failed: {message or 'it was ended'}",
                f"run it again; `{account.client('app logs')}` has its output", again=True,
            )  # fmt: skip
        case m.TimeoutError() | TimeoutError():
            return ModalTrouble(
                "transport", "Modal did not answer in time", "check the network connection", again=True
            )
        case Warning():
            return ModalTrouble(
                "version",
                f"Modal's client warns: {message}",
                f"{_NEWER} installs another",
            )
        case _:
            return ModalTrouble("infrastructure", f"{type(error).__name__}: {message}", REPORT)


def _known(message: str) -> ModalTrouble | None:
    """Return the trouble of a known sentence of Modal's service, whatever its status. Return None for any other
    sentence.
    """
    for words, sentence, remedy, again in _SENTENCES:
        if re.search(words, message, re.IGNORECASE):
            return ModalTrouble("infrastructure", f"{sentence}: {message}", remedy, again=again)
    return None


_SENTENCES = (
    (r"spend(ing)? limit|billing cycle", "the workspace may spend no more on Modal",
     "modal.com/settings/usage raises the limit; else it ends with the billing cycle", False),
    (r"payment|credit card|\bbilling\b", "Modal wants a way to be paid", "modal.com/settings/billing takes a card", False),
    (r"\bregions?\b", "Modal does not have this in the region",
     "choose another GPU, or another region in the workspace's settings", False),
    (r"\bplan\b|upgrade your", "the workspace's plan with Modal does not include this",
     "choose another GPU, or another plan at modal.com/settings/plans", False),
    (r"unsupported python|image builder", "the workspace's image builder does not have this Python",
     "modal.com/settings/image-config chooses a newer image builder, the setting `orbit.python` another Python", False),
    (r"\bpartition", "a queue of Modal's is full", "run it again", False),
    (r"too many requests|rate limit|throttl", "Modal takes no more requests now", "run it again in a minute", True),
    (r"\bis locked\b", "this app is being put there from somewhere else", "run it again", True),
)  # fmt: skip
"""Words of Modal's service, the sentence and the remedy for them, and whether soon may be better. The words are from public issues
and logs: Modal does not document them.
"""


def _not_found(message: str) -> ModalTrouble:
    """Return the trouble of a thing that is not there: the first one that the message names."""
    found = re.search(r"\b(queue|qu-|volume|vo-|environment|en-|workspace)", message, re.IGNORECASE)
    app = re.search(r"\b(app|function|class|fu-|ap-|cs-)", message, re.IGNORECASE)
    what = found[1].lower() if found and not (app and app.start() < found.start()) else ""
    if what in ("queue", "qu-"):
        return ModalTrouble(
            "infrastructure", f"the queue of events was deleted: {message}", "run it again: it is made anew"
        )
    if what in ("volume", "vo-"):
        return ModalTrouble(
            "infrastructure",
            f"the app's volume was deleted: {message}",
            installing.located("`orbit-lsp modal stop`, then run it again: it is made anew"),
        )
    if what:
        return ModalTrouble(
            "auth", f"this is not in the account: {message}",
            f"{_PROFILES} and `{account.client('environment list')}` show what is; the setting `orbit.modal.environment` chooses",
        )  # fmt: skip
    return ModalTrouble("version", f"the app is not on Modal: {message}", DEPLOY)


def _version(text: str) -> ModalTrouble:
    """Return the trouble of a version: Modal's client does not know the workspace's image builder, or Modal does not
    support this client any more.
    """
    old_builder = "dashboard" in text
    if "local configuration" in text:
        remedy = "remove `image_builder_version` from ~/.modal.toml and MODAL_IMAGE_BUILDER_VERSION from the environment"
    elif old_builder:
        remedy = "modal.com/settings/image-config chooses a newer image builder"
    else:
        remedy = f"{_NEWER} installs a newer client"
    return ModalTrouble(
        "version", f"Modal's client is of another version than the workspace: {text.rstrip('.')}", remedy
    )


def _aborted(error: BaseException) -> bool:
    """Say whether an error is ABORTED, which passes. FAILED_PRECONDITION, which does not pass, is a ConflictError
    too.
    """
    from grpclib import Status

    return getattr(error, "_grpc_status", None) == Status.ABORTED


def retryable(error: BaseException) -> bool:
    return isinstance(error, Exception) and trouble(error).again


def missing(error: BaseException) -> bool:
    """Say whether what was asked for is not on Modal."""
    from modal import exception

    return isinstance(error, exception.NotFoundError)


def unreachable(error: BaseException) -> bool:
    return isinstance(error, Exception) and trouble(error).kind == "transport"


def _words(error: BaseException) -> str:
    """Return the error's first line. The others are for a terminal."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
