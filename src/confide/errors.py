"""What can go wrong, by name. Every message says what to do next, and none shows a private value."""

__all__ = ["ConfideWarning", "Halted", "StateError", "TicketError"]


class Halted(RuntimeError):
    """The budget or the rounds of a mechanism are used up."""


class TicketError(ValueError):
    """A ticket that is used, expired, or not one of this POP's."""


class StateError(ValueError):
    """A state that cannot be written or read; the message says what to do."""


class ConfideWarning(UserWarning):
    """Something works less than one may think. Once, on what is public alone; or on the caller's own rows."""
