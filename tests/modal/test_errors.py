"""What a user is told of every exception of Modal's client, and of the sentences that Modal's service is known to say."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from grpclib import GRPCError, Status
from modal import _grpc_client, exception

from orbit_lsp.runners.modal import errors

# the remedy in part, and whether it is tried again
REMEDIES: dict[str, tuple[str, bool]] = {
    "AlreadyExistsError": ("run it again", True),
    "AsyncUsageWarning": ("pip install --upgrade modal", False),
    "AuthError": ("modal token new", False),
    "ClientClosed": ("network connection", True),
    "ConflictError": ("trying again does not help", False),
    "ConnectionError": ("network connection", True),
    "DataLossError": ("status.modal.com", True),
    "DeprecationError": ("pip install --upgrade modal", False),
    "DeserializationError": ("pip install --upgrade modal", False),
    "Error": ("report it", False),
    "ExecTimeoutError": ("network connection", True),
    "ExecutionError": ("pip install --upgrade modal", False),
    "FunctionTimeoutError": ("orbit.run_timeout_s", False),
    "ImageBuildError": ("orbit.modal.pip", False),
    "InputCancellation": ("modal app logs", True),
    "InteractiveTimeoutError": ("network connection", True),
    "InternalAPIWarning": ("pip install --upgrade modal", False),
    "InternalError": ("status.modal.com", True),
    "InternalFailure": ("status.modal.com", True),
    "InvalidError": ("report it", False),
    "LogsFetchError": ("report it", False),
    "ModuleNotMountable": ("report it", False),
    "MountUploadTimeoutError": ("network connection", True),
    "NotFoundError": ("orbit-lsp modal deploy", False),
    "OutputExpiredError": ("run it again", False),
    "PermissionDeniedError": ("modal profile list", False),
    "RemoteError": ("modal app logs", True),
    "RequestSizeError": (".orbitignore", False),
    "ResourceExhaustedError": ("choose another GPU", True),
    "SandboxFilesystemDirectoryNotEmptyError": ("report it", False),
    "SandboxFilesystemError": ("report it", False),
    "SandboxFilesystemFileTooLargeError": ("report it", False),
    "SandboxFilesystemIsADirectoryError": ("report it", False),
    "SandboxFilesystemNotADirectoryError": ("report it", False),
    "SandboxFilesystemNotFoundError": ("report it", False),
    "SandboxFilesystemPathAlreadyExistsError": ("report it", False),
    "SandboxFilesystemPermissionError": ("report it", False),
    "SandboxTerminatedError": ("report it", False),
    "SandboxTimeoutError": ("network connection", True),
    "SerializationError": ("pip install --upgrade modal", False),
    "ServerWarning": ("pip install --upgrade modal", False),
    "ServiceError": ("network connection", True),
    "SnapshotCreationError": ("report it", False),
    "TimeoutError": ("network connection", True),
    "UnimplementedError": ("pip install --upgrade modal", False),
    "VersionError": ("pip install --upgrade modal", False),
    "VolumeUploadTimeoutError": ("network connection", True),
    "WorkspaceManagementError": ("modal profile list", False),
    "_CliUserExecutionError": ("report it", False),
    "_GRPCErrorWrapper": ("report it", False),
}


def exceptions() -> dict[str, type[BaseException]]:
    return {
        name: kind
        for name, kind in vars(exception).items()
        if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == exception.__name__
    }


def made(kind: Any, text: str) -> BaseException:
    return kind(text, "im-1") if kind is exception.ImageBuildError else kind(text)


def test_every_exception_has_its_row() -> None:
    assert sorted(exceptions()) == sorted(REMEDIES)


@pytest.mark.parametrize("name", sorted(REMEDIES))
def test_each_exception_has_a_sentence_and_a_remedy(name: str) -> None:
    remedy, again = REMEDIES[name]
    told = errors.trouble(made(exceptions()[name], "some words"))
    assert remedy in told.remedy
    assert told.again == again
    assert "some words" in told.message or told.kind in ("timed out", "transport")


SENTENCES = [
    (Status.RESOURCE_EXHAUSTED, "workspace billing cycle spend limit reached", "modal.com/settings/usage", False),
    (Status.FAILED_PRECONDITION, "App creation failed: workspace billing cycle spend limit reached", "modal.com/settings/usage", False),
    (Status.PERMISSION_DENIED, "Please add a payment method to use this GPU", "modal.com/settings/billing", False),
    (Status.PERMISSION_DENIED, "B200 is not available on the Starter plan", "modal.com/settings/plans", False),
    (Status.INVALID_ARGUMENT, "H200 is not available in region eu-west", "another region", False),
    (Status.RESOURCE_EXHAUSTED, "A partition holds at most 5000 items", "run it again", False),
    (Status.RESOURCE_EXHAUSTED, "too many requests", "in a minute", True),
    (Status.RESOURCE_EXHAUSTED, "no capacity for H100", "choose another GPU", True),
    (Status.FAILED_PRECONDITION, "The selected app is locked", "run it again", True),
    (Status.FAILED_PRECONDITION, "the environment is being deleted", "trying again does not help", False),
    (Status.ABORTED, "transaction aborted", "status.modal.com", True),
    (Status.INVALID_ARGUMENT, "Unsupported Python version: '3.14'.", "modal.com/settings/image-config", False),
    (Status.NOT_FOUND, "Queue qu-1 not found", "it is made anew", False),
    (Status.NOT_FOUND, "Volume vo-1 not found", "orbit-lsp modal stop", False),
    (Status.NOT_FOUND, "Environment 'lab' not found", "orbit.modal.environment", False),
    (Status.NOT_FOUND, "App 'orbit-1' not found in environment 'main'", "orbit-lsp modal deploy", False),
    (Status.UNAUTHENTICATED, "Token ID is malformed or unknown", "modal token new", False),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text", "remedy", "again"), SENTENCES)
def test_each_sentence_of_the_service_has_its_remedy(
    status: Status, text: str, remedy: str, again: bool
) -> None:
    told = errors.trouble(_grpc_client.grpc_error_to_modal_exception(GRPCError(status, text)))
    assert remedy in told.remedy
    assert told.again == again
    assert text.rstrip(".") in told.message


BUILDERS = [
    ("2031.01", None, "pip install --upgrade modal"),
    ("2020.01", None, "modal.com/settings/image-config"),
    ("2025.06", "2031.01", "image_builder_version"),
]


@pytest.mark.parametrize(("workspace", "configured", "remedy"), BUILDERS)
def test_each_mismatch_of_image_builders_has_its_remedy(
    workspace: Any, configured: str | None, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose words are Modal's client's."""
    from modal import _image

    monkeypatch.delenv("MODAL_IMAGE_BUILDER_VERSION", raising=False)
    if configured:
        monkeypatch.setenv("MODAL_IMAGE_BUILDER_VERSION", configured)
    with pytest.raises(exception.VersionError) as raised:
        _image._get_image_builder_version(workspace)
    told = errors.trouble(raised.value)
    assert remedy in told.remedy
    assert (configured or workspace) in told.message


def test_a_container_whose_volume_was_deleted_names_the_volume() -> None:
    told = errors.trouble(exception.RemoteError("Volume vo-123 not found"))
    assert "orbit-lsp modal stop" in told.remedy
