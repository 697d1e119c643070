"""What calls raise: every error has a code, which is gRPC's name for it, and a text, which says what, where, and what to do."""
from __future__ import annotations

import contextlib
from typing import Iterator

import grpc


class WeirError(Exception):
    """A call failed. `code`: "NOT_FOUND"; `text`: "no run 'x'"."""

    def __init__(self, code: str, text: str):
        super().__init__(f"{text} ({code})")
        self.code, self.text = code, text


class Invalid(WeirError):
    """The spec, the model, or a name is wrong."""


class NotFound(WeirError):
    """There is no such run, or not for the holder of this certificate."""


class Denied(WeirError):
    """The certificate is for other things, or has ended."""


class Unavailable(WeirError):
    """Nobody answers, or not yet: trying again may help."""


class RunFailed(WeirError):
    """The run ended without a result. `code` is its state, FAILED or CANCELLED."""


KINDS = {"INVALID_ARGUMENT": Invalid, "UNIMPLEMENTED": Invalid, "NOT_FOUND": NotFound, "PERMISSION_DENIED": Denied,
         "UNAUTHENTICATED": Denied, "UNAVAILABLE": Unavailable, "ABORTED": Unavailable, "DEADLINE_EXCEEDED": Unavailable}


def error_of(code: str, text: str) -> WeirError:
    return KINDS.get(code, WeirError)(code, text)


@contextlib.contextmanager
def raised(address: str) -> Iterator[None]:
    """Errors of gRPC become ours."""
    try:
        yield
    except grpc.RpcError as error:
        code, text = error.code().name, error.details() or "no reason was given"
        if code == "UNAVAILABLE":
            text = f"{address}: {text}"
        raise error_of(code, text) from None
