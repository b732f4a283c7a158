"""What can go wrong, by name. Every message says what to do next, and none shows a private value."""

__all__ = ["Halted", "StateError", "TicketError"]


class Halted(RuntimeError):
    """The budget or the rounds of a mechanism are used up."""


class TicketError(ValueError):
    """A ticket that is used, expired, or not one of this POP's."""


class StateError(ValueError):
    """A state that cannot be written or read; the message says what to do."""
